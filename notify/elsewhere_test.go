package notify

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// published returns a change that sets what the corrald of another machine has decided.
func published(value string) func(*Session) {
	return func(n *Session) { n.Notification = value }
}

// suspended returns a published session that a reboot has suspended at this time.
func suspended(id string, at time.Time) *Session {
	return &Session{ID: id, State: "suspended", Reason: "the machine went down", Interrupted: true, StateChanged: at}
}

func fromAfar(s *Settings) { s.Host = "gpu" }

// shownBy returns a function that reports the notices that a server has accepted: those returned by
// the last call of Notices, if any.
func shownBy(notices []Notice) func(key, token string) bool {
	return func(key, token string) bool {
		for _, n := range notices {
			if n.Key == key && n.Token == token {
				return true
			}
		}
		return false
	}
}

func titles(notices []Notice) []string {
	all := []string{}
	for _, n := range notices {
		all = append(all, n.Title)
	}
	return all
}

// TestNotifications_AreWhatAPersonIsToKnow: other machines show neither what is not wanted, nor
// what a person knows or may be looking at. Whether notices are shown on the desktop of the
// session's own machine does not matter to them.
func TestNotifications_AreWhatAPersonIsToKnow(t *testing.T) {
	for name, c := range map[string]struct {
		session *Session
		enabled bool
		want    string
	}{
		"a failure":            {failedSession("shop", testStart), true, "pending"},
		"notices are off here": {failedSession("shop", testStart), false, "pending"},
		"a day ago":            {failedSession("shop", testStart.Add(-25*time.Hour)), true, "pending"},
		"not wanted":           {modified(failedSession("shop", testStart), labelled("no")), true, ""},
		"by request": {
			modified(failedSession("shop", testStart), func(n *Session) { n.ByRequest = true }), true, "",
		},
		"a terminal is attached": {
			modified(askingSession("shop", "question", "", testStart), func(n *Session) { n.Attached = true }), true, "",
		},
		"acknowledged": {
			modified(askingSession("shop", "question", "", testStart), func(n *Session) { n.AttentionAcknowledged = true }),
			true, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewPolicy(settings(), c.enabled, PolicyState{})
			p.Set(c.session)
			p.Notices(testStart, nothingShown)
			assert.Equal(t, c.want, p.Notifications()["shop"].Value)
		})
	}
	p := NewPolicy(settings(), true, PolicyState{})
	p.Set(modified(askingSession("shop", "question", "", testStart), func(n *Session) { n.Attached = true }))
	p.SetWatched("shop", p.Undetermined()["shop"], false)
	assert.Equal(t, "pending", p.Notifications()["shop"].Value, "nobody is looking at the attached terminal")
}

// TestSetNotified_IsForOneRequest: the record survives a restart. A late confirmation does not
// count for the next request.
func TestSetNotified_IsForOneRequest(t *testing.T) {
	p := NewPolicy(settings(), true, PolicyState{})
	p.Set(askingSession("shop", "question", "1", testStart))
	assert.Equal(t, map[string]Notification{"shop": {"pending", testStart}}, p.Notifications())
	assert.Empty(t, p.Notifications(), "only changes")
	assert.False(t, p.SetNotified("shop", testStart.Add(time.Second), elsewhere))
	assert.False(t, p.SetNotified("none", testStart, elsewhere))
	assert.True(t, p.SetNotified("shop", testStart, elsewhere))
	assert.False(t, p.SetNotified("shop", testStart, elsewhere))
	assert.Equal(t, map[string]Notification{"shop": {"shown", testStart}}, p.Notifications())

	next := NewPolicy(settings(), true, p.State())
	next.Set(askingSession("shop", "question", "1", testStart))
	assert.Equal(t, "shown", next.Notifications()["shop"].Value)
	next.Regroup(nothingShown)
	assert.Empty(t, next.Notices(testStart, nothingShown), "another machine has shown it")
	next.Set(askingSession("shop", "question", "2", testStart.Add(time.Minute)))
	assert.False(t, next.SetNotified("shop", testStart, elsewhere))
	assert.Equal(t, map[string]Notification{"shop": {"pending", testStart.Add(time.Minute)}}, next.Notifications())
	next.Set(askingSession("shop", "", "", testStart))
	assert.Equal(t, map[string]Notification{"shop": {}}, next.Notifications())
}

// TestRegroup_ShowsAgainWhatThisDesktopHasShown: the next server of the same desktop shows what the
// one before has shown.
func TestRegroup_ShowsAgainWhatThisDesktopHasShown(t *testing.T) {
	p := NewPolicy(settings(), true, PolicyState{})
	p.Set(failedSession("shop", testStart))
	p.Set(suspended("docs", testStart))
	p.LoggedIn(testStart)
	notices := p.Notices(testStart, nothingShown)
	require.Len(t, notices, 2)
	confirmed := p.Unconfirmed(shownBy(notices))
	assert.Equal(t, map[string]time.Time{"shop": testStart, "docs": testStart}, confirmed)
	for id, since := range confirmed {
		assert.True(t, p.SetNotified(id, since, here))
	}
	assert.Empty(t, p.Unconfirmed(shownBy(notices)))
	p.Regroup(nothingShown)
	assert.Len(t, p.Notices(testStart, nothingShown), 2)

	next := NewPolicy(settings(), true, PolicyState{})
	next.Set(suspended("docs", testStart))
	next.LoggedIn(testStart)
	assert.Equal(t, "pending", next.Notifications()["docs"].Value)
	next.SetNotified("docs", testStart, elsewhere)
	assert.Equal(t, "shown", next.Notifications()["docs"].Value)
	next.Regroup(nothingShown)
	assert.Empty(t, next.Notices(testStart, nothingShown), "another machine has shown it")
}

// TestBegin_ShowsWhatNobodyWasNotifiedOf: after a gap, a machine shows what is pending, and what it
// had shown before; what another one has shown meanwhile is not shown.
func TestBegin_ShowsWhatNobodyWasNotifiedOf(t *testing.T) {
	p := NewPolicy(settings(fromAfar), true, PolicyState{})
	p.Set(modified(failedSession("mine", testStart), published("pending")))
	p.Begin(testStart, nothingShown)
	before := p.Notices(testStart, nothingShown)
	require.Equal(t, []string{"gpu: mine: failed, exit 3"}, titles(before))
	assert.Equal(t, map[string]time.Time{"mine": testStart}, p.Unconfirmed(shownBy(before)))
	p.Set(modified(failedSession("mine", testStart), published("shown")))
	assert.Empty(t, p.Unconfirmed(shownBy(before)))
	p.Set(modified(failedSession("live", testStart), published("shown")))
	assert.Len(t, p.Notices(testStart, shownBy(before)), 2, "another machine was a moment faster")

	p = NewPolicy(settings(fromAfar), true, p.State())
	later := testStart.Add(72 * time.Hour)
	p.Set(modified(failedSession("mine", testStart), published("shown")))
	p.Set(modified(failedSession("other", testStart), published("shown")))
	p.Set(modified(failedSession("gap", testStart.Add(time.Hour)), published("pending")))
	p.Set(failedSession("quiet", testStart))
	p.Set(modified(suspended("a", testStart), published("shown")))
	p.Set(modified(suspended("b", testStart), published("pending")))
	p.Begin(later, shownBy(before))
	all := p.Notices(later, shownBy(before))
	assert.ElementsMatch(t, []string{
		"gpu: mine: failed, exit 3", "gpu: gap: failed, exit 3", "gpu: 1 session was suspended",
	}, titles(all))
	assert.Equal(t, map[string]time.Time{"gap": testStart.Add(time.Hour), "b": testStart}, p.Unconfirmed(shownBy(all)))

	p.Set(modified(suspended("c", testStart), published("pending")))
	p.LoggedIn(later)
	assert.Contains(t, titles(p.Notices(later, shownBy(all))), "gpu: 2 sessions were suspended", "a moment later")
	events, _ := p.Events(later)
	assert.Empty(t, events, "hooks are run by the corrald of that machine")
}

// TestBegin_RepeatsNothingAfterADaemonRestart: a corrald that has just started may not have decided
// yet, or not know yet what its agents ask.
func TestBegin_RepeatsNothingAfterADaemonRestart(t *testing.T) {
	p := NewPolicy(settings(fromAfar), true, PolicyState{})
	p.Set(modified(askingSession("mine", "question", "?", testStart), published("pending")))
	p.Set(modified(suspended("docs", testStart), published("pending")))
	p.Set(modified(askingSession("theirs", "question", "?", testStart), published("shown")))
	p.Begin(testStart, nothingShown)
	shown := p.Notices(testStart, nothingShown)
	require.Len(t, shown, 2)

	p = NewPolicy(settings(fromAfar), true, p.State())
	p.Set(askingSession("mine", "", "", testStart))
	p.Set(suspended("docs", testStart))
	p.Set(askingSession("theirs", "question", "?", testStart))
	p.Begin(testStart.Add(time.Second), shownBy(shown))
	p.Set(modified(askingSession("mine", "question", "?", testStart), published("shown")))
	p.Set(modified(suspended("docs", testStart), published("shown")))
	p.Set(modified(askingSession("theirs", "question", "?", testStart), published("shown")))
	p.LoggedIn(testStart.Add(2 * time.Second))
	again := p.Notices(testStart.Add(2*time.Second), shownBy(shown))
	assert.Equal(t, shown, again)
}

// TestBegin_OlderCorraldDoesNotDecide: what exists at the beginning counts as shown, and the
// settings of this machine decide what is wanted.
func TestBegin_OlderCorraldDoesNotDecide(t *testing.T) {
	p := NewPolicy(settings(fromAfar), true, PolicyState{})
	p.Set(modified(failedSession("before", testStart), published(Unpublished)))
	p.Set(modified(suspended("docs", testStart), published(Unpublished)))
	p.Begin(testStart, nothingShown)
	p.Set(modified(failedSession("after", testStart), published(Unpublished)))
	p.Set(modified(modified(failedSession("unwanted", testStart), labelled("no")), published(Unpublished)))
	notices := p.Notices(testStart, nothingShown)
	assert.Equal(t, []string{"gpu: after: failed, exit 3"}, titles(notices))
	assert.Empty(t, p.Unconfirmed(shownBy(notices)))
}

// TestPause_KeepsTheScreen: while the other machine cannot be reached, its notices stay, actions
// report that they fail, and the next Begin repeats nothing.
func TestPause_KeepsTheScreen(t *testing.T) {
	s := newTestNotifier(t, fromAfar)
	server := testbed.StartNotificationServer(t, "actions")
	at := now()
	s.publish(modified(failedSession("shop", at), published("pending")))
	n := s.nextShown(server)
	assert.Equal(t, "gpu: shop: failed, exit 3", n.Title)
	s.publish(modified(failedSession("answered", at), published("pending")))
	answered := s.nextShown(server)
	confirmed := func(count int) (all []string) {
		for range count {
			all = append(all, testbed.Receive(t, s.confirmed, "a confirmation"))
		}
		return all
	}
	assert.ElementsMatch(t, []string{s.confirmation("answered", at), s.confirmation("shop", at)}, confirmed(2))
	s.Pause()
	s.fail(assert.AnError)
	server.Emit(t, "ActionInvoked", n.ID, "restart")
	testbed.Receive(t, s.actions, "the action")
	assert.Equal(t, "gpu: shop: action failed", s.nextShown(server).Title)
	s.publish(modified(failedSession("gap", at), published("pending")))
	s.publish(modified(failedSession("shop", at), published("pending")))
	assert.Empty(t, server.Shown)
	s.Begin()
	assert.Equal(t, "gpu: gap: failed, exit 3", s.nextShown(server).Title, "and not the other one again")
	s.post(func() { s.screen.holdUntil = time.Now() })
	s.publish(modified(failedSession("gap", at), published("pending")))
	assert.Equal(t, answered.ID, testbed.Receive(t, server.Closed, "what has ended meanwhile"))
	assert.ElementsMatch(t, []string{s.confirmation("shop", at), s.confirmation("gap", at)}, confirmed(2),
		"what is pending after a gap is confirmed again")
	assert.Len(t, server.Live(), 3)
	assert.Empty(t, s.published)
}

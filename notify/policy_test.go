package notify

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }

var testStart = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// failedSession returns a published session that failed at this time.
func failedSession(id string, at time.Time) *Session {
	return &Session{
		ID: id, Agent: "claude", WorkingDirectory: "/home/u/src/" + id,
		State: "failed", Attention: "failed", AttentionSince: at, StateChanged: at,
		Result: "exit-code", Reason: "command exited with code 3",
		Run: Run{ExecMainStatus: 3, Started: at.Add(-125 * time.Second), Exited: at},
	}
}

// askingSession returns a published running session that has needed attention since this time.
func askingSession(id, reason, message string, at time.Time) *Session {
	return &Session{
		ID: id, Agent: "claude", WorkingDirectory: "/srv/" + id, State: "running",
		Attention: reason, AttentionMessage: message, AttentionSource: "report", AttentionSince: at,
		Run: Run{AgentAlive: true, Started: at.Add(-time.Hour)},
	}
}

// modified returns a changed copy of a session.
func modified(n *Session, change func(*Session)) *Session {
	c := *n
	change(&c)
	return &c
}

func settings(change ...func(*Settings)) Settings {
	s := Settings{Config: config.Default(), Home: "/home/u"}
	for _, f := range change {
		f(&s)
	}
	return s
}

// labelled returns a change that sets the label for notifications.
func labelled(value string) func(*Session) {
	return func(n *Session) { n.Labels = map[string]string{config.NotifyLabel: value} }
}

func nothingShown(string, string) bool { return false }

func TestPolicy_NoticeOfOneSession(t *testing.T) {
	long := strings.Repeat("wörd ", 40)
	resumable := func(n *Session) { n.Resumable = true }
	killed := func(n *Session) {
		n.Result, n.ExecMainStatus, n.Reason = "signal", 9, "command was killed by SIGKILL"
	}
	completed := modified(failedSession("shop", testStart), func(n *Session) {
		n.State, n.Attention, n.Result, n.Reason, n.ExecMainStatus = "completed", "completed", "success", "", 0
	})
	completedAfter := func(d time.Duration) *Session {
		return modified(completed, func(n *Session) { n.Started = n.Exited.Add(-d) })
	}
	stale := modified(askingSession("shop", "stale", "", testStart), func(n *Session) {
		n.State, n.Reason = "stale", "scope running, session dead"
	})
	orphaned := modified(askingSession("shop", "orphaned", "", testStart), func(n *Session) {
		n.State = "orphaned"
	})
	noneOfAgent := func(s *Settings) { s.Agents = map[string]config.Agent{"claude": {Notify: []string{}}} }
	onlyStale := func(s *Settings) { s.Config.Notify = []string{"stale"} }
	withKeys := func(s *Settings) {
		s.Agents = map[string]config.Agent{"claude": {ApproveKeys: []string{"1"}, DenyKeys: []string{"Escape"}}}
	}
	const failedBody = "command exited with code 3\n~/src/shop, after 2m 5s"
	for name, c := range map[string]struct {
		n        *Session
		settings func(*Settings)
		title    string // "" if there is to be no notice
		body     string
		urgency  Urgency
		actions  string
	}{
		"failed": {
			n:     failedSession("shop", testStart),
			title: "shop: failed, exit 3", body: failedBody, urgency: Normal, actions: "open restart log",
		},
		"failed, resumable": {
			n:     modified(failedSession("shop", testStart), resumable),
			title: "shop: failed, exit 3", body: failedBody, urgency: Normal, actions: "open resume log",
		},
		"killed": {
			n:     modified(failedSession("shop", testStart), killed),
			title: "shop: failed, SIGKILL", body: "command was killed by SIGKILL\n~/src/shop, after 2m 5s",
			urgency: Normal, actions: "open restart log",
		},
		"killed by the user": {
			n: modified(failedSession("shop", testStart), func(n *Session) { n.ByRequest = true }),
		},
		"question": {
			n:     askingSession("shop", "question", "a <b>\x1b[31m\u202e or\nb & c?", testStart),
			title: "shop: has a question", body: "a <b> [31m or b & c?\n/srv/shop",
			urgency: Normal, actions: "open log inline-reply",
		},
		"long question": {
			n:     askingSession("shop", "permission", long, testStart),
			title: "shop: asks for permission", body: strings.TrimSpace(long[:len("wörd ")*28]) + "…\n/srv/shop",
			urgency: Normal, actions: "open log inline-reply",
		},
		"permission, keys configured": {
			n: askingSession("shop", "permission", "", testStart), settings: withKeys,
			title: "shop: asks for permission", body: "/srv/shop", urgency: Normal,
			actions: fmt.Sprintf("open approve@%d deny@%[1]d log inline-reply", testStart.UnixMicro()),
		},
		"question, keys configured": {
			n: askingSession("shop", "question", "", testStart), settings: withKeys,
			title: "shop: has a question", body: "/srv/shop", urgency: Normal, actions: "open log inline-reply",
		},
		"blocked without a reason": {
			n: askingSession("shop", "blocked", "touch the key", testStart), settings: withKeys,
			title: "shop: cannot continue", body: "touch the key\n/srv/shop", urgency: Normal,
			actions: "open log inline-reply",
		},
		"turn ended": {
			n:     askingSession("shop", "turn-ended", "", testStart),
			title: "shop: turn ended", body: "/srv/shop", urgency: Normal, actions: "open log inline-reply",
		},
		"unknown reason": {
			n:     askingSession("shop", "moody", "", testStart),
			title: "shop: needs attention", body: "/srv/shop", urgency: Normal, actions: "open log inline-reply",
		},
		"needs no attention": {n: askingSession("shop", "", "", testStart)},
		"completed": {
			n:     completed,
			title: "shop: completed", body: "~/src/shop, after 2m 5s", urgency: Low, actions: "open restart log",
		},
		"completed after less than a minute": {n: completedAfter(59 * time.Second)},
		"completed after a second, all configured": {
			n: completedAfter(time.Second), settings: func(s *Settings) { s.Config.NotifyAfter = 0 },
			title: "shop: completed", body: "~/src/shop, after 1s", urgency: Low, actions: "open restart log",
		},
		"stale": {
			n:     stale,
			title: "shop: lost its terminal", body: "its tmux server died; the agent is still running\n/srv/shop",
			urgency: Normal, actions: "open resume log",
		},
		"orphaned": {
			n:     orphaned,
			title: "shop: workspace missing", body: "/srv/shop", urgency: Normal, actions: "open log",
		},
		"disabled in corral.conf":       {n: failedSession("shop", testStart), settings: onlyStale},
		"disabled for the agent":        {n: failedSession("shop", testStart), settings: noneOfAgent},
		"disabled by the session label": {n: modified(failedSession("shop", testStart), labelled("no"))},
		"enabled by the session label": {
			n: modified(failedSession("shop", testStart), labelled("failed")), settings: noneOfAgent,
			title: "shop: failed, exit 3", body: failedBody, urgency: Normal, actions: "open restart log",
		},
		"invalid session label": {
			n:     modified(failedSession("shop", testStart), labelled("dunno")),
			title: "shop: failed, exit 3", body: failedBody, urgency: Normal, actions: "open restart log",
		},
		"more than a day ago": {n: failedSession("shop", testStart.Add(-25*time.Hour))},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings()
			if c.settings != nil {
				c.settings(&s)
			}
			p := NewPolicy(s, true, PolicyState{})
			p.Set(c.n)
			notices := p.Notices(testStart, nothingShown)
			if c.title == "" {
				assert.Empty(t, notices)
				return
			}
			require.Len(t, notices, 1)
			n := notices[0]
			assert.Equal(t, c.title, n.Title)
			assert.Equal(t, c.body, n.Body)
			assert.Equal(t, c.urgency, n.Urgency)
			var keys []string
			for _, a := range n.Actions {
				keys = append(keys, a.Key)
			}
			assert.Equal(t, c.actions, strings.Join(keys, " "))
		})
	}
}

// shownNotices returns the keys and titles of the notices on the screen.
func shownNotices(p *Policy, now time.Time) []string {
	lines := []string{}
	for _, n := range p.Notices(now, nothingShown) {
		lines = append(lines, n.Key+" | "+n.Title)
	}
	return lines
}

func TestPolicy_ShowsOneNoticePerSession(t *testing.T) {
	p := NewPolicy(settings(), true, PolicyState{})
	p.Set(askingSession("shop", "question", "1", testStart))
	first := p.Notices(testStart, nothingShown)
	p.Set(modified(askingSession("shop", "question", "1", testStart),
		func(n *Session) { n.Description = "x" }))
	assert.Equal(t, first[0].Token, p.Notices(testStart, nothingShown)[0].Token, "its request is unchanged")
	p.Set(askingSession("shop", "question", "2", testStart.Add(time.Second)))
	again := p.Notices(testStart, nothingShown)
	require.Len(t, again, 1)
	assert.Equal(t, first[0].Key, again[0].Key, "it replaces the other one")
	assert.NotEqual(t, first[0].Token, again[0].Token)
	p.Set(askingSession("shop", "", "", testStart))
	assert.Empty(t, p.Notices(testStart, nothingShown))
	p.Set(failedSession("shop", testStart))
	p.Remove("shop")
	assert.Empty(t, p.Notices(testStart, nothingShown))
}

// The notice is closed although the question is still pending, and hooks are not called.
func TestPolicy_HidesAcknowledgedQuestions(t *testing.T) {
	acknowledged := func(n *Session) { n.AttentionAcknowledged = true }
	p := NewPolicy(settings(), true, PolicyState{})
	p.Set(askingSession("shop", "question", "which?", testStart))
	require.Equal(t, []string{"session shop | shop: has a question"}, shownNotices(p, testStart))
	p.Set(modified(askingSession("shop", "question", "which?", testStart), acknowledged))
	assert.Empty(t, p.Notices(testStart.Add(time.Second), nothingShown))
	all, _ := p.Events(testStart.Add(time.Second))
	assert.Empty(t, all)

	next := NewPolicy(settings(), true, p.State())
	next.Set(modified(askingSession("shop", "question", "which?", testStart), acknowledged))
	assert.Empty(t, next.Notices(testStart.Add(time.Minute), nothingShown), "after the daemon was restarted")
	next.Set(askingSession("shop", "question", "which?", testStart.Add(time.Minute)))
	assert.Len(t, next.Notices(testStart.Add(time.Minute), nothingShown), 1, "it asks again")
}

func TestPolicy_SummarizesABurst(t *testing.T) {
	p := NewPolicy(settings(), true, PolicyState{})
	for i := range burstLimit {
		p.Set(failedSession(fmt.Sprint("s", i), testStart))
		assert.Len(t, shownNotices(p, testStart), i+1)
	}
	p.Set(askingSession("t", "question", "", testStart))
	assert.Equal(t, []string{"summary | 5 sessions need attention"}, shownNotices(p, testStart.Add(time.Second)),
		"it replaces the earlier notices")
	summary := p.Notices(testStart.Add(time.Second), nothingShown)[0]
	assert.Equal(t, "s0: failed, exit 3\ns1: failed, exit 3\ns2: failed, exit 3\ns3: failed, exit 3\nt: has a question",
		summary.Body)
	assert.Equal(t, Normal, summary.Urgency)

	p.Set(askingSession("s0", "", "", testStart))
	smaller := p.Notices(testStart.Add(2*time.Second), nothingShown)[0]
	assert.Equal(t, "4 sessions need attention", smaller.Title)
	assert.Equal(t, summary.Token, smaller.Token, "a session fewer does not replace the notice")
	for i := range 20 {
		p.Set(failedSession(fmt.Sprint("u", i), testStart))
	}
	larger := p.Notices(testStart.Add(3*time.Second), nothingShown)
	require.Len(t, larger, 1)
	assert.Equal(t, "24 sessions need attention", larger[0].Title)
	assert.NotEqual(t, summary.Token, larger[0].Token)
	assert.Contains(t, larger[0].Body, "and 16 more")

	p.Set(failedSession("later", testStart.Add(20*time.Second)))
	assert.Equal(t, []string{"session later | later: failed, exit 3", "summary | 24 sessions need attention"},
		shownNotices(p, testStart.Add(20*time.Second)))
	for _, n := range p.sessions {
		if n.ID != "later" {
			p.Remove(n.ID)
		}
	}
	assert.Equal(t, []string{"session later | later: failed, exit 3"}, shownNotices(p, testStart.Add(20*time.Second)))
}

func TestPolicy_HidesRequestsOfWatchedSessions(t *testing.T) {
	attached := func(n *Session) { n.Attached = true }
	p := NewPolicy(settings(), true, PolicyState{})
	p.Set(modified(askingSession("shop", "question", "1", testStart), attached))
	p.Set(modified(askingSession("forum", "question", "1", testStart), attached))
	assert.Empty(t, shownNotices(p, testStart), "until it is known whether a person is watching")
	tokens := p.Undetermined()
	assert.Len(t, tokens, 2)
	p.SetWatched("shop", tokens["shop"], true)
	p.SetWatched("forum", "another", true)
	p.SetWatched("forum", tokens["forum"], false)
	assert.Empty(t, p.Undetermined())
	assert.Equal(t, []string{"session forum | forum: has a question"}, shownNotices(p, testStart))
	assert.Equal(t, Hidden, p.State().Requests["shop"].Placement)
}

func TestPolicy_ListsSessionsSuspendedByAReboot(t *testing.T) {
	suspended := func(id string, at time.Time) *Session {
		return &Session{ID: id, State: "suspended", Reason: "the machine went down", Interrupted: true,
			StateChanged: at}
	}
	p := NewPolicy(settings(), true, PolicyState{})
	for _, id := range []string{"b", "a", "c"} {
		p.Set(suspended(id, testStart))
	}
	p.Set(modified(suspended("mine", testStart), func(n *Session) { n.Interrupted = false }))
	p.Set(modified(suspended("quiet", testStart), labelled("no")))
	assert.Empty(t, shownNotices(p, testStart), "before the sessions are resumed at login")
	p.Set(modified(suspended("c", testStart), func(n *Session) { n.State, n.Interrupted = "running", false }))
	p.LoggedIn(testStart)
	notices := p.Notices(testStart, nothingShown)
	require.Len(t, notices, 1)
	assert.Equal(t, "2 sessions were suspended", notices[0].Title)
	assert.Equal(t, "the machine went down\na, b", notices[0].Body)
	assert.Equal(t, []string{"a", "b"}, notices[0].Sessions)
	assert.Contains(t, notices[0].Actions, Action{ResumeAll, "Resume all"})

	again := NewPolicy(settings(), true, p.State())
	again.Set(suspended("a", testStart))
	again.Set(suspended("b", testStart))
	again.LoggedIn(testStart.Add(time.Minute))
	same := again.Notices(testStart.Add(time.Minute), nothingShown)
	require.Len(t, same, 1)
	assert.Equal(t, notices[0].Token, same[0].Token, "a restart of the daemon is not a reboot")
	again.Set(suspended("b", testStart.Add(time.Hour)))
	assert.Equal(t, []string{"interrupted | 1 session was suspended"}, shownNotices(again, testStart))
	again.LoggedIn(testStart.Add(time.Hour))
	assert.Equal(t, []string{"b"}, again.Notices(testStart.Add(time.Hour), nothingShown)[0].Sessions,
		"only those of the next reboot")
	assert.Empty(t, again.Notices(testStart.Add(26*time.Hour), nothingShown), "because no server has accepted it")
}

func TestPolicy_RestoresItsState(t *testing.T) {
	p := NewPolicy(settings(), true, PolicyState{})
	for i := range 6 {
		p.Set(failedSession(fmt.Sprint("s", i), testStart))
	}
	before := p.Notices(testStart, nothingShown)
	next := NewPolicy(settings(), true, p.State())
	for i := range 6 {
		next.Set(failedSession(fmt.Sprint("s", i), testStart))
	}
	next.Set(failedSession("new", testStart))
	after := next.Notices(testStart.Add(time.Minute), nothingShown)
	require.Len(t, after, 2)
	assert.Equal(t, "session new", after[0].Key)
	assert.Equal(t, before[0].Token, after[1].Token)
}

func TestPolicy_RegroupSummarizesUnsentNotices(t *testing.T) {
	p := NewPolicy(settings(), true, PolicyState{})
	for i := range 6 {
		at := testStart.Add(time.Duration(i) * time.Hour)
		p.Set(failedSession(fmt.Sprint("s", i), at))
		p.Notices(at, nothingShown)
	}
	assert.Len(t, shownNotices(p, testStart.Add(6*time.Hour)), 6)
	p.Regroup(nothingShown)
	assert.Equal(t, []string{"summary | 6 sessions need attention"}, shownNotices(p, testStart.Add(6*time.Hour)))
	p.Regroup(nothingShown)
	assert.Empty(t, shownNotices(p, testStart.Add(60*time.Hour)))
}

func TestPolicy_DropsRequestsMadeWhileOff(t *testing.T) {
	p := NewPolicy(settings(), true, PolicyState{})
	p.Set(failedSession("one", testStart))
	p.SetEnabled(false)
	p.Set(failedSession("two", testStart))
	assert.Empty(t, shownNotices(p, testStart))
	p.SetEnabled(true)
	assert.Empty(t, shownNotices(p, testStart))
	p.Set(failedSession("three", testStart))
	assert.Equal(t, []string{"session three | three: failed, exit 3"}, shownNotices(p, testStart))
}

func TestSpan_FormatsDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "less than 1s", 1500 * time.Millisecond: "1s", time.Minute: "1m", 125 * time.Second: "2m 5s",
		3*time.Hour + 4*time.Minute + 5*time.Second: "3h 4m", 50 * time.Hour: "2d 2h", 24 * time.Hour: "1d",
		24*time.Hour + time.Minute: "1d",
	} {
		assert.Equal(t, want, formatSpan(d), d.String())
	}
}

// By default no notice is critical, because desktops show critical ones in do-not-disturb mode.
func TestUrgency_IsConfiguredByAgentAndKind(t *testing.T) {
	s := settings(func(s *Settings) {
		s.Config.NotifyUrgency = config.Urgencies{"failed": "critical", "suspended": "low"}
		codex := config.Agent{NotifyUrgency: config.Urgencies{"failed": "low", "waiting": "critical"}}
		s.Agents = map[string]config.Agent{"codex": codex}
	})
	of := func(agent string, n *Session, s Settings) Urgency {
		n.Agent = agent
		return noticeOf(n, "t", s).Urgency
	}
	for _, kind := range config.NotifyAll {
		assert.Less(t, settings().urgency(failedSession("shop", testStart), kind), Critical, kind)
	}
	assert.Equal(t, Critical, of("claude", failedSession("shop", testStart), s), "as in corral.conf")
	assert.Equal(t, Low, of("codex", failedSession("shop", testStart), s), "as in the agent's definition")
	assert.Equal(t, Normal, of("claude", askingSession("shop", "question", "", testStart), s), "the default")
	assert.Equal(t, Critical, of("codex", askingSession("shop", "question", "", testStart), s),
		"for every reason that means waiting")
	reboot := &Session{ID: "shop", Agent: "codex", State: "suspended", Interrupted: true}
	assert.Equal(t, Low, interruptedNotice([]*Session{reboot}, "t", s).Urgency)
	low := modified(failedSession("a", testStart), func(n *Session) { n.Agent = "codex" })
	both := []*Session{low, failedSession("b", testStart)}
	assert.Equal(t, Critical, summaryOf(both, "t", s).Urgency, "that of the most urgent session")
	assert.Equal(t, []string{"low", "normal", "critical"}, []string{Low.String(), Normal.String(), Critical.String()})
}

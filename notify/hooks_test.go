package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/testbed"
)

// fakeHooks stands for the installed hooks and for systemd, which runs them.
type fakeHooks struct {
	mu       sync.Mutex
	names    []string
	failures int // how many calls of Run fail before systemd answers
	calls    chan *hookCall
	results  chan string
}

// hookCall is one run of a hook, which lasts until the test sends its result to end.
type hookCall struct {
	hookInput
	name string
	end  chan error
}

func (h *fakeHooks) options() Hooks {
	if h.calls == nil {
		h.calls, h.results = make(chan *hookCall, 64), make(chan string, 64)
	}
	return Hooks{
		List: func() (list []config.Hook) {
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, name := range h.names {
				list = append(list, config.Hook{Name: name, Path: "/hooks.d/" + name})
			}
			return list
		},
		Run: func(ctx context.Context, hook config.Hook, input []byte, started func()) error {
			call := &hookCall{name: hook.Name, end: make(chan error, 1)}
			if err := json.Unmarshal(input, &call.hookInput); err != nil {
				return err
			}
			h.mu.Lock()
			h.failures--
			fails := h.failures >= 0
			h.mu.Unlock()
			if fails {
				return errors.New("systemd does not answer")
			}
			started()
			h.calls <- call
			select {
			case err := <-call.end:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		ReportResult: func(name string, err error) { h.results <- fmt.Sprint(name, ": ", err) },
	}
}

func (h *fakeHooks) install(names ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.names = names
}

// nextCall returns the next run of a hook.
func (s *testNotifier) nextCall() *hookCall {
	s.t.Helper()
	return testbed.Receive(s.t, s.hooks.calls, "a call of a hook")
}

func disabled(s *Settings) { s.Config.Notifications = false }

// Hooks run once for each event, even without a notification server, with notifications disabled,
// and across a restart of the daemon.
func TestHooks_ReceiveEventsOnce(t *testing.T) {
	s := newTestNotifier(t, disabled)
	s.hooks.install("ntfy")
	at := now()
	shop := modified(failedSession("shop", at), func(n *Session) {
		n.Labels, n.Description = map[string]string{"team": "web"}, "the shop"
	})
	s.publish(modified(failedSession("mine", at), func(n *Session) { n.ByRequest = true }))
	s.publish(shop)
	call := s.nextCall()
	assert.Equal(t, hookInput{
		Event: "failed", Title: "shop: failed, exit 3", Text: "command exited with code 3\n~/src/shop, after 2m 5s",
		Urgency: "normal", Time: at.UnixMicro(),
		Sessions: []hookSession{{
			Id: "shop", Agent: "claude", Description: "the shop", Labels: map[string]string{"team": "web"},
			WorkingDirectory: "/home/u/src/shop", State: "failed",
			Attention: "failed", Result: "exit-code", Reason: "command exited with code 3", ExecMainStatus: 3,
			ExecMainStartTimestamp: at.Add(-125 * time.Second).UnixMicro(), ExecMainExitTimestamp: at.UnixMicro(),
			DurationUSec: 125_000_000,
		}},
	}, call.hookInput)
	call.end <- nil
	s.restart(shop)
	s.publish(askingSession("asks", "question", "May I?", at))
	call = s.nextCall()
	assert.Equal(t, "asks: has a question", call.Title, "the earlier event is not delivered again")
	assert.Equal(t, "waiting", call.Event)
	assert.Equal(t, "May I?", call.Sessions[0].AttentionMessage)
	assert.Greater(t, call.Sessions[0].DurationUSec, time.Hour.Microseconds())
	assert.Empty(t, s.hooks.results)
}

// A hook that hangs delays only itself: its next run receives the accumulated events together. If
// the daemon exits before that, the next daemon delivers them.
func TestHooks_HangingOneDelaysOnlyItself(t *testing.T) {
	s := newTestNotifier(t)
	s.hooks.install("hangs", "quick")
	byName := func() map[string]*hookCall {
		calls := map[string]*hookCall{}
		for range 2 {
			call := s.nextCall()
			calls[call.name] = call
		}
		return calls
	}
	one := failedSession("one", now())
	s.publish(one)
	first := byName()
	first["quick"].end <- nil
	two, three := failedSession("two", now()), failedSession("three", now())
	for _, n := range []*Session{two, three} {
		s.publish(n)
		call := s.nextCall()
		assert.Equal(t, "quick", call.name)
		assert.Equal(t, n.ID+": failed, exit 3", call.Title)
		call.end <- nil
	}
	first["hangs"].end <- errors.New("it took too long")
	assert.Equal(t, "hangs: it took too long", testbed.Receive(t, s.hooks.results, "the failure"))
	call := s.nextCall()
	assert.Equal(t, "hangs several 2 sessions need attention", call.name+" "+call.Event+" "+call.Title)
	assert.Equal(t, "two", call.Sessions[0].Id)
	assert.Equal(t, "three", call.Sessions[1].Id)

	four := failedSession("four", now())
	s.publish(four)
	call4 := s.nextCall()
	assert.Equal(t, "quick", call4.name)
	call4.end <- nil
	s.restart(one, two, three, four)
	again := byName()
	assert.Equal(t, "four", again["hangs"].Sessions[0].Id, "the event that it has not received")
	assert.Equal(t, "four", again["quick"].Sessions[0].Id, "twice rather than not at all")
}

// A hook that systemd did not start is tried again, with the events that have arrived meanwhile. If
// the daemon exits before that, the next daemon runs the hook.
func TestHooks_RetryWhenSystemdDoesNotAnswer(t *testing.T) {
	s := newTestNotifier(t)
	s.hooks.install("ntfy")
	s.hooks.failures = 1
	one, two := failedSession("one", now()), failedSession("two", now())
	s.publish(one)
	assert.Equal(t, "ntfy: systemd does not answer", testbed.Receive(t, s.hooks.results, "the failure"))
	s.publish(two)
	call := s.nextCall()
	assert.Equal(t, "2 sessions need attention", call.Title)
	call.end <- nil
	assert.Equal(t, "ntfy: <nil>", testbed.Receive(t, s.hooks.results, "that the failure is cleared"))

	s.hooks.mu.Lock()
	s.hooks.failures = 1
	s.hooks.mu.Unlock()
	three := failedSession("three", now())
	s.publish(three)
	testbed.Receive(t, s.hooks.results, "the failure")
	s.restart(one, two, three)
	assert.Equal(t, "three: failed, exit 3", s.nextCall().Title)
}

// The failure of a hook is cleared once the hook works or is uninstalled, or the configuration is
// reloaded.
func TestHooks_FailureIsReportedUntilCleared(t *testing.T) {
	for name, c := range map[string]struct{ repair func(s *testNotifier) }{
		"it works": {func(s *testNotifier) {
			s.publish(failedSession("two", now()))
			s.nextCall().end <- nil
		}},
		"it is uninstalled": {func(s *testNotifier) {
			s.hooks.install()
			s.publish(failedSession("two", now()))
		}},
		"the configuration is reloaded": {func(s *testNotifier) { s.Configure(settings()) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestNotifier(t)
			s.hooks.install("ntfy")
			s.publish(failedSession("one", now()))
			s.nextCall().end <- errors.New("it exited with code 22")
			assert.Equal(t, "ntfy: it exited with code 22", testbed.Receive(t, s.hooks.results, "the failure"))
			s.publish(askingSession("one", "", "", now()))
			require.NoError(t, s.SetEnabled(true)) // now the result of the hook has been handled
			c.repair(s)
			assert.Equal(t, "ntfy: <nil>", testbed.Receive(t, s.hooks.results, "that the failure is cleared"))
		})
	}
}

func TestEvents_LimitsABurst(t *testing.T) {
	p := NewPolicy(settings(), true, PolicyState{})
	var calls []int
	at := testStart
	for i := range 1000 {
		p.Set(failedSession(fmt.Sprintf("s%03d", i), at))
		all, next := p.Events(at)
		for _, e := range all {
			calls = append(calls, len(e.Snapshots))
			p.MarkSent(e)
		}
		if i >= burstLimit {
			assert.Equal(t, testStart.Add(burstWindow), next)
		}
		at = at.Add(time.Millisecond)
	}
	assert.Equal(t, []int{1, 1, 1, 1}, calls)
	p.Set(askingSession("s900", "", "", at)) // a person has answered it
	all, next := p.Events(testStart.Add(burstWindow))
	require.Len(t, all, 1)
	assert.Equal(t, "995 sessions need attention", all[0].Title)
	assert.True(t, next.IsZero())
	p.MarkSent(all[0])
	all, next = p.Events(testStart.Add(time.Hour))
	assert.Empty(t, all)
	assert.True(t, next.IsZero(), "no timer is needed")
}

// There are no events about sessions that a person is watching, that the user has ended, or whose
// request is older than a day. Whether notices are enabled does not matter.
func TestEvents_LeavesOutWhatTheUserSees(t *testing.T) {
	attached := func(n *Session) { n.Attached = true }
	byUser := func(n *Session) { n.ByRequest = true }
	for name, c := range map[string]struct {
		n       *Session
		watched bool
		events  int
	}{
		"not attached":                  {failedSession("shop", testStart), false, 1},
		"attached and watched":          {modified(failedSession("shop", testStart), attached), true, 0},
		"attached, not watched":         {modified(failedSession("shop", testStart), attached), false, 1},
		"older than a day":              {failedSession("shop", testStart.Add(-maxAge-time.Second)), false, 0},
		"disabled by the session label": {modified(failedSession("shop", testStart), labelled("no")), false, 0},
		"ended by the user":             {modified(failedSession("shop", testStart), byUser), false, 0},
		"enabled by the session label":  {modified(failedSession("shop", testStart), labelled("failed")), false, 1},
	} {
		for _, on := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", ", on), func(t *testing.T) {
				p := NewPolicy(settings(), on, PolicyState{})
				p.Set(c.n)
				for id, token := range p.Undetermined() {
					all, _ := p.Events(testStart)
					assert.Empty(t, all, "until it is known whether a person is watching")
					p.SetWatched(id, token, c.watched)
				}
				all, next := p.Events(testStart)
				assert.Len(t, all, c.events)
				assert.True(t, next.IsZero())
				again, _ := p.Events(testStart)
				assert.Empty(t, again, "it is being sent")
				p.SetEnabled(true)
				if !on {
					assert.Empty(t, p.Notices(testStart, nothingShown), "requests made while disabled are not shown")
				}
			})
		}
	}
}

// One run of a hook may report a reboot together with other events. Each session keeps the kind and
// urgency of its own event.
func TestEvents_MergesARebootWithOtherEvents(t *testing.T) {
	interrupted := &Session{
		ID: "infra", State: "suspended", Reason: "the machine went down", Interrupted: true, StateChanged: testStart,
	}
	failed := &request{session: failedSession("shop", testStart), token: "s", requestedAt: testStart}
	urgent := settings(func(s *Settings) {
		s.Config.NotifyUrgency = config.Urgencies{"suspended": "critical", "failed": "low"}
	})
	n := merge([]*Event{
		eventOfReboot([]*Session{interrupted}, "t", settings()), eventOf([]*request{failed}, settings()),
	}, urgent)
	assert.Equal(t, Critical, n.Urgency, "that of the suspended session")
	assert.Equal(t, "2 sessions need attention\ninfra: suspended\nshop: failed, exit 3", n.Title+"\n"+n.Body)
	assert.Equal(t, "several", n.Kind)
}

func TestEvents_ReportsARebootOnce(t *testing.T) {
	suspended := func(id string) *Session {
		return &Session{
			ID: id, State: "suspended", Reason: "the machine went down", Interrupted: true, StateChanged: testStart,
		}
	}
	p := NewPolicy(settings(), false, PolicyState{})
	p.Set(suspended("shop"))
	p.Set(suspended("forum"))
	p.LoggedIn(testStart)
	all, _ := p.Events(testStart)
	require.Len(t, all, 1)
	assert.Equal(t, "suspended: 2 sessions were suspended", all[0].Kind+": "+all[0].Title)
	next := NewPolicy(settings(), false, p.State())
	next.Set(suspended("shop"))
	next.Set(suspended("forum"))
	next.LoggedIn(testStart)
	again, _ := next.Events(testStart)
	require.Len(t, again, 1, "the daemon exited before a hook had started")
	next.MarkSent(again[0])
	again, _ = next.Events(testStart)
	assert.Empty(t, again)
	last := NewPolicy(settings(), false, next.State())
	last.Set(suspended("shop"))
	last.LoggedIn(testStart)
	again, _ = last.Events(testStart)
	assert.Empty(t, again)
}

// nextMessage returns the next message in a terminal, once that terminal can be sent another one.
func (s *testNotifier) nextMessage() string {
	s.t.Helper()
	text := testbed.Receive(s.t, s.messages, "a message")
	testbed.Poll(s.t, "the message is no longer in progress", func() bool {
		idle := make(chan bool)
		s.post(func() { idle <- len(s.messaging) == 0 })
		return <-idle
	})
	return text
}

// A message appears in every attached terminal except those of the session that it is about.
func TestTmuxMessages_SkipTheSessionTheyAreAbout(t *testing.T) {
	attached := func(n *Session) { n.Attached = true }
	s := newTestNotifier(t, disabled)
	s.publish(modified(askingSession("looks", "", "", now()), attached))
	s.publish(askingSession("asks", "question", "May I?\x1b]0;x\a\n#{pid} #(id) %H", now()))
	assert.Equal(t, "looks <- asks: has a question: May I? ]0;x #{pid} #(id) %H",
		s.nextMessage())
	s.publish(modified(failedSession("looks", now()), attached))
	s.publish(failedSession("shop", now()))
	assert.Equal(t, "looks <- shop: failed, exit 3", s.nextMessage())
	quiet := settings(disabled)
	quiet.Config.TmuxMessages = false
	s.Configure(quiet)
	s.hooks.install("ntfy")
	s.publish(failedSession("last", now()))
	for last := false; !last; { // in an event of its own, or in one with earlier sessions
		call := s.nextCall()
		last = slices.ContainsFunc(call.Sessions, func(h hookSession) bool { return h.Id == "last" })
		call.end <- nil
	}
	assert.Empty(t, s.messages)
}

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
	"github.com/corrald/corral/supervisor"
)

// hooks are programs that a test plays.
type hooks struct {
	mu    sync.Mutex
	names []string
	away  int // how often systemd does not take one over
	calls chan *hookCall
	ended chan string
}

// hookCall is one run of a hook: it goes on until the test ends it.
type hookCall struct {
	event
	name string
	end  chan error
}

func (h *hooks) options() Hooks {
	if h.calls == nil {
		h.calls, h.ended = make(chan *hookCall, 64), make(chan string, 64)
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
			if err := json.Unmarshal(input, &call.event); err != nil {
				return err
			}
			h.mu.Lock()
			h.away--
			away := h.away >= 0
			h.mu.Unlock()
			if away {
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
		ReportResult: func(name string, err error) { h.ended <- fmt.Sprint(name, ": ", err) },
	}
}

func (h *hooks) install(names ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.names = names
}

// called returns the next run of a hook.
func (s *stage) called() *hookCall {
	s.t.Helper()
	return testbed.Receive(s.t, s.hooks.calls, "a call of a hook")
}

func off(s *Settings) { s.Config.Notifications = false }

// Hooks are told what there is to tell, once, with neither a server nor notifications switched on,
// over a restart too.
func TestHooks_ReceiveEventsOnce(t *testing.T) {
	s := newStage(t, off)
	s.hooks.install("ntfy")
	at := now()
	shop := in(failed("shop", at), func(n *supervisor.Snapshot) { n.Labels, n.Description = map[string]string{"team": "web"}, "the shop" })
	s.publish(in(failed("mine", at), func(n *supervisor.Snapshot) { n.ByWish = true }))
	s.publish(shop)
	call := s.called()
	assert.Equal(t, event{
		Event: "failed", Title: "shop: failed, exit 3", Text: "command exited with code 3\n~/src/shop, after 2m 5s", Urgency: "normal", Time: at.UnixMicro(),
		Sessions: []eventSession{{
			Id: "shop", Agent: "claude", Description: "the shop", Labels: map[string]string{"team": "web"}, WorkingDirectory: "/home/u/src/shop", State: "failed",
			Attention: "failed", Result: "exit-code", Reason: "command exited with code 3", ExecMainStatus: 3,
			ExecMainStartTimestamp: at.Add(-125 * time.Second).UnixMicro(), ExecMainExitTimestamp: at.UnixMicro(), DurationUSec: 125_000_000,
		}},
	}, call.event)
	call.end <- nil
	s.launch(shop)
	s.publish(asking("asks", "question", "May I?", at))
	call = s.called()
	assert.Equal(t, "asks: has a question", call.Title, "and not again what was told")
	assert.Equal(t, "waiting", call.Event)
	assert.Equal(t, "May I?", call.Sessions[0].AttentionMessage)
	assert.Greater(t, call.Sessions[0].DurationUSec, time.Hour.Microseconds())
	assert.Empty(t, s.hooks.ended)
}

// A hook that hangs holds up itself alone, and is told together then what has gathered. A daemon
// that ends meanwhile leaves that to the next one.
func TestHooks_HangingOneDelaysOnlyItself(t *testing.T) {
	s := newStage(t)
	s.hooks.install("hangs", "quick")
	byName := func() map[string]*hookCall {
		calls := map[string]*hookCall{}
		for range 2 {
			call := s.called()
			calls[call.name] = call
		}
		return calls
	}
	one := failed("one", now())
	s.publish(one)
	first := byName()
	first["quick"].end <- nil
	two, three := failed("two", now()), failed("three", now())
	for _, n := range []*supervisor.Snapshot{two, three} {
		s.publish(n)
		call := s.called()
		assert.Equal(t, "quick", call.name)
		assert.Equal(t, n.ID+": failed, exit 3", call.Title)
		call.end <- nil
	}
	first["hangs"].end <- errors.New("it took too long")
	assert.Equal(t, "hangs: it took too long", testbed.Receive(t, s.hooks.ended, "what is wrong"))
	call := s.called()
	assert.Equal(t, "hangs several 2 sessions need attention", call.name+" "+call.Event+" "+call.Title)
	assert.Equal(t, "two", call.Sessions[0].Id)
	assert.Equal(t, "three", call.Sessions[1].Id)

	four := failed("four", now())
	s.publish(four)
	call4 := s.called()
	assert.Equal(t, "quick", call4.name)
	call4.end <- nil
	s.launch(one, two, three, four)
	again := byName()
	assert.Equal(t, "four", again["hangs"].Sessions[0].Id, "what it was not told")
	assert.Equal(t, "four", again["quick"].Sessions[0].Id, "rather twice than not at all")
}

// What systemd does not take over is tried again, with what has come meanwhile; or it is for the
// next daemon.
func TestHooks_RetryWhenSystemdDoesNotAnswer(t *testing.T) {
	s := newStage(t)
	s.hooks.install("ntfy")
	s.hooks.away = 1
	one, two := failed("one", now()), failed("two", now())
	s.publish(one)
	assert.Equal(t, "ntfy: systemd does not answer", testbed.Receive(t, s.hooks.ended, "what is wrong"))
	s.publish(two)
	call := s.called()
	assert.Equal(t, "2 sessions need attention", call.Title)
	call.end <- nil
	assert.Equal(t, "ntfy: <nil>", testbed.Receive(t, s.hooks.ended, "that it is over"))

	s.hooks.mu.Lock()
	s.hooks.away = 1
	s.hooks.mu.Unlock()
	three := failed("three", now())
	s.publish(three)
	testbed.Receive(t, s.hooks.ended, "what is wrong")
	s.launch(one, two, three)
	assert.Equal(t, "three: failed, exit 3", s.called().Title)
}

// What was wrong with a hook is over once it works, is gone, or somebody says that it is mended.
func TestHooks_FailureIsReportedUntilCleared(t *testing.T) {
	for name, c := range map[string]struct{ mend func(s *stage) }{
		"it works": {func(s *stage) {
			s.publish(failed("two", now()))
			s.called().end <- nil
		}},
		"it is gone": {func(s *stage) {
			s.hooks.install()
			s.publish(failed("two", now()))
		}},
		"the configuration is read again": {func(s *stage) { s.Configure(settings()) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.hooks.install("ntfy")
			s.publish(failed("one", now()))
			s.called().end <- errors.New("it exited with code 22")
			assert.Equal(t, "ntfy: it exited with code 22", testbed.Receive(t, s.hooks.ended, "what is wrong"))
			s.publish(asking("one", "", "", now()))
			require.NoError(t, s.SetEnabled(true)) // the end was taken note of
			c.mend(s)
			assert.Equal(t, "ntfy: <nil>", testbed.Receive(t, s.hooks.ended, "that it is over"))
		})
	}
}

// A burst calls no hook more than a few times.
func TestEvents_LimitsABurst(t *testing.T) {
	d := NewDesk(settings(), true, Memory{})
	var calls []int
	at := start
	for i := range 1000 {
		d.Set(failed(fmt.Sprintf("s%03d", i), at))
		all, next := d.News(at)
		for _, news := range all {
			calls = append(calls, len(news.About))
			d.Sent(news)
		}
		if i >= maxAlone {
			assert.Equal(t, start.Add(burstTime), next)
		}
		at = at.Add(time.Millisecond)
	}
	assert.Equal(t, []int{1, 1, 1, 1}, calls)
	d.Set(asking("s900", "", "", at)) // it was seen to
	all, next := d.News(start.Add(burstTime))
	require.Len(t, all, 1)
	assert.Equal(t, "995 sessions need attention", all[0].Title)
	assert.True(t, next.IsZero())
	d.Sent(all[0])
	all, next = d.News(start.Add(time.Hour))
	assert.Empty(t, all)
	assert.True(t, next.IsZero(), "nobody is woken")
}

// What somebody sees anyway is no news, nor is what is older than a day; and whether notifications
// are on does not matter.
func TestEvents_LeavesOutWhatTheUserSees(t *testing.T) {
	attached := func(n *supervisor.Snapshot) { n.Attached = true }
	for name, c := range map[string]struct {
		n       *supervisor.Snapshot
		watched bool
		news    int
	}{
		"nobody is attached":                 {failed("shop", start), false, 1},
		"somebody looks":                     {in(failed("shop", start), attached), true, 0},
		"somebody is attached, looks away":   {in(failed("shop", start), attached), false, 1},
		"it is older than a day":             {failed("shop", start.Add(-keptFor-time.Second)), false, 0},
		"it is not to be told":               {in(failed("shop", start), labelled("no")), false, 0},
		"the user did it":                    {in(failed("shop", start), func(n *supervisor.Snapshot) { n.ByWish = true }), false, 0},
		"it is what this session is told of": {in(failed("shop", start), labelled("failed")), false, 1},
	} {
		for _, on := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", ", on), func(t *testing.T) {
				d := NewDesk(settings(), on, Memory{})
				d.Set(c.n)
				for id, token := range d.Unsure() {
					all, _ := d.News(start)
					assert.Empty(t, all, "as long as it is not known who looks")
					d.Watched(id, token, c.watched)
				}
				all, next := d.News(start)
				assert.Len(t, all, c.news)
				assert.True(t, next.IsZero())
				again, _ := d.News(start)
				assert.Empty(t, again, "it is being told")
				d.Switch(true)
				if !on {
					assert.Empty(t, d.Look(start, nothingShown), "what was wanted while notifications were off")
				}
			})
		}
	}
}

// A hook that was busy may be told of a reboot together with other things: each session is what it
// is.
func TestEvents_MergesARebootWithOtherEvents(t *testing.T) {
	interrupted := &supervisor.Snapshot{ID: "infra", State: "suspended", Reason: "the machine went down", Interrupted: true, StateChanged: start}
	n := together([]*News{
		newsOfReboot([]*supervisor.Snapshot{interrupted}, "t", settings()), newsOf([]*item{{n: failed("shop", start), token: "s", since: start}}, settings()),
	}, settings(func(s *Settings) { s.Config.NotifyUrgency = config.Urgencies{"suspended": "critical", "failed": "low"} }))
	assert.Equal(t, Critical, n.Urgency, "of the suspended session")
	assert.Equal(t, "2 sessions need attention\ninfra: suspended\nshop: failed, exit 3", n.Title+"\n"+n.Body)
	assert.Equal(t, "several", n.Event)
}

// What a reboot has interrupted is told once, together.
func TestEvents_ReportsARebootOnce(t *testing.T) {
	suspended := func(id string) *supervisor.Snapshot {
		return &supervisor.Snapshot{ID: id, State: "suspended", Reason: "the machine went down", Interrupted: true, StateChanged: start}
	}
	d := NewDesk(settings(), false, Memory{})
	d.Set(suspended("shop"))
	d.Set(suspended("forum"))
	d.LoggedIn(start)
	all, _ := d.News(start)
	require.Len(t, all, 1)
	assert.Equal(t, "suspended: 2 sessions were suspended", all[0].Event+": "+all[0].Title)
	next := NewDesk(settings(), false, d.Memory())
	next.Set(suspended("shop"))
	next.Set(suspended("forum"))
	next.LoggedIn(start)
	again, _ := next.News(start)
	require.Len(t, again, 1, "the daemon ended before a hook had begun")
	next.Sent(again[0])
	again, _ = next.News(start)
	assert.Empty(t, again)
	last := NewDesk(settings(), false, next.Memory())
	last.Set(suspended("shop"))
	last.LoggedIn(start)
	again, _ = last.News(start)
	assert.Empty(t, again)
}

// Whoever is attached is told in the terminal, but not of the session that is shown there.
func TestTmuxMessages_SkipTheSessionTheyAreAbout(t *testing.T) {
	attached := func(n *supervisor.Snapshot) { n.Attached = true }
	s := newStage(t, off)
	s.publish(in(asking("looks", "", "", now()), attached))
	s.publish(asking("asks", "question", "May I?\x1b]0;x\a\n#{pid} #(id) %H", now()))
	assert.Equal(t, "looks <- asks: has a question: May I? ]0;x #{pid} #(id) %H", testbed.Receive(t, s.messages, "a message"))
	s.publish(in(failed("looks", now()), attached))
	s.publish(failed("shop", now()))
	assert.Equal(t, "looks <- shop: failed, exit 3", testbed.Receive(t, s.messages, "a message"))
	quiet := settings(off)
	quiet.Config.TmuxMessages = false
	s.Configure(quiet)
	s.hooks.install("ntfy")
	s.publish(failed("last", now()))
	for last := false; !last; { // alone, or with what came before
		call := s.called()
		last = slices.ContainsFunc(call.Sessions, func(told eventSession) bool { return told.Id == "last" })
		call.end <- nil
	}
	assert.Empty(t, s.messages)
}

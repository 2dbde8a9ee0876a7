package supervisor

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/clock"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/session"
)

// limited is session shop, whose agent has reached a usage limit that resets in an hour.
type limited struct {
	*shim
	until time.Time
}

// startLimited configures OnLimit=continue, and creates the session.
func (b *bed) startLimited(agent config.Agent) *limited {
	b.t.Helper()
	conf := config.Default()
	conf.OnLimit, conf.ContinueText = config.LimitContinue, "go on"
	agent.Name = "command"
	require.NoError(b.t, b.sup.Reload(conf, map[string]config.Agent{"command": agent}))
	s := &limited{b.withShim(), time.Now().Add(time.Hour)}
	s.send(shimwire.Message{
		Kind: shimwire.Hello, RunID: s.records.last("shop").Run.ID, SendsTyped: true,
		ShimPID: 11, AgentPID: 12, AgentStart: 120, Started: time.Now(), Since: time.Now(),
	})
	s.takeTrace()
	s.reportLimit()
	return s
}

// reportLimit has a hook of the agent report the limit.
func (s *limited) reportLimit() {
	s.t.Helper()
	require.NoError(s.t, s.sup.Report(s.t.Context(), "shop",
		Report{Activity: word.Idle, Reason: word.Limit, Message: "resets soon", Until: s.until}))
}

// typed has the shim report that somebody has typed now.
func (s *limited) typed() {
	s.t.Helper()
	s.send(shimwire.Message{Kind: shimwire.Typed, Since: time.Now(), SinceMonotonic: s.sup.loop.clocks.Monotonic()})
}

// after returns how long after the reset the session is continued; a negative time for never.
func (s *limited) after() time.Duration {
	s.t.Helper()
	at := s.snapshot().ContinueAt
	if at.IsZero() {
		return -1
	}
	return at.Sub(s.until)
}

// timers returns what was traced about the timer.
func (s *limited) timers() []string {
	return slices.DeleteFunc(s.takeTrace(), func(line string) bool { return !strings.Contains(line, "timer") })
}

func (s *limited) text() string {
	text, _ := s.system.texts.Swap("").(string)
	return text
}

func (s *limited) continueIfDue() error { return s.sup.ContinueAfterLimit(s.t.Context(), "shop", true) }

// TestLimit_IsContinuedAfterTheReset also checks that it is not continued again after that reset,
// if the agent then reports the same limit, but is after the next one.
func TestLimit_IsContinuedAfterTheReset(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startLimited(config.Agent{})
		snap := s.snapshot()
		assert.Equal(t, word.Limit, snap.Attention)
		assert.True(t, snap.AttentionUntil.Equal(s.until))
		delay := s.after()
		assert.GreaterOrEqual(t, delay, time.Duration(0))
		assert.Less(t, delay, 2*time.Minute)
		assert.Equal(t, []string{"0s timer for shop at " + snap.ContinueAt.UTC().Format(time.TimeOnly)}, s.timers())
		assert.Equal(t, NotWaiting, kindOf(s.continueIfDue()), "too early")

		<-time.After(time.Hour + delay)
		require.NoError(t, s.continueIfDue())
		assert.Equal(t, "go on", s.text())
		assert.Zero(t, s.snapshot().ContinueAt)
		assert.Equal(t, NotWaiting, kindOf(s.continueIfDue()), "it was continued")

		b.report(word.Working, "", "")
		s.reportLimit()
		assert.Zero(t, s.snapshot().ContinueAt, "the same reset")
		assert.True(t, b.records.last("shop").Continued.Equal(s.until))
		s.until = s.until.Add(5 * time.Hour)
		s.reportLimit()
		assert.NotZero(t, s.snapshot().ContinueAt)
		s.disconnect()
	})
}

// TestLimit_IsNotContinued if somebody else is active, or the agent has continued by itself.
func TestLimit_IsNotContinued(t *testing.T) {
	for name, happens := range map[string]func(t *testing.T, s *limited){
		"somebody has typed": func(_ *testing.T, s *limited) { s.typed() },
		"somebody has sent a text": func(t *testing.T, s *limited) {
			require.NoError(t, s.sup.Send(s.t.Context(), "shop", "mine", Input{Enter: true}))
			s.text()
		},
		"the agent works": func(_ *testing.T, s *limited) { s.report(word.Working, "", "") },
		"by the session's label": func(t *testing.T, s *limited) {
			require.NoError(t, s.sup.Label(s.t.Context(), "shop", map[string]string{config.OnLimitLabel: config.LimitNotify}))
		},
		"by the configuration": func(t *testing.T, s *limited) {
			require.NoError(t, s.sup.Reload(config.Default(), map[string]config.Agent{"command": {Name: "command"}}))
		},
		"it was stopped": func(_ *testing.T, s *limited) {
			s.call("stop", func(ctx context.Context) error { return s.sup.Stop(ctx, "shop", time.Second) })
			s.exit("shop", 0)
			s.endScope("shop")
		},
		"its agent has exited": func(_ *testing.T, s *limited) { s.exit("shop", 0) },
	} {
		t.Run(name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				s := b.startLimited(config.Agent{})
				require.NotZero(t, s.snapshot().ContinueAt)
				<-time.After(time.Minute)
				s.timers()
				happens(t, s)
				assert.Zero(t, s.snapshot().ContinueAt)
				assert.Equal(t, []string{"60s no timer for shop"}, s.timers())
				<-time.After(2 * time.Hour)
				assert.Equal(t, NotWaiting, kindOf(s.continueIfDue()))
				assert.Empty(t, s.text())
				s.disconnect()
			})
		})
	}
}

// TestLimit_DoesNotPrecedeTheAgent: an agent that continues by itself is given five minutes, unless
// it has ended.
func TestLimit_DoesNotPrecedeTheAgent(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startLimited(config.Agent{AutoContinue: true})
		assert.GreaterOrEqual(t, s.after(), 5*time.Minute)
		b.call("suspend", func(ctx context.Context) error { return b.sup.Suspend(ctx, "shop") })
		b.exit("shop", 0)
		b.endScope("shop")
		assert.Less(t, s.after(), 2*time.Minute)
		s.disconnect()
	})
}

// TestLimit_ResumesASuspendedSession, also if its record was read by a new daemon.
func TestLimit_ResumesASuspendedSession(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startLimited(config.Agent{ResumeCommand: []string{"true"}})
		at := s.snapshot().ContinueAt
		b.call("suspend", func(ctx context.Context) error { return b.sup.Suspend(ctx, "shop") })
		b.exit("shop", 0)
		b.endScope("shop")
		s.disconnect()
		require.Equal(t, "suspended", b.state("shop"))
		assert.True(t, at.Equal(s.snapshot().ContinueAt))
		assert.Empty(t, s.snapshot().Attention)
		b.system.start = runs
		<-time.After(2 * time.Hour)
		require.NoError(t, s.continueIfDue())
		assert.Equal(t, "running", b.state("shop"))
		assert.Equal(t, "go on", s.text())
		assert.Equal(t, uint32(2), s.snapshot().NRuns)
		assert.Zero(t, s.snapshot().ContinueAt)
	})
}

// TestLimit_IsKeptByAResumeAtLogin: the session is continued at the reset, although it was resumed
// before, unless somebody types then.
func TestLimit_IsKeptByAResumeAtLogin(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startLimited(config.Agent{ResumeCommand: []string{"true"}, AutoContinue: true})
		b.call("suspend", func(ctx context.Context) error { return b.sup.Suspend(ctx, "shop") })
		b.exit("shop", 0)
		b.endScope("shop")
		s.disconnect()
		b.system.start = func(p Plan, report func(session.Event)) error {
			scopeRuns(p, report)
			report(session.AgentStarted{
				Run: p.Spec.RunID, SendsTyped: true, Agent: session.Process{PID: 12, Start: 120}, At: time.Now(),
			})
			return nil
		}
		require.NoError(t, b.sup.Resume(b.t.Context(), "shop"))
		assert.Less(t, s.after(), 2*time.Minute, "the new agent does not know of the limit")
		assert.Empty(t, s.snapshot().Attention)
		e := b.sup.loop.sessions.byID["shop"]
		b.onLoop(func() {
			e.run.reports.typed(shimwire.Message{SinceMonotonic: clock.Monotonic()})
		})
		assert.Zero(t, s.snapshot().ContinueAt)
	})
}

// TestLimit_TimerIsSetAgain after systemd could not set it.
func TestLimit_TimerIsSetAgain(t *testing.T) {
	supervise(t, func(b *bed) {
		b.system.timerFails.Store(true)
		s := b.startLimited(config.Agent{})
		assert.Len(t, s.timers(), 1)
		b.system.timerFails.Store(false)
		<-time.After(time.Minute)
		assert.Len(t, s.timers(), 1)
		<-time.After(time.Minute)
		assert.Empty(t, s.timers())
		assert.Equal(t, 1, b.countLogged("cannot set the timer"))
		s.disconnect()
	})
}

// TestLimit_ClosesTheDialogFirst: a text would answer it.
func TestLimit_ClosesTheDialogFirst(t *testing.T) {
	for name, row := range map[string]struct {
		keys   []string
		closes bool
		want   string // a part of the error
	}{
		"the dialog closes":  {[]string{"2"}, true, ""},
		"the dialog remains": {[]string{"2"}, false, "still waits for the reset"},
		"no keys are known":  {nil, false, "no LimitKeys="},
	} {
		t.Run(name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				s := b.startLimited(config.Agent{LimitKeys: row.keys})
				dialog := shimwire.Message{
					Kind: shimwire.StatusReport, Source: word.Screen, Activity: word.Waiting, Reason: word.Limit,
					Text: "Limit reached", Until: s.until, Seq: 7, Since: time.Now(),
				}
				s.send(dialog)
				result := make(chan error, 1)
				go func() { result <- s.sup.ContinueAfterLimit(s.t.Context(), "shop", false) }()
				if row.closes {
					<-time.After(400 * time.Millisecond)
					s.send(shimwire.Message{Kind: shimwire.Idle, Seq: 8, Since: time.Now()})
					s.send(shimwire.Message{Kind: shimwire.StatusReport, Source: word.Screen, Seq: 9, Since: time.Now()})
				}
				err := <-result
				if row.want == "" {
					require.NoError(t, err)
					assert.Equal(t, "go on", s.text())
				} else {
					require.ErrorContains(t, err, row.want)
					assert.Empty(t, s.text())
					assert.Zero(t, s.snapshot().ContinueAt, "it is not tried again")
				}
				s.disconnect()
			})
		})
	}
}

// TestLimit_WithoutATimeIsNotContinued, and neither is one of an older shim, which does not report
// what is typed.
func TestLimit_WithoutATimeIsNotContinued(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startLimited(config.Agent{})
		s.until = time.Time{}
		s.reportLimit()
		assert.Equal(t, word.Limit, s.snapshot().Attention)
		assert.Zero(t, s.snapshot().AttentionUntil)
		assert.Zero(t, s.snapshot().ContinueAt)
		require.NoError(t, s.sup.ContinueAfterLimit(s.t.Context(), "shop", false), "a person may continue it")
		s.until = time.Now().Add(time.Hour)
		s.reportLimit()
		require.NotZero(t, s.snapshot().ContinueAt)
		b.onLoop(func() { b.sup.loop.sessions.byID["shop"].rec.Run.ShimSendsTyped = false })
		require.NoError(t, b.sup.Describe(b.t.Context(), "shop", "older"))
		assert.Zero(t, s.snapshot().ContinueAt)
		s.disconnect()
	})
}

// TestLimit_IsContinuedOnce although the timer and a person continue it at the same time.
func TestLimit_IsContinuedOnce(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startLimited(config.Agent{})
		<-time.After(2 * time.Hour)
		typing := make(chan struct{})
		b.system.typed = func() { <-typing }
		result := make(chan error, 1)
		go func() { result <- s.continueIfDue() }()
		<-time.After(time.Millisecond)
		assert.Equal(t, NotWaiting, kindOf(s.sup.ContinueAfterLimit(s.t.Context(), "shop", false)))
		close(typing)
		require.NoError(t, <-result)
		s.disconnect()
	})
}

// TestLimit_OverdueIsSpread: after the start of the machine, sessions whose limit has reset before
// are not continued all at once.
func TestLimit_OverdueIsSpread(t *testing.T) {
	var saved []*session.Session
	superviseExpiring(t, func() []*session.Session {
		for _, id := range []string{"a", "b", "c"} {
			began := time.Now().Add(-3 * time.Hour)
			saved = append(saved, &session.Session{
				ID: id, Agent: "command", Command: []string{"true"}, ResumeCommand: []string{"true"}, WorkingDirectory: "/",
				Created: began, NRuns: 1, Labels: map[string]string{config.OnLimitLabel: config.LimitContinue},
				Limit: session.Limit{Run: "run", Until: time.Now().Add(-time.Hour), At: began},
				Run:   &session.Run{ID: "run", BootID: "earlier", Started: began, Scope: session.ScopeActive, Shim: session.Alive},
			})
		}
		return saved
	}, func(a *expiryBed) {
		at := map[time.Time]bool{}
		for _, rec := range saved {
			snap, err := a.sup.Session(rec.ID)
			require.NoError(t, err)
			assert.Equal(t, "suspended", snap.State)
			assert.WithinRange(t, snap.ContinueAt, time.Now(), time.Now().Add(2*time.Minute))
			at[snap.ContinueAt] = true
		}
		assert.Len(t, at, len(saved))
		a.system.start = runs
		require.NoError(t, a.sup.ContinueAfterLimit(a.t.Context(), "a", true), "a timer that has started the daemon")
	})
}

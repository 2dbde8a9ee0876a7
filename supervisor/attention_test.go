package supervisor

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/inotify"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/session"
)

// running creates a session whose shim has told of its agent.
func (b *bed) running() *shim {
	b.t.Helper()
	s := b.withShim()
	s.hello()
	b.heard()
	return s
}

// wants is what a session wants attention for, who told it, and what the agent does.
type wants struct{ attention, source, activity string }

func (s *shim) wants() wants {
	s.t.Helper()
	synctest.Wait()
	n := s.snapshot()
	return wants{n.Attention, n.AttentionSource, n.Activity}
}

func (b *bed) report(activity, reason, message string) {
	b.t.Helper()
	require.NoError(b.t, b.sup.Report(b.t.Context(), "shop", Report{Activity: activity, Reason: reason, Message: message}))
}

func TestAReportIsSavedThenTold(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.running()
		b.call("report", func(ctx context.Context) error {
			return b.sup.Report(ctx, "shop", Report{Activity: "waiting", Reason: "permission", Message: "may I?"})
		})
		assert.Equal(t, []string{"0s save shop: running", "0s publish shop: running", "0s answer 1", "0s report: ok"}, b.heard())
		assert.Equal(t, wants{"permission", "report", "waiting"}, s.wants())
		assert.Equal(t, "may I?", s.snapshot().AttentionMessage)
		assert.Equal(t, "permission", b.records.last("shop").Attention().Reason, "another daemon knows it too")

		b.report("waiting", "permission", "may I?")
		assert.Empty(t, b.heard(), "said again it is nothing new")
		require.NoError(t, b.sup.Acknowledge(b.t.Context(), "shop"))
		assert.Equal(t, wants{"permission", "report", "waiting"}, s.wants(), "it is still asked")
		assert.True(t, s.snapshot().AttentionAcknowledged)
		assert.Equal(t, "may I?", s.snapshot().AttentionMessage)
		assert.True(t, b.records.last("shop").Attention().Acknowledged, "another daemon knows that a person has seen it")
		b.heard()
		require.NoError(t, b.sup.Acknowledge(b.t.Context(), "shop"))
		assert.Empty(t, b.heard(), "acknowledged once more, nothing changes")
		b.report("waiting", "permission", "may I?")
		assert.Equal(t, wants{"permission", "report", "waiting"}, s.wants())
		assert.False(t, s.snapshot().AttentionAcknowledged, "said after that it is asked again")
		b.report("working", "", "")
		assert.Equal(t, wants{"", "report", "working"}, s.wants())
		b.report("waiting", "", "")
		assert.Equal(t, wants{"question", "report", "waiting"}, s.wants(), "an agent that waits wants somebody")
		b.report("idle", "turn-ended", "")
		assert.Equal(t, wants{"turn-ended", "report", "idle"}, s.wants())
		s.hangUp()
	})
}

func TestReportsThatAreRefused(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.running()
		for _, row := range []struct {
			report Report
			kind   Kind
			says   string
		}{
			{Report{Activity: "dreaming"}, Invalid, `activity is "dreaming"`},
			{Report{Activity: "waiting", Reason: "failed"}, Invalid, `Reason is "failed"`},
			{Report{Activity: "working", Reason: "permission"}, Invalid, "Reason"},
			{Report{Activity: "idle", ConversationID: "--yolo"}, Invalid, "ConversationId"},
			{Report{Activity: "idle", Message: strings.Repeat("x", maxReportedText+1)}, OverLimit, "Message"},
		} {
			err := b.sup.Report(b.t.Context(), "shop", row.report)
			assert.Equal(t, row.kind, kindOf(err))
			require.ErrorContains(t, err, row.says)
		}
		assert.Equal(t, NoSuchSession, kindOf(b.sup.Report(b.t.Context(), "other", Report{Activity: "idle"})))
		assert.Equal(t, wants{"", "output", "working"}, s.wants())

		b.report("waiting", "question", strings.Repeat("é", shimwire.MaxText))
		message := s.snapshot().AttentionMessage
		assert.LessOrEqual(t, len(message), shimwire.MaxText)
		assert.True(t, utf8.ValidString(message) && strings.HasSuffix(message, "é…"))
		b.exit("shop", 0)
		require.Equal(t, "completed", b.state("shop"))
		assert.Equal(t, InvalidState, kindOf(b.sup.Report(b.t.Context(), "shop", Report{Activity: "idle"})))
		s.hangUp()
	})
}

// TestReportsAreLimited: an agent that cannot stop costs no more than what is told of it.
func TestReportsAreLimited(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.running()
		say := func(i int) error {
			return b.sup.Report(b.t.Context(), "shop", Report{Activity: []string{"working", "idle"}[i%2]})
		}
		for i := range reportBurst {
			require.NoError(t, say(i))
		}
		assert.Equal(t, OverLimit, kindOf(say(reportBurst)))
		require.NoError(t, say(reportBurst-1), "what is known already costs nothing")
		<-time.After(reportEvery)
		require.NoError(t, say(reportBurst))
		assert.Equal(t, OverLimit, kindOf(say(reportBurst+1)))
		s.hangUp()
	})
}

// TestReport_KeepsALine of the message, without what acts on a terminal.
func TestReport_KeepsALine(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.running()
		require.NoError(t, b.sup.Report(b.t.Context(), "shop", Report{Activity: session.Waiting, Message: "May I\n\u009b2J \u202eyes?\u200e\x1b]0;x\a"}))
		assert.Equal(t, "May I 2J yes? ]0;x", s.snapshot().AttentionMessage)
	})
}

func TestTheShimTellsWhatTheAgentSays(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.running()
		s.says(shimwire.Message{Kind: shimwire.StatusReport, Source: "bell", Reason: "bell", Since: time.Now(), Seq: 2})
		assert.Equal(t, []string{"0s publish shop: running"}, b.heard(), "which the shim would say again: it is not saved")
		assert.Equal(t, wants{"bell", "bell", "working"}, s.wants())
		s.says(shimwire.Message{Kind: shimwire.Idle, Since: time.Now(), Seq: 3})
		assert.Equal(t, wants{"bell", "bell", "waiting"}, s.wants())
		s.says(shimwire.Message{Kind: shimwire.StatusReport, Source: "notify", Text: "half\x00\xff \u009b31m\u202e", Since: time.Now(), Seq: 4})
		assert.Equal(t, "half \uFFFD 31m", s.snapshot().StatusText)
		require.NoError(t, b.sup.Acknowledge(b.t.Context(), "shop"))
		s.says(shimwire.Message{Kind: shimwire.StatusReport, Source: "bell", Reason: "bell", Since: time.Now(), Seq: 2})
		assert.Equal(t, wants{"", "output", "idle"}, s.wants(), "a shim that says it again has not rung again")
		for _, m := range []shimwire.Message{
			{Source: "report", Activity: "waiting"}, {Source: "gossip", Activity: "waiting"}, {Source: "notify", Activity: "dreaming"}, {Source: "notify", Reason: "failed"},
		} {
			m.Kind, m.Seq = shimwire.StatusReport, 9
			s.says(m)
			assert.Equal(t, wants{"", "output", "idle"}, s.wants(), "%v is not for it to say", m)
		}
		s.hangUp()
	})
}

func TestAnAgentThatSaysItselfWhenItIsReady(t *testing.T) {
	notifying := map[string]config.Agent{"command": {Name: "command", Type: config.TypeNotify}}
	supervise(t, func(b *bed) {
		require.NoError(t, b.sup.Reload(config.Default(), notifying))
		s := b.withShim()
		s.says(shimwire.Message{Kind: shimwire.Hello, RunID: b.records.last("shop").Run.ID, ShimPID: 11, AgentPID: 12, Started: time.Now(), Since: time.Now(), Seq: 1})
		assert.Equal(t, "starting", b.state("shop"))
		assert.NotContains(t, b.heard(), "0s create: ok")
		<-time.After(startTimeout + time.Second)
		s.says(shimwire.Message{Kind: shimwire.Ready, Since: time.Now()})
		assert.Equal(t, "running", b.state("shop"))
		assert.Contains(t, b.heard(), "31s create: ok")
		<-time.After(readyTimeout)
		assert.Equal(t, "running", b.state("shop"))
		s.hangUp()
	})
	supervise(t, func(b *bed) {
		require.NoError(t, b.sup.Reload(config.Default(), notifying))
		s := b.withShim()
		s.says(shimwire.Message{Kind: shimwire.Hello, RunID: b.records.last("shop").Run.ID, ShimPID: 11, AgentPID: 12, Started: time.Now(), Since: time.Now(), Seq: 1})
		<-time.After(readyTimeout)
		assert.Equal(t, "failed", b.state("shop"))
		assert.Equal(t, "its agent did not report that it is ready within 1m30s", s.snapshot().Reason)
		s.hangUp()
	})
	supervise(t, func(b *bed) { // while it has no workspace nothing is done to it; when that is back, it has its time again
		require.NoError(t, b.sup.Reload(config.Default(), notifying))
		s := b.withShim()
		s.says(shimwire.Message{Kind: shimwire.Hello, RunID: b.records.last("shop").Run.ID, ShimPID: 11, AgentPID: 12, Started: time.Now(), Since: time.Now(), Seq: 1})
		seen := func(gone bool) {
			b.meanwhile(func() { b.sup.apply(b.sup.sessions["shop"], session.WorkspaceSeen{Gone: gone}) })
		}
		seen(true)
		<-time.After(readyTimeout)
		assert.Equal(t, "orphaned", b.state("shop"))
		seen(false)
		assert.Equal(t, "starting", b.state("shop"))
		<-time.After(readyTimeout)
		assert.Equal(t, "failed", b.state("shop"))
		s.hangUp()
	})
}

// attach has somebody attach to the session's terminal, or detach, and inotify tell of what tmux does then.
func (s *shim) attach(there bool) {
	s.t.Helper()
	_ = s.sup.do(func() { s.world.attached = there })
	s.files.tell(s.sup.runtimeDir("shop"), "tmux", unix.IN_ATTRIB)
	synctest.Wait()
}

func TestWhoAttachesHasSeenIt(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.running()
		b.report("waiting", "permission", "")
		raised := s.snapshot().AttentionSince
		<-time.After(time.Minute)
		s.attach(true)
		assert.Equal(t, wants{"permission", "report", "waiting"}, s.wants())
		assert.True(t, s.snapshot().AttentionAcknowledged)
		assert.Equal(t, raised, s.snapshot().AttentionSince, "it has waited since it asked")
		b.report("waiting", "question", "")
		assert.Equal(t, "question", s.wants().attention)
		assert.False(t, s.snapshot().AttentionAcknowledged, "it may be in another window: whoever is attached need not be looking")
		s.attach(true)
		assert.False(t, s.snapshot().AttentionAcknowledged, "nobody has come")
		b.exit("shop", 0)
		assert.Equal(t, "completed", b.state("shop"))
		assert.Empty(t, s.wants().attention, "under somebody's eyes")
		s.hangUp()
	})
	supervise(t, func(b *bed) {
		s := b.running()
		b.exit("shop", 0)
		assert.Equal(t, "completed", s.wants().attention)
		s.attach(true)
		assert.Empty(t, s.wants().attention)
		b.empty("shop")
		assert.Empty(t, s.wants().attention)
		s.hangUp()
	})
}

// TestWhoAttachesUnheard: of who comes and goes while inotify loses what it has to tell.
func TestWhoAttachesUnheard(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.running()
		lost := func(there bool) {
			t.Helper()
			_ = s.sup.do(func() { s.world.attached = there })
			s.files.events <- inotify.Event{Watch: -1, Mask: unix.IN_Q_OVERFLOW}
			synctest.Wait()
		}
		b.report("waiting", "permission", "")
		lost(true)
		assert.True(t, s.snapshot().AttentionAcknowledged)
		assert.True(t, s.snapshot().Attached)
		b.exitUnseen("shop", 0)
		lost(false)
		assert.False(t, s.snapshot().Attached)
		assert.Equal(t, "completed", s.wants().attention, "nobody was there any more")
		s.hangUp()
	})
}

func TestInputAnswers(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.running()
		send := func(how Input) error { return b.sup.Send(b.t.Context(), "shop", "yes", how) }
		assert.Equal(t, NotWaiting, kindOf(send(Input{IfWaiting: true})))
		require.NoError(t, send(Input{}))
		assert.Empty(t, b.heard(), "who sends to an agent that asks nothing changes nothing")
		b.report("waiting", "permission", "")
		require.NoError(t, send(Input{IfWaiting: true, Enter: true}))
		assert.Equal(t, wants{"", "output", "working"}, s.wants())
		assert.Equal(t, NotWaiting, kindOf(send(Input{IfWaiting: true})), "it is answered once")
		b.report("waiting", "question", "")
		require.NoError(t, b.sup.Keys(b.t.Context(), "shop", []string{"y"}))
		assert.Equal(t, wants{"", "output", "working"}, s.wants())

		b.report("waiting", "question", "and now?")
		b.world.sent = func() { b.report("waiting", "permission", "asked meanwhile") }
		require.NoError(t, send(Input{}))
		assert.Equal(t, wants{"permission", "report", "waiting"}, s.wants(), "nobody has answered that")
		s.hangUp()
	})
}

// TestWhoTellsItselfWhatItDoesGoesOnAsking until it says that it was answered: a key that it did not take changes nothing. For a moment after an answer
// it is given no second one.
func TestWhoTellsItselfWhatItDoesGoesOnAsking(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.running()
		say := func(seq uint32, activity, reason string) {
			s.says(shimwire.Message{Kind: shimwire.StatusReport, Source: shimwire.OSC7501, Activity: activity, Reason: reason, Since: time.Now(), Seq: seq})
		}
		send := func() error { return b.sup.Send(b.t.Context(), "shop", "yes", Input{IfWaiting: true}) }
		asks := wants{"permission", "osc7501", "waiting"}
		say(2, "waiting", "permission")
		require.NoError(t, send())
		assert.Equal(t, asks, s.wants())
		assert.Equal(t, NotWaiting, kindOf(send()))
		<-time.After(answerTime)
		require.NoError(t, send(), "it has not taken the first one")
		say(3, "working", "")
		assert.Equal(t, wants{"", "osc7501", "working"}, s.wants())
		say(4, "waiting", "permission")
		require.NoError(t, send(), "another question")
		s.hangUp()
	})
}

// idling makes agents be suspended after an hour.
func (b *bed) idling(agent config.Agent) {
	b.t.Helper()
	conf := config.Default()
	conf.IdleSuspend = time.Hour
	require.NoError(b.t, b.sup.Reload(conf, map[string]config.Agent{"command": agent}))
}

// alarm is what the alarm is set to.
func (b *bed) alarm() (at time.Time) {
	b.t.Helper()
	require.NoError(b.t, b.sup.do(func() { at = b.sup.nextExpiry }))
	return at
}

func TestAnAgentThatIsIdleForTooLongIsSuspended(t *testing.T) {
	supervise(t, func(b *bed) {
		b.idling(config.Agent{Name: "command", IdleSuspend: 10 * time.Minute})
		s := b.running()
		assert.Zero(t, b.alarm(), "it works")
		idle := time.Now()
		s.says(shimwire.Message{Kind: shimwire.Idle, Since: idle, Seq: 2})
		assert.True(t, b.alarm().Equal(idle.Add(10*time.Minute)))
		b.sup.AlarmRang()
		assert.Equal(t, "running", b.state("shop"), "it went off early")

		<-time.After(10 * time.Minute)
		s.attach(true)
		b.sup.AlarmRang()
		assert.Equal(t, "running", b.state("shop"), "somebody looks at it")
		s.attach(false)
		b.sup.AlarmRang()
		assert.Equal(t, "running", b.state("shop"), "and has just left")
		b.report("waiting", "permission", "")
		assert.Zero(t, b.alarm(), "it waits for an answer")
		b.report("waiting", "turn-ended", "")
		assert.NotZero(t, b.alarm())
		<-time.After(10 * time.Minute)
		b.sup.AlarmRang()
		assert.Equal(t, "stopping", b.state("shop"))
		b.exit("shop", 0)
		b.empty("shop")
		assert.Equal(t, "suspended", b.state("shop"))
		assert.Equal(t, "its agent was idle for 10m0s", s.snapshot().Reason)
		s.hangUp()

		b.world.start = nil // the next run is there at once
		b.heard()
		require.NoError(t, b.sup.Send(b.t.Context(), "shop", "go on", Input{}), "which resumes it")
		assert.Equal(t, "running", b.state("shop"))
		assert.EqualValues(t, 2, s.snapshot().NRuns)
	})
}

// In the bubble the time of day goes on, and that is all that tells: a clock that is set forward, and a machine that sleeps, let the other clocks stand still.
func TestIdleTimeIsTimeAwake(t *testing.T) {
	for name, passes := range map[string]func(b *bed, d time.Duration){
		"the clock is set forward": func(b *bed, d time.Duration) { b.set += d },
		"the machine sleeps":       func(b *bed, d time.Duration) { b.slept += d },
	} {
		t.Run(name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				b.idling(config.Agent{Name: "command", IdleSuspend: 10 * time.Minute})
				s := b.running()
				s.says(shimwire.Message{Kind: shimwire.Idle, Since: time.Now(), SinceMonotonic: b.sup.Monotonic() - 3*time.Second, Seq: 2})
				assert.True(t, b.alarm().Equal(time.Now().Add(10*time.Minute-3*time.Second)))

				<-time.After(time.Hour)
				passes(b, time.Hour)
				b.sup.AlarmRang()
				assert.Equal(t, "running", b.state("shop"))
				assert.True(t, b.alarm().Equal(time.Now().Add(10*time.Minute-3*time.Second)), "it has all its time yet")
				<-time.After(10 * time.Minute)
				b.sup.AlarmRang()
				assert.Equal(t, "stopping", b.state("shop"))
				b.exit("shop", 0)
				b.empty("shop")
				s.hangUp()
			})
		})
	}
}

func TestWhatIsNotSuspendedForBeingIdle(t *testing.T) {
	for name, agent := range map[string]config.Agent{
		"an agent that could not go on, unless that is meant": {Name: "command"},
		"one that may be idle for ever":                       {Name: "command", IdleSuspend: config.Infinity},
	} {
		t.Run(name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				b.idling(agent)
				s := b.running()
				s.says(shimwire.Message{Kind: shimwire.Idle, Since: time.Now(), Seq: 2})
				assert.Zero(t, b.alarm())
				s.hangUp()
			})
		})
	}
}

// TestAttachCommand_SetsTheDetachKey of the configuration: an older version of Corral may have started the session, without one.
func TestAttachCommand_SetsTheDetachKey(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.sup.Config.DetachKey = "C-q"
		b.heard()
		_, err := b.sup.AttachCommand(b.t.Context(), "shop")
		require.NoError(t, err)
		assert.Contains(t, b.heard(), "0s set the detach key of shop: C-q")
	})
}

func TestASuspendedSessionIsResumedForInput(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.call("suspend", func(ctx context.Context) error { return b.sup.Suspend(ctx, "shop") })
		b.heard()
		b.exit("shop", 0)
		b.empty("shop")
		require.Equal(t, "suspended", b.state("shop"))
		assert.Equal(t, InvalidState, kindOf(b.sup.Send(b.t.Context(), "shop", "x", Input{})), "who has suspended it has meant it")
		_, err := b.sup.AttachCommand(b.t.Context(), "shop")
		assert.Equal(t, InvalidState, kindOf(err))
		require.NoError(t, b.sup.Send(b.t.Context(), "shop", "x", Input{Resume: true, IfWaiting: true}))
		assert.Equal(t, "running", b.state("shop"))
		assert.Contains(t, b.heard(), "0s start shop")
	})
}

// TestInputDuringASuspension for being idle is for the agent that is resumed after it: the one that ends takes none. Whoever comes while it is resumed waits.
func TestInputDuringASuspension(t *testing.T) {
	supervise(t, func(b *bed) {
		b.idling(config.Agent{Name: "command", IdleSuspend: 10 * time.Minute})
		s := b.running()
		s.says(shimwire.Message{Kind: shimwire.Idle, Since: time.Now(), Seq: 2})
		<-time.After(10 * time.Minute)
		b.sup.AlarmRang()
		require.Equal(t, "stopping", b.state("shop"))
		taken := 0
		b.world.sent = func() { taken++ }
		b.call("send", func(ctx context.Context) error { return b.sup.Send(ctx, "shop", "go on", Input{}) })
		b.call("attach", func(ctx context.Context) error { _, err := b.sup.AttachCommand(ctx, "shop"); return err })
		b.heard()
		assert.Zero(t, taken)
		begin := make(chan struct{})
		b.world.start = func(p Plan, tell func(session.Event)) error { <-begin; return runs(p, tell) }
		b.exit("shop", 0)
		b.empty("shop")
		s.hangUp()
		require.Equal(t, "starting", b.state("shop"))
		b.call("another", func(ctx context.Context) error { _, err := b.sup.AttachCommand(ctx, "shop"); return err })
		close(begin)
		<-time.After(calmTime)
		told := strings.Join(b.heard(), "\n")
		for _, answer := range []string{"send: ok", "attach: ok", "another: ok"} {
			assert.Contains(t, told, answer)
		}
		assert.Equal(t, 1, taken)
		assert.EqualValues(t, 2, s.snapshot().NRuns)
	})
}

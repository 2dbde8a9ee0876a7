package supervisor

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/session"
)

// startWithShim creates a session whose shim has connected and reported its agent.
func (b *bed) startWithShim() *shim {
	b.t.Helper()
	s := b.withShim()
	s.hello()
	b.takeTrace()
	return s
}

// attentionState is why a session needs attention, the source that reported it, and what the agent
// does.
type attentionState struct{ attention, source, activity string }

func (s *shim) attention() attentionState {
	s.t.Helper()
	synctest.Wait()
	n := s.snapshot()
	return attentionState{n.Attention, n.AttentionSource, n.Activity}
}

func (b *bed) report(activity, reason, message string) {
	b.t.Helper()
	r := Report{Activity: activity, Reason: reason, Message: message}
	require.NoError(b.t, b.sup.Report(b.t.Context(), "shop", r))
}

func TestReport_IsSavedThenPublished(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startWithShim()
		b.call("report", func(ctx context.Context) error {
			return b.sup.Report(ctx, "shop", Report{Activity: "waiting", Reason: "permission", Message: "may I?"})
		})
		assert.Equal(t,
			[]string{"0s save shop: running", "0s publish shop: running", "0s answer 1", "0s report: ok"}, b.takeTrace())
		assert.Equal(t, attentionState{"permission", "report", "waiting"}, s.attention())
		assert.Equal(t, "may I?", s.snapshot().AttentionMessage)
		assert.Equal(t, "permission", b.records.last("shop").Attention().Reason, "it is in the record")

		b.report("waiting", "permission", "may I?")
		assert.Empty(t, b.takeTrace(), "a repeated report is not new")
		require.NoError(t, b.sup.Acknowledge(b.t.Context(), "shop"))
		assert.Equal(t, attentionState{"permission", "report", "waiting"}, s.attention(), "the request remains")
		assert.True(t, s.snapshot().AttentionAcknowledged)
		assert.Equal(t, "may I?", s.snapshot().AttentionMessage)
		assert.True(t, b.records.last("shop").Attention().Acknowledged, "that is in the record, too")
		b.takeTrace()
		require.NoError(t, b.sup.Acknowledge(b.t.Context(), "shop"))
		assert.Empty(t, b.takeTrace(), "acknowledging it again changes nothing")
		b.report("waiting", "permission", "may I?")
		assert.Equal(t, attentionState{"permission", "report", "waiting"}, s.attention())
		assert.False(t, s.snapshot().AttentionAcknowledged, "a report after that is a new request")
		b.report("working", "", "")
		assert.Equal(t, attentionState{"", "report", "working"}, s.attention())
		b.report("waiting", "", "")
		assert.Equal(t, attentionState{"question", "report", "waiting"}, s.attention(), "an agent that waits needs attention")
		b.report("idle", "turn-ended", "")
		assert.Equal(t, attentionState{"turn-ended", "report", "idle"}, s.attention())
		s.disconnect()
	})
}

func TestReport_RefusesInvalidOnes(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startWithShim()
		for _, row := range []struct {
			report Report
			kind   Kind
			text   string
		}{
			{Report{Activity: "dreaming"}, Invalid, `invalid activity "dreaming"`},
			{Report{Activity: "waiting", Reason: "failed"}, Invalid, `invalid Reason "failed"`},
			{Report{Activity: "working", Reason: "permission"}, Invalid, "Reason"},
			{Report{Activity: "idle", ConversationID: "--yolo"}, Invalid, "ConversationId"},
			{Report{Activity: "idle", Message: strings.Repeat("x", maxReportedText+1)}, OverLimit, "Message"},
		} {
			err := b.sup.Report(b.t.Context(), "shop", row.report)
			assert.Equal(t, row.kind, kindOf(err))
			require.ErrorContains(t, err, row.text)
		}
		assert.Equal(t, NoSuchSession, kindOf(b.sup.Report(b.t.Context(), "other", Report{Activity: "idle"})))
		assert.Equal(t, attentionState{"", "output", "working"}, s.attention())

		b.report("waiting", "question", strings.Repeat("é", shimwire.MaxText))
		message := s.snapshot().AttentionMessage
		assert.LessOrEqual(t, len(message), shimwire.MaxText)
		assert.True(t, utf8.ValidString(message) && strings.HasSuffix(message, "é…"))
		b.exit("shop", 0)
		require.Equal(t, "completed", b.state("shop"))
		assert.Equal(t, InvalidState, kindOf(b.sup.Report(b.t.Context(), "shop", Report{Activity: "idle"})))
		s.disconnect()
	})
}

// TestReport_RateIsLimited: reports that change nothing do not count. The last one is never lost.
func TestReport_RateIsLimited(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startWithShim()
		report := func(i int) error {
			return b.sup.Report(b.t.Context(), "shop", Report{Activity: []string{"working", "idle"}[i%2]})
		}
		for i := range reportBurst {
			require.NoError(t, report(i))
		}
		assert.Equal(t, OverLimit, kindOf(report(reportBurst)))
		require.NoError(t, report(reportBurst-1), "a repeated report does not count")
		<-time.After(reportEvery)
		require.NoError(t, report(reportBurst))
		assert.Equal(t, OverLimit, kindOf(report(reportBurst+1)))
		for range 100 {
			_ = report(reportBurst)
			assert.Equal(t, OverLimit, kindOf(report(reportBurst+1)))
		}
		activity := func() string {
			snap, err := b.sup.Session("shop")
			require.NoError(t, err)
			return snap.Activity
		}
		assert.Equal(t, "working", activity())
		<-time.After(reportEvery)
		synctest.Wait()
		assert.Equal(t, "idle", activity(), "the last one is delayed")
		assert.Equal(t, OverLimit, kindOf(b.sup.Report(b.t.Context(), "shop", Report{Activity: "waiting"})))
		b.exit("shop", 0)
		<-time.After(time.Minute)
		s.disconnect()
	})
}

// TestReport_KeepsALine: the message becomes one line without control sequences for a terminal.
func TestReport_KeepsALine(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startWithShim()
		require.NoError(t, b.sup.Report(b.t.Context(), "shop", Report{
			Activity: word.Waiting, Message: "May I\n\u009b2J \u202eyes?\u200e\x1b]0;x\a",
		}))
		assert.Equal(t, "May I 2J yes? ]0;x", s.snapshot().AttentionMessage)
	})
}

func TestShim_ForwardsStatusReports(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startWithShim()
		s.send(shimwire.Message{Kind: shimwire.StatusReport, Source: "bell", Reason: "bell", Since: time.Now(), Seq: 2})
		assert.Equal(t, []string{"0s publish shop: running"}, b.takeTrace(), "not saved: the shim would report it again")
		assert.Equal(t, attentionState{"bell", "bell", "working"}, s.attention())
		s.send(shimwire.Message{Kind: shimwire.Idle, Since: time.Now(), Seq: 3})
		assert.Equal(t, attentionState{"bell", "bell", "waiting"}, s.attention())
		s.send(shimwire.Message{
			Kind: shimwire.StatusReport, Source: "notify", Text: "half\x00\xff \u009b31m\u202e", Since: time.Now(), Seq: 4,
		})
		assert.Equal(t, "half \uFFFD 31m", s.snapshot().StatusText)
		require.NoError(t, b.sup.Acknowledge(b.t.Context(), "shop"))
		s.send(shimwire.Message{Kind: shimwire.StatusReport, Source: "bell", Reason: "bell", Since: time.Now(), Seq: 2})
		assert.Equal(t, attentionState{"", "output", "idle"}, s.attention(), "a repeated message is not another bell")
		for _, m := range []shimwire.Message{
			{Source: "report", Activity: "waiting"}, {Source: "gossip", Activity: "waiting"},
			{Source: "notify", Activity: "dreaming"}, {Source: "notify", Reason: "failed"},
		} {
			m.Kind, m.Seq = shimwire.StatusReport, 9
			s.send(m)
			assert.Equal(t, attentionState{"", "output", "idle"}, s.attention(), "a shim cannot report %v", m)
		}
		s.disconnect()
	})
}

// introduce makes the shim report the agent that it has executed, which is not ready yet.
func (s *shim) introduce() {
	s.t.Helper()
	s.send(shimwire.Message{
		Kind: shimwire.Hello, RunID: s.records.last("shop").Run.ID, ShimPID: 11, AgentPID: 12,
		Started: time.Now(), Since: time.Now(), Seq: 1,
	})
}

func TestTypeNotify_StartWaitsForReady(t *testing.T) {
	notifying := map[string]config.Agent{"command": {Name: "command", Type: config.TypeNotify}}
	supervise(t, func(b *bed) {
		require.NoError(t, b.sup.Reload(config.Default(), notifying))
		s := b.withShim()
		s.introduce()
		assert.Equal(t, "starting", b.state("shop"))
		assert.NotContains(t, b.takeTrace(), "0s create: ok")
		<-time.After(systemdTimeout + time.Second)
		s.send(shimwire.Message{Kind: shimwire.Ready, Since: time.Now()})
		assert.Equal(t, "running", b.state("shop"))
		assert.Contains(t, b.takeTrace(), "31s create: ok")
		<-time.After(session.ReadyTimeout)
		assert.Equal(t, "running", b.state("shop"))
		s.disconnect()
	})
	supervise(t, func(b *bed) {
		require.NoError(t, b.sup.Reload(config.Default(), notifying))
		s := b.withShim()
		s.introduce()
		<-time.After(session.ReadyTimeout)
		assert.Equal(t, "failed", b.state("shop"))
		assert.Equal(t, "its agent did not report that it is ready within 1m30s", s.snapshot().Reason)
		s.disconnect()
	})
	// While the workspace is missing, the time limit does not apply. It begins anew once the workspace
	// is back.
	supervise(t, func(b *bed) {
		require.NoError(t, b.sup.Reload(config.Default(), notifying))
		s := b.withShim()
		s.introduce()
		seen := func(gone bool) {
			b.onLoop(func() { b.sup.loop.sessions.byID["shop"].apply(session.WorkspaceObserved{Gone: gone}) })
		}
		seen(true)
		<-time.After(session.ReadyTimeout)
		assert.Equal(t, "orphaned", b.state("shop"))
		seen(false)
		assert.Equal(t, "starting", b.state("shop"))
		<-time.After(session.ReadyTimeout)
		assert.Equal(t, "failed", b.state("shop"))
		s.disconnect()
	})
}

// attach attaches a client to the session's terminal, or detaches it, and makes inotify report what
// tmux does then.
func (s *shim) attach(attached bool) {
	s.t.Helper()
	_ = s.sup.loop.do(func() { s.system.attached = attached })
	s.changed("shop", "tmux", fsnotify.Chmod)
	synctest.Wait()
}

func TestAttach_AcknowledgesAttention(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startWithShim()
		b.report("waiting", "permission", "")
		raised := s.snapshot().AttentionSince
		<-time.After(time.Minute)
		s.attach(true)
		assert.Equal(t, attentionState{"permission", "report", "waiting"}, s.attention())
		assert.True(t, s.snapshot().AttentionAcknowledged)
		assert.Equal(t, raised, s.snapshot().AttentionSince, "the agent has waited since its request")
		b.report("waiting", "question", "")
		assert.Equal(t, "question", s.attention().attention)
		assert.False(t, s.snapshot().AttentionAcknowledged, "an attached terminal may be out of sight")
		s.attach(true)
		assert.False(t, s.snapshot().AttentionAcknowledged, "no client attached meanwhile")
		b.exit("shop", 0)
		assert.Equal(t, "completed", b.state("shop"))
		assert.Empty(t, s.attention().attention, "an attached client has seen it")
		s.disconnect()
	})
	supervise(t, func(b *bed) {
		s := b.startWithShim()
		b.exit("shop", 0)
		assert.Equal(t, "completed", s.attention().attention)
		s.attach(true)
		assert.Empty(t, s.attention().attention)
		b.endScope("shop")
		assert.Empty(t, s.attention().attention)
		s.disconnect()
	})
}

// TestAttach_IsDetectedAfterInotifyOverflow: clients attach and detach while inotify loses events.
func TestAttach_IsDetectedAfterInotifyOverflow(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startWithShim()
		lost := func(attached bool) {
			t.Helper()
			_ = s.sup.loop.do(func() { s.system.attached = attached })
			s.paths.lost <- struct{}{}
			synctest.Wait()
		}
		b.report("waiting", "permission", "")
		lost(true)
		assert.True(t, s.snapshot().AttentionAcknowledged)
		assert.True(t, s.snapshot().Attached)
		b.exitWithoutEvent("shop", 0)
		lost(false)
		assert.False(t, s.snapshot().Attached)
		assert.Equal(t, "completed", s.attention().attention, "no client was attached when it completed")
		s.disconnect()
	})
}

func TestInput_AnswersTheQuestion(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startWithShim()
		send := func(how Input) error { return b.sup.Send(b.t.Context(), "shop", "yes", how) }
		assert.Equal(t, NotWaiting, kindOf(send(Input{IfWaiting: true})))
		require.NoError(t, send(Input{}))
		assert.Empty(t, b.takeTrace(), "without a request, input changes nothing")
		b.report("waiting", "permission", "")
		require.NoError(t, send(Input{IfWaiting: true, Enter: true}))
		assert.Equal(t, attentionState{"", "output", "working"}, s.attention())
		assert.Equal(t, NotWaiting, kindOf(send(Input{IfWaiting: true})), "the request was answered already")
		b.report("waiting", "question", "")
		require.NoError(t, b.sup.Keys(b.t.Context(), "shop", []string{"y"}))
		assert.Equal(t, attentionState{"", "output", "working"}, s.attention())

		b.report("waiting", "question", "and now?")
		b.system.typed = func() { b.report("waiting", "permission", "asked meanwhile") }
		require.NoError(t, send(Input{}))
		assert.Equal(t, attentionState{"permission", "report", "waiting"}, s.attention(), "the newer request is not answered")
		s.disconnect()
	})
}

// TestInput_OSC7501AgentAsksUntilItReportsTheAnswer: a key that the agent does not read changes
// nothing. For a moment after an answer, it is sent no second one.
func TestInput_OSC7501AgentAsksUntilItReportsTheAnswer(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startWithShim()
		send := func() error { return b.sup.Send(b.t.Context(), "shop", "yes", Input{IfWaiting: true}) }
		asks := attentionState{"permission", "osc7501", "waiting"}
		s.reportStatus(2, "waiting", "permission")
		require.NoError(t, send())
		assert.Equal(t, asks, s.attention())
		assert.Equal(t, NotWaiting, kindOf(send()))
		<-time.After(answerTimeout)
		require.NoError(t, send(), "it has not read the first answer")
		s.reportStatus(3, "working", "")
		assert.Equal(t, attentionState{"", "osc7501", "working"}, s.attention())
		s.reportStatus(4, "waiting", "permission")
		require.NoError(t, send(), "another question")
		s.disconnect()
	})
}

// withIdleSuspend configures that agents are suspended after an hour, and the definition of the
// bed's agent.
func (b *bed) withIdleSuspend(agent config.Agent) {
	b.t.Helper()
	conf := config.Default()
	conf.IdleSuspend = time.Hour
	require.NoError(b.t, b.sup.Reload(conf, map[string]config.Agent{"command": agent}))
}

// alarmTime returns the time to which the alarm is set.
func (b *bed) alarmTime() (at time.Time) {
	b.t.Helper()
	require.NoError(b.t, b.sup.loop.do(func() { at = b.sup.loop.expiry.alarmTime }))
	return at
}

func TestIdleSuspend_SuspendsAfterTheLimit(t *testing.T) {
	supervise(t, func(b *bed) {
		b.withIdleSuspend(config.Agent{Name: "command", IdleSuspend: 10 * time.Minute})
		s := b.startWithShim()
		assert.Zero(t, b.alarmTime(), "the agent is working")
		idle := time.Now()
		s.send(shimwire.Message{Kind: shimwire.Idle, Since: idle, Seq: 2})
		assert.True(t, b.alarmTime().Equal(idle.Add(10*time.Minute)))
		b.sup.AlarmRang()
		assert.Equal(t, "running", b.state("shop"), "the alarm was early")

		<-time.After(10 * time.Minute)
		s.attach(true)
		b.sup.AlarmRang()
		assert.Equal(t, "running", b.state("shop"), "a client is attached")
		s.attach(false)
		b.sup.AlarmRang()
		assert.Equal(t, "running", b.state("shop"), "the client has just detached")
		b.report("waiting", "permission", "")
		assert.Zero(t, b.alarmTime(), "the agent waits for an answer")
		b.report("waiting", "turn-ended", "")
		assert.NotZero(t, b.alarmTime())
		<-time.After(10 * time.Minute)
		b.sup.AlarmRang()
		assert.Equal(t, "stopping", b.state("shop"))
		b.exit("shop", 0)
		b.endScope("shop")
		assert.Equal(t, "suspended", b.state("shop"))
		assert.Equal(t, "its agent was idle for 10m0s", s.snapshot().Reason)
		s.disconnect()

		b.system.start = nil // the next run starts at once
		b.takeTrace()
		require.NoError(t, b.sup.Send(b.t.Context(), "shop", "continue", Input{}), "sending resumes it")
		assert.Equal(t, "running", b.state("shop"))
		assert.EqualValues(t, 2, s.snapshot().NRuns)
	})
}

// TestIdleSuspend_CountsOnlyTimeAwake: the fake wall clock always advances. If the clock is set
// forward or the machine sleeps, CLOCK_MONOTONIC stands still meanwhile.
func TestIdleSuspend_CountsOnlyTimeAwake(t *testing.T) {
	for name, skip := range map[string]func(b *bed, d time.Duration){
		"the clock is set forward": func(b *bed, d time.Duration) { b.clockOffset += d },
		"the machine sleeps":       func(b *bed, d time.Duration) { b.slept += d },
	} {
		t.Run(name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				b.withIdleSuspend(config.Agent{Name: "command", IdleSuspend: 10 * time.Minute})
				s := b.startWithShim()
				s.send(shimwire.Message{
					Kind: shimwire.Idle, Since: time.Now(), SinceMonotonic: b.sup.loop.clocks.Monotonic() - 3*time.Second, Seq: 2,
				})
				assert.True(t, b.alarmTime().Equal(time.Now().Add(10*time.Minute-3*time.Second)))

				<-time.After(time.Hour)
				skip(b, time.Hour)
				b.sup.AlarmRang()
				assert.Equal(t, "running", b.state("shop"))
				assert.True(t, b.alarmTime().Equal(time.Now().Add(10*time.Minute-3*time.Second)), "none of its time has passed")
				<-time.After(10 * time.Minute)
				b.sup.AlarmRang()
				assert.Equal(t, "stopping", b.state("shop"))
				b.exit("shop", 0)
				b.endScope("shop")
				s.disconnect()
			})
		})
	}
}

func TestIdleSuspend_Exceptions(t *testing.T) {
	for name, agent := range map[string]config.Agent{
		"an agent that cannot be resumed, by the general setting": {Name: "command"},
		"an agent that may be idle forever":                       {Name: "command", IdleSuspend: config.Infinity},
	} {
		t.Run(name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				b.withIdleSuspend(agent)
				s := b.startWithShim()
				s.send(shimwire.Message{Kind: shimwire.Idle, Since: time.Now(), Seq: 2})
				assert.Zero(t, b.alarmTime())
				s.disconnect()
			})
		})
	}
}

// TestAttachCommand_SetsTheDetachKey sets the configured key: an older version of Corral may have
// started the session without one.
func TestAttachCommand_SetsTheDetachKey(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.sup.loop.settings.config.DetachKey = "C-q"
		b.takeTrace()
		_, err := b.sup.AttachCommand(b.t.Context(), "shop")
		require.NoError(t, err)
		assert.Contains(t, b.takeTrace(), "0s set the detach key of shop: C-q")
	})
}

func TestSend_ResumesASuspendedSession(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.call("suspend", func(ctx context.Context) error { return b.sup.Suspend(ctx, "shop") })
		b.takeTrace()
		b.exit("shop", 0)
		b.endScope("shop")
		require.Equal(t, "suspended", b.state("shop"))
		assert.Equal(t, InvalidState, kindOf(b.sup.Send(b.t.Context(), "shop", "x", Input{})),
			"it was suspended on request")
		_, err := b.sup.AttachCommand(b.t.Context(), "shop")
		assert.Equal(t, InvalidState, kindOf(err))
		require.NoError(t, b.sup.Send(b.t.Context(), "shop", "x", Input{Resume: true, IfWaiting: true}))
		assert.Equal(t, "running", b.state("shop"))
		assert.Contains(t, b.takeTrace(), "0s start shop")
	})
}

// TestIdleSuspend_InputIsForTheResumedAgent: input during the suspension is sent to the agent after
// it is resumed, not to the one that is stopping. Clients that attach during the resume wait.
func TestIdleSuspend_InputIsForTheResumedAgent(t *testing.T) {
	supervise(t, func(b *bed) {
		b.withIdleSuspend(config.Agent{Name: "command", IdleSuspend: 10 * time.Minute})
		s := b.startWithShim()
		s.send(shimwire.Message{Kind: shimwire.Idle, Since: time.Now(), Seq: 2})
		<-time.After(10 * time.Minute)
		b.sup.AlarmRang()
		require.Equal(t, "stopping", b.state("shop"))
		sent := 0
		b.system.typed = func() { sent++ }
		b.call("send", func(ctx context.Context) error { return b.sup.Send(ctx, "shop", "continue", Input{}) })
		b.call("attach", func(ctx context.Context) error { _, err := b.sup.AttachCommand(ctx, "shop"); return err })
		b.takeTrace()
		assert.Zero(t, sent)
		release := make(chan struct{})
		b.system.start = func(p Plan, post func(session.Event)) error { <-release; return runs(p, post) }
		b.exit("shop", 0)
		b.endScope("shop")
		s.disconnect()
		require.Equal(t, "starting", b.state("shop"))
		b.call("another", func(ctx context.Context) error { _, err := b.sup.AttachCommand(ctx, "shop"); return err })
		close(release)
		<-time.After(quietTimeout)
		recorded := strings.Join(b.takeTrace(), "\n")
		for _, answer := range []string{"send: ok", "attach: ok", "another: ok"} {
			assert.Contains(t, recorded, answer)
		}
		assert.Equal(t, 1, sent)
		assert.EqualValues(t, 2, s.snapshot().NRuns)
	})
}

package supervisor

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/supervisor/session"
)

// The tests in this file request an operation while another one is pending.

// startThenRestart creates a running session and calls Restart for it.
func (b *bed) startThenRestart() {
	b.t.Helper()
	b.start("shop")
	b.call("restart", func(ctx context.Context) error { return b.sup.Restart(ctx, "shop") })
	assert.Contains(b.t, b.takeTrace(), "0s terminate shop")
}

func TestRestart_IsCanceledByAStop(t *testing.T) {
	supervise(t, func(b *bed) {
		b.startThenRestart()
		b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) })
		assert.Contains(t, b.takeTrace(), `0s restart: session "shop" was stopped meanwhile`)
		b.exit("shop", 143)
		b.endScope("shop")
		trace := b.takeTrace()
		assert.Contains(t, trace, "0s stop: ok")
		assert.NotContains(t, trace, "0s start shop")
		assert.Equal(t, "stopped", b.state("shop"))
	})
}

func TestRestart_IsCanceledByARemoval(t *testing.T) {
	supervise(t, func(b *bed) {
		b.startThenRestart()
		b.call("remove", func(ctx context.Context) error { return b.sup.Remove(ctx, "shop", true) })
		assert.Contains(t, b.takeTrace(), `0s restart: session "shop": another operation has replaced this one`)
		b.exit("shop", 143)
		b.endScope("shop")
		assert.Contains(t, b.takeTrace(), "0s remove: ok")
	})
}

func TestRestart_IsCanceledByARemovalDuringTheShutdown(t *testing.T) {
	supervise(t, func(b *bed) {
		b.startThenRestart()
		_, err := b.sup.SuspendForShutdown(b.t.Context())
		require.NoError(t, err)
		b.call("remove", func(ctx context.Context) error { return b.sup.Remove(ctx, "shop", true) })
		assert.Contains(t, b.takeTrace(), `0s restart: session "shop": another operation has replaced this one`)
		b.endScope("shop")
	})
}

// TestStart_WaitsForTheRunOfARestart: a restart before the agent has appeared replaces the run, but
// does not cancel the start.
func TestStart_WaitsForTheRunOfARestart(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.exit("shop", 0)
		b.endScope("shop")
		b.system.start = func(p Plan, report func(session.Event)) error { scopeRuns(p, report); return nil }
		b.call("start", func(ctx context.Context) error { return b.sup.Start(ctx, "shop") })
		require.Equal(t, "starting", b.state("shop"))
		b.system.start = nil
		b.call("restart", func(ctx context.Context) error { return b.sup.Restart(ctx, "shop") })
		assert.NotContains(t, strings.Join(b.takeTrace(), "\n"), "start:")
		b.endScope("shop")
		assert.Subset(t, b.takeTrace(), []string{"0s start: ok", "0s restart: ok"})
	})
}

// TestStart_ReturnsWhyItWasCanceled: a start that another operation cancels before the agent runs
// returns that, and one whose agent fails before it is ready returns the failure.
func TestStart_ReturnsWhyItWasCanceled(t *testing.T) {
	for _, row := range []struct {
		name   string
		cancel func(b *bed)
		want   string
	}{
		{"stopped", func(b *bed) {
			b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) })
		}, `0s start: session "shop" was stopped meanwhile`},
		{"suspended", func(b *bed) {
			b.call("suspend", func(ctx context.Context) error { return b.sup.Suspend(ctx, "shop") })
		}, `0s start: session "shop" was suspended meanwhile`},
		{"removed", func(b *bed) {
			b.call("remove", func(ctx context.Context) error { return b.sup.Remove(ctx, "shop", true) })
			b.takeTrace()
			b.endScope("shop")
		}, `0s start: session "shop" was removed meanwhile`},
		{"its agent fails before it is ready", func(b *bed) {
			b.exit("shop", 3)
		}, `0s start: cannot start "shop": command exited with code 3`},
		{"its agent completes before it is ready", func(b *bed) { b.exit("shop", 0) }, "0s start: ok"},
	} {
		t.Run(row.name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				require.NoError(t, b.sup.Reload(config.Default(), map[string]config.Agent{
					"command": {Name: "command", Type: config.TypeNotify},
				}))
				_, err := b.sup.Create(b.t.Context(), "command", Spec{ID: "shop", Command: []string{"true"}, NoStart: true})
				require.NoError(t, err)
				b.call("start", func(ctx context.Context) error { return b.sup.Start(ctx, "shop") })
				require.Equal(t, "starting", b.state("shop"))
				b.takeTrace()
				row.cancel(b)
				assert.Contains(t, b.takeTrace(), row.want)
			})
		})
	}
}

// TestRestart_ContinuesIfTheShutdownIsCancelled: the run begins after all, and the call waits for
// it.
func TestRestart_ContinuesIfTheShutdownIsCancelled(t *testing.T) {
	supervise(t, func(b *bed) {
		b.startThenRestart()
		_, err := b.sup.SuspendForShutdown(b.t.Context())
		require.NoError(t, err)
		b.exit("shop", 143)
		assert.NotContains(t, strings.Join(b.takeTrace(), "\n"), "restart:")
		_, err = b.sup.ShutdownCancelled(b.t.Context())
		require.NoError(t, err)
		b.endScope("shop")
		assert.Contains(t, b.takeTrace(), "0s restart: ok")
	})
}

// TestStop_EndsWithItsRun: the call returns when the run is over, whatever begins after that. A
// call that was to suspend the session fails if the session is not suspended in the end.
func TestStop_EndsWithItsRun(t *testing.T) {
	type call func(s *Supervisor, ctx context.Context) error
	var (
		stop    call = func(s *Supervisor, ctx context.Context) error { return s.Stop(ctx, "shop", 0) }
		suspend call = func(s *Supervisor, ctx context.Context) error { return s.Suspend(ctx, "shop") }
		restart call = func(s *Supervisor, ctx context.Context) error { return s.Restart(ctx, "shop") }
		remove  call = func(s *Supervisor, ctx context.Context) error { return s.Remove(ctx, "shop", true) }
	)
	for _, row := range []struct {
		name          string
		first, second call
		want          string
	}{
		{"a stop, then a restart", stop, restart, "0s first: ok"},
		{"a suspension, then a restart", suspend, restart, `0s first: session "shop" is starting`},
		{"a suspension, then a stop", suspend, stop, `0s first: session "shop" was stopped`},
		{"a suspension, then a removal", suspend, remove, `0s first: session "shop" was removed meanwhile`},
	} {
		t.Run(row.name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				b.start("shop")
				b.call("first", func(ctx context.Context) error { return row.first(b.sup, ctx) })
				b.takeTrace()
				b.call("second", func(ctx context.Context) error { return row.second(b.sup, ctx) })
				b.takeTrace()
				b.exit("shop", 0)
				b.endScope("shop")
				trace := b.takeTrace()
				assert.Contains(t, trace, row.want)
				assert.Contains(t, trace, "0s second: ok")
			})
		})
	}
}

func TestSuspend_FailsIfTheSessionIsRemoved(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.call("suspend", func(ctx context.Context) error { return b.sup.Suspend(ctx, "shop") })
		b.exit("shop", 0)
		b.call("remove", func(ctx context.Context) error { return b.sup.Remove(ctx, "shop", false) })
		b.endScope("shop")
		assert.Subset(t, b.takeTrace(), []string{`0s suspend: session "shop" was removed meanwhile`, "0s remove: ok"})
	})
}

// TestRetention_KeepsASessionThatIsBeingStarted: its retention time is over, but it is not removed.
func TestRetention_KeepsASessionThatIsBeingStarted(t *testing.T) {
	superviseExpiring(t, nothing, func(a *expiryBed) {
		a.start("shop")
		a.exit("shop", 1) // leftover processes remain in its scope
		synctest.Wait()
		<-time.After(day + time.Hour)
		a.call("start", func(ctx context.Context) error { return a.sup.Start(ctx, "shop") })
		a.takeTrace()
		a.fireAlarm()
		ids, err := a.sup.Clean(a.t.Context())
		require.NoError(t, err)
		assert.Empty(t, ids)
		require.EqualError(t, a.sup.Remove(a.t.Context(), "shop", false), `session "shop" is being started`)
		a.endScope("shop")
		assert.Equal(t, "running", a.state("shop"))
	})
}

// TestStart_ReturnsItsErrorIfTheScopeEndsFirst: a start that fails ends its scope, and systemd
// reports that end before the start returns its error.
func TestStart_ReturnsItsErrorIfTheScopeEndsFirst(t *testing.T) {
	supervise(t, func(b *bed) {
		b.system.start = func(p Plan, report func(session.Event)) error {
			report(session.ScopeStarted{Run: p.Spec.RunID, InvocationID: "inv", ControlGroup: "/" + p.Unit})
			b.sup.ScopeEnded(p.Unit, "", "success")
			<-time.After(time.Millisecond)
			return errors.New("tmux cannot read its configuration")
		}
		_, err := b.sup.Create(b.t.Context(), "command", Spec{ID: "shop", Command: []string{"true"}})
		require.EqualError(t, err, `cannot start "shop": tmux cannot read its configuration`)
		snap, err := b.sup.Session("shop")
		require.NoError(t, err)
		assert.Equal(t, []string{"failed", "start-failed", "tmux cannot read its configuration"},
			[]string{snap.State, snap.Result, snap.Reason})
	})
}

// TestScopeEnd_OfAnEarlierRunIsIgnored: systemd reports the end of a scope after the daemon has
// learned of it from a list of the scopes. The report does not end the run that has begun since,
// and neither do late reports that the earlier scope is to be stopped.
func TestScopeEnd_OfAnEarlierRunIsIgnored(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		unit := unitname.Scope("command", "shop")
		b.system.start = func(p Plan, report func(session.Event)) error {
			b.sup.ScopeEnded(unit, "inv", "success")
			report(session.ScopeStarted{Run: p.Spec.RunID, InvocationID: "second", ControlGroup: "/" + unit})
			report(session.AgentStarted{Run: p.Spec.RunID, Agent: session.Process{PID: 13, Start: 130}, At: time.Now()})
			return nil
		}
		b.exit("shop", 0)
		b.system.populated = false
		b.sup.loop.adoption.resync()
		synctest.Wait()
		b.system.populated = true
		require.NoError(t, b.sup.Start(b.t.Context(), "shop"))
		assert.Equal(t, "running", b.state("shop"), "the report came during the start")
		b.sup.ScopeEnded(unit, "inv", "success")
		b.sup.ScopeStopRequested(unit, "inv")
		b.sup.ScopeStopping(unit, "inv", StopCause{})
		assert.Equal(t, "running", b.state("shop"))
		b.sup.ScopeEnded(unit, "second", "success")
		assert.Equal(t, "failed", b.state("shop"))
	})
}

// TestStart_FailsIfItsScopeIsKilled: the start fails whatever the reason is.
func TestStart_FailsIfItsScopeIsKilled(t *testing.T) {
	supervise(t, func(b *bed) {
		b.system.start = func(p Plan, report func(session.Event)) error { scopeRuns(p, report); return nil }
		b.call("create", func(ctx context.Context) error {
			_, err := b.sup.Create(ctx, "command", Spec{ID: "shop", Command: []string{"true"}})
			return err
		})
		b.takeTrace()
		b.endScope("shop")
		assert.Contains(t, b.takeTrace(), `0s create: cannot start "shop": tmux session no longer exists`)
	})
}

// TestReload_SetsTheAlarmAgain: a session that was to be suspended, or to expire, by the old
// configuration follows the new one.
func TestReload_SetsTheAlarmAgain(t *testing.T) {
	supervise(t, func(b *bed) {
		b.withIdleSuspend(config.Agent{Name: "command", IdleSuspend: 10 * time.Minute})
		s := b.startWithShim()
		s.send(shimwire.Message{Kind: shimwire.Idle, Since: time.Now(), Seq: 2})
		assert.NotZero(t, b.alarmTime())
		b.withIdleSuspend(config.Agent{Name: "command", IdleSuspend: config.Infinity})
		assert.Zero(t, b.alarmTime())
		s.disconnect()
	})
	superviseExpiring(t, nothing, func(a *expiryBed) {
		a.failAndAcknowledge("shop")
		conf := config.Default()
		conf.Retention.Failed = 3 * day
		require.NoError(t, a.sup.Reload(conf, nil))
		assert.Equal(t, time.Now().Add(3*day).Unix(), a.expires("shop").Unix())
		a.advance(2 * day)
		ids, err := a.sup.Clean(a.t.Context())
		require.NoError(t, err)
		assert.Empty(t, ids)
		assert.True(t, a.there("shop"))
	})
}

// TestReload_AppliesToARunThatWaitsToBegin: the agent's new definition has Type=notify.
func TestReload_AppliesToARunThatWaitsToBegin(t *testing.T) {
	supervise(t, func(b *bed) {
		b.startThenRestart()
		require.NoError(t, b.sup.Reload(config.Default(), map[string]config.Agent{
			"command": {Name: "command", Type: config.TypeNotify},
		}))
		b.exit("shop", 143)
		b.endScope("shop")
		assert.Equal(t, "starting", b.state("shop"), "it has not reported that it is ready")
		assert.True(t, b.records.last("shop").Run.Notify)
	})
}

// TestSend_AcceptsTheNextTextAfterTheResume: a text that makes its session resume is not accepted
// before that is done, so that a second text waits for it.
func TestSend_AcceptsTheNextTextAfterTheResume(t *testing.T) {
	supervise(t, func(b *bed) {
		b.startThenSuspend("shop")
		b.call("send", func(ctx context.Context) error {
			return b.sup.Send(WhenAccepted(ctx, func() { b.trace("accepted") }), "shop", "first", Input{Resume: true})
		})
		assert.NotContains(t, b.takeTrace(), "0s accepted", "the next text is processed once this one is accepted")
		<-time.After(quietTimeout)
		assert.Contains(t, b.takeTrace(), "15s send: ok")
	})
}

// TestSend_KeepsTheTextOfAFailedStart: the agent of the next run is given it, unless that run
// begins another conversation. A text that is sent again meanwhile is not kept twice.
func TestSend_KeepsTheTextOfAFailedStart(t *testing.T) {
	send := Input{Enter: true, Resume: true, CallerEnvironment: []string{"PATH=/opt/agents"}}
	for _, row := range []struct {
		name   string
		again  string // a text that is sent meanwhile, also in vain; "" for none
		begin  func(*Supervisor, context.Context, string) error
		prompt string // that the agent is given then
	}{
		{"it is resumed", "", (*Supervisor).Resume, "go on"},
		{"it is sent again, and then resumed", "go on", (*Supervisor).Resume, "go on"},
		{"it begins another conversation", "", (*Supervisor).Start, ""},
		{"it is sent again", "", func(s *Supervisor, ctx context.Context, id string) error {
			return s.Send(ctx, id, "go on", send)
		}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				b.startThenSuspend("shop")
				var plan Plan
				b.system.start = func(p Plan, _ func(session.Event)) error {
					plan = p
					return errors.New("tmux is not installed")
				}
				err := b.sup.Send(b.t.Context(), "shop", "go on", send)
				require.EqualError(t, err, `cannot start "shop": tmux is not installed `+
					`(the text is kept, and typed once the session is resumed)`)
				assert.Equal(t, "failed", b.state("shop"))
				assert.Equal(t, "go on", b.records.last("shop").Unsent, "it is saved")
				if row.again != "" {
					require.ErrorContains(t, b.sup.Send(b.t.Context(), "shop", row.again, send), "the text is kept")
				}
				b.system.start = func(p Plan, report func(session.Event)) error {
					plan = p
					return runs(p, report)
				}
				require.NoError(t, row.begin(b.sup, b.t.Context(), "shop"))
				assert.Equal(t, row.prompt, plan.Spec.Prompt)
				b.onLoop(func() {
					e := b.sup.loop.sessions.byID["shop"]
					e.apply(session.Prompted{Run: e.rec.Run.ID})
				})
				synctest.Wait()
				assert.Empty(t, b.records.last("shop").Unsent)
			})
		})
	}
}

// TestSend_WaitsForAResumeInProgress: a text waits for the resume that another client has
// requested.
func TestSend_WaitsForAResumeInProgress(t *testing.T) {
	supervise(t, func(b *bed) {
		b.startThenSuspend("shop")
		b.system.start = func(p Plan, report func(session.Event)) error {
			<-time.After(time.Second)
			return runs(p, report)
		}
		b.call("resume", func(ctx context.Context) error { return b.sup.Resume(ctx, "shop") })
		assert.Equal(t, "starting", b.state("shop"))
		b.takeTrace()
		b.call("send", func(ctx context.Context) error { return b.sup.Send(ctx, "shop", "text", Input{Resume: true}) })
		assert.NotContains(t, b.takeTrace(), "0s send: ok")
		<-time.After(time.Second + quietTimeout)
		assert.Contains(t, b.takeTrace(), "16s send: ok")
	})
}

// startThenSuspend creates a session and suspends it.
func (b *bed) startThenSuspend(id string) {
	b.t.Helper()
	b.start(id)
	b.call("suspend", func(ctx context.Context) error { return b.sup.Suspend(ctx, id) })
	b.takeTrace()
	b.exit(id, 0)
	b.endScope(id)
	assert.Equal(b.t, "suspended", b.state(id))
	b.takeTrace()
}

// TestSave_IncludesAChangeInTheIterationOfAnExit: the change is saved before it is published.
func TestSave_IncludesAChangeInTheIterationOfAnExit(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.exitWithoutEvent("shop", 0)
		busy := make(chan struct{})
		go func() { _ = b.sup.loop.do(func() { <-busy }) }() // so that both are in one iteration
		synctest.Wait()
		go func() { _ = b.sup.loop.do(func() { b.sup.loop.sessions.byID["shop"].run.exit.read() }) }()
		synctest.Wait()
		b.call("describe", func(ctx context.Context) error { return b.sup.Describe(ctx, "shop", "mine") })
		close(busy)
		trace := b.takeTrace()
		assert.Equal(t, "0s save shop: completed", trace[0], "%v", trace)
		assert.Equal(t, "mine", b.records.last("shop").Description)
	})
}

// TestRemoveWorktree_KeepsTheWorkspaceOfAnotherSession: the other session was created in the
// worktree while the session that owns it was being stopped.
func TestRemoveWorktree_KeepsTheWorkspaceOfAnotherSession(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		tree := b.t.TempDir()
		require.NoError(t, b.sup.loop.do(func() {
			shop := b.sup.loop.sessions.byID["shop"]
			shop.rec.Worktree = &session.Worktree{Repository: "/nowhere", Path: tree, Branch: "corral/shop"}
		}))
		b.call("remove", func(ctx context.Context) error { return b.sup.RemoveWorktree(ctx, "shop", true, true) })
		assert.Contains(t, b.takeTrace(), "0s terminate shop")
		_, err := b.sup.Create(b.t.Context(), "command", Spec{ID: "other", Command: []string{"true"}, WorkingDirectory: tree})
		require.NoError(t, err)
		b.takeTrace()
		b.exit("shop", 0)
		b.endScope("shop")
		assert.Contains(t, b.takeTrace(),
			`0s remove: the worktree of session "shop" is the workspace of session "other" too, which is running`)
		assert.Equal(t, "stopped", b.state("shop"))
		_, err = os.Stat(tree)
		require.NoError(t, err)
	})
}

// TestRemoveWorktree_IsReplacedByAnotherRemoval: the second removal keeps the worktree, so the
// first one must not succeed.
func TestRemoveWorktree_IsReplacedByAnotherRemoval(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		require.NoError(t, b.sup.loop.do(func() {
			b.sup.loop.sessions.byID["shop"].rec.Worktree = &session.Worktree{Repository: "/nowhere", Path: b.t.TempDir()}
		}))
		b.call("worktree", func(ctx context.Context) error { return b.sup.RemoveWorktree(ctx, "shop", true, true) })
		b.takeTrace()
		b.call("session", func(ctx context.Context) error { return b.sup.Remove(ctx, "shop", true) })
		assert.Contains(t, b.takeTrace(), `0s worktree: session "shop": another operation has replaced this one`)
		b.exit("shop", 143)
		b.endScope("shop")
		assert.Contains(t, b.takeTrace(), "0s session: ok")
	})
}

// TestLogin_ContinuesThatOfAnEarlierDaemon: an earlier daemon ended while it resumed sessions at
// login. The next one does the rest, as far as that is still to be done.
func TestLogin_ContinuesThatOfAnEarlierDaemon(t *testing.T) {
	supervise(t, func(b *bed) {
		for _, id := range []string{"a", "b"} {
			b.startThenSuspend(id)
			require.NoError(t, b.sup.SetOnLogin(b.t.Context(), id, "resume"))
		}
		ids, err := b.sup.AtLogin()
		require.NoError(t, err)
		assert.Equal(t, []string{"a", "b"}, ids)
		b.takeTrace()
		done := make(chan string, 4)
		require.NoError(t, b.sup.Login(b.t.Context(), []string{"gone", "b"}, func(id string) { done <- id }))
		assert.ElementsMatch(t, []string{"gone", "b"}, []string{<-done, <-done})
		assert.Equal(t, []string{"suspended", "running"}, []string{b.state("a"), b.state("b")})
		require.NoError(t, b.sup.Login(b.t.Context(), []string{"b"}, func(id string) { done <- id }))
		assert.Equal(t, "b", <-done)
		assert.Equal(t, "running", b.state("b"), "there is nothing left to do")
	})
}

// TestRestart_ContinuesIfTheTerminalIsClosed: the agent exits because of the SIGHUP instead of the
// SIGTERM, and the new run begins as requested.
func TestRestart_ContinuesIfTheTerminalIsClosed(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.withShim()
		s.hello()
		b.system.start = nil // the next run has no shim
		b.call("restart", func(ctx context.Context) error { return b.sup.Restart(ctx, "shop") })
		s.send(shimwire.Message{Kind: shimwire.PaneClosed})
		assert.NotContains(t, strings.Join(b.takeTrace(), "\n"), "restart:")
		b.exit("shop", 129)
		b.endScope("shop")
		assert.Subset(t, b.takeTrace(), []string{"0s start shop", "0s restart: ok"})
	})
}

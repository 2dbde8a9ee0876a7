package supervisor

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/session"
)

// What is asked for while something else goes on.

func (b *bed) restarting() {
	b.t.Helper()
	b.start("shop")
	b.call("restart", func(ctx context.Context) error { return b.sup.Restart(ctx, "shop") })
	assert.Contains(b.t, b.heard(), "0s ask agent shop")
}

func TestAStopCallsOffARestart(t *testing.T) {
	supervise(t, func(b *bed) {
		b.restarting()
		b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) })
		assert.Contains(t, b.heard(), `0s restart: session "shop" was stopped meanwhile`)
		b.exit("shop", 143)
		b.empty("shop")
		told := b.heard()
		assert.Contains(t, told, "0s stop: ok")
		assert.NotContains(t, told, "0s start shop")
		assert.Equal(t, "stopped", b.state("shop"))
	})
}

func TestARemovalCallsOffARestart(t *testing.T) {
	supervise(t, func(b *bed) {
		b.restarting()
		b.call("remove", func(ctx context.Context) error { return b.sup.Remove(ctx, "shop", true) })
		assert.Contains(t, b.heard(), `0s restart: session "shop": another operation has replaced this one`)
		b.exit("shop", 143)
		b.empty("shop")
		assert.Contains(t, b.heard(), "0s remove: ok")
	})
}

// TestAStartThatIsCalledOff before there is an agent tells so, and so does one whose agent fails before it is ready.
func TestAStartThatIsCalledOff(t *testing.T) {
	for _, row := range []struct {
		name string
		off  func(b *bed)
		told string
	}{
		{"stopped", func(b *bed) {
			b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) })
		}, `0s start: session "shop" was stopped meanwhile`},
		{"suspended", func(b *bed) {
			b.call("suspend", func(ctx context.Context) error { return b.sup.Suspend(ctx, "shop") })
		}, `0s start: session "shop" was suspended meanwhile`},
		{"removed", func(b *bed) {
			b.call("remove", func(ctx context.Context) error { return b.sup.Remove(ctx, "shop", true) })
			b.heard()
			b.empty("shop")
		}, `0s start: session "shop" was removed meanwhile`},
		{"its agent fails before it is ready", func(b *bed) { b.exit("shop", 3) }, `0s start: cannot start "shop": command exited with code 3`},
		{"its agent has done its work before it is ready", func(b *bed) { b.exit("shop", 0) }, "0s start: ok"},
	} {
		t.Run(row.name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				require.NoError(t, b.sup.Reload(config.Default(), map[string]config.Agent{"command": {Name: "command", Type: config.TypeNotify}}))
				_, err := b.sup.Create(b.t.Context(), "command", Spec{ID: "shop", Command: []string{"true"}, NoStart: true})
				require.NoError(t, err)
				b.call("start", func(ctx context.Context) error { return b.sup.Start(ctx, "shop") })
				require.Equal(t, "starting", b.state("shop"))
				b.heard()
				row.off(b)
				assert.Contains(t, b.heard(), row.told)
			})
		})
	}
}

// TestAStopIsOverWithItsRun, whatever begins after it; and what was not suspended in the end is not told to be.
func TestAStopIsOverWithItsRun(t *testing.T) {
	for _, row := range []struct {
		name string
		ask  func(s *Supervisor, ctx context.Context) error
		then func(s *Supervisor, ctx context.Context) error
		told string
	}{
		{"a stop, and a restart", func(s *Supervisor, ctx context.Context) error { return s.Stop(ctx, "shop", 0) },
			func(s *Supervisor, ctx context.Context) error { return s.Restart(ctx, "shop") }, "0s ask: ok"},
		{"a suspension, and a restart", func(s *Supervisor, ctx context.Context) error { return s.Suspend(ctx, "shop") },
			func(s *Supervisor, ctx context.Context) error { return s.Restart(ctx, "shop") }, `0s ask: session "shop" is starting`},
		{"a suspension, and a stop", func(s *Supervisor, ctx context.Context) error { return s.Suspend(ctx, "shop") },
			func(s *Supervisor, ctx context.Context) error { return s.Stop(ctx, "shop", 0) }, `0s ask: session "shop" was stopped`},
		{"a suspension, and a removal", func(s *Supervisor, ctx context.Context) error { return s.Suspend(ctx, "shop") },
			func(s *Supervisor, ctx context.Context) error { return s.Remove(ctx, "shop", true) }, `0s ask: session "shop" was removed meanwhile`},
	} {
		t.Run(row.name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				b.start("shop")
				b.call("ask", func(ctx context.Context) error { return row.ask(b.sup, ctx) })
				b.heard()
				b.call("then", func(ctx context.Context) error { return row.then(b.sup, ctx) })
				b.heard()
				b.exit("shop", 0)
				b.empty("shop")
				told := b.heard()
				assert.Contains(t, told, row.told)
				assert.Contains(t, told, "0s then: ok")
			})
		})
	}
}

// TestWhatIsBeingStartedIsNotRemoved, as its retention time being over would have it.
func TestWhatIsBeingStartedIsNotRemoved(t *testing.T) {
	expiring(t, nothing, func(a *alarmed) {
		a.start("shop")
		a.exit("shop", 1) // something is left in its scope
		synctest.Wait()
		<-time.After(day + time.Hour)
		a.call("start", func(ctx context.Context) error { return a.sup.Start(ctx, "shop") })
		a.heard()
		a.rings()
		ids, err := a.sup.Clean(a.t.Context())
		require.NoError(t, err)
		assert.Empty(t, ids)
		require.EqualError(t, a.sup.Remove(a.t.Context(), "shop", false), `session "shop" is being started`)
		a.empty("shop")
		assert.Equal(t, "running", a.state("shop"))
	})
}

// TestAStartWhoseScopeEndsFirst: systemd tells of the end of what a start has cleared away before the start tells why it did.
func TestAStartWhoseScopeEndsFirst(t *testing.T) {
	supervise(t, func(b *bed) {
		b.world.start = func(p Plan, tell func(session.Event)) error {
			tell(session.ScopeStarted{Run: p.Spec.RunID, InvocationID: "inv", ControlGroup: "/" + p.Unit})
			b.sup.ScopeEnded(p.Unit, "", "success")
			<-time.After(time.Millisecond)
			return errors.New("tmux cannot read its configuration")
		}
		_, err := b.sup.Create(b.t.Context(), "command", Spec{ID: "shop", Command: []string{"true"}})
		require.EqualError(t, err, `cannot start "shop": tmux cannot read its configuration`)
		snap, err := b.sup.Session("shop")
		require.NoError(t, err)
		assert.Equal(t, []string{"failed", "start-failed", "tmux cannot read its configuration"}, []string{snap.State, snap.Result, snap.Reason})
	})
}

// TestTheEndOfAnEarlierRunsScope, told after a list had told it already, is not the end of the run that has begun since; nor is what systemd wanted with it.
func TestTheEndOfAnEarlierRunsScope(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		unit := UnitName("command", "shop")
		b.world.start = func(p Plan, tell func(session.Event)) error {
			b.sup.ScopeEnded(unit, "inv", "success")
			tell(session.ScopeStarted{Run: p.Spec.RunID, InvocationID: "second", ControlGroup: "/" + unit})
			tell(session.AgentStarted{Run: p.Spec.RunID, Agent: session.Process{PID: 13, Start: 130}, At: time.Now()})
			return nil
		}
		b.exit("shop", 0)
		b.world.populated = false
		b.sup.Resync()
		synctest.Wait()
		b.world.populated = true
		require.NoError(t, b.sup.Start(b.t.Context(), "shop"))
		assert.Equal(t, "running", b.state("shop"), "told while it was being started")
		b.sup.ScopeEnded(unit, "inv", "success")
		b.sup.ScopeStopRequested(unit, "inv")
		b.sup.ScopeStopping(unit, "inv", StopCause{})
		assert.Equal(t, "running", b.state("shop"))
		b.sup.ScopeEnded(unit, "second", "success")
		assert.Equal(t, "failed", b.state("shop"))
	})
}

// TestAStartWhoseScopeIsKilled is one that failed, whatever the reason.
func TestAStartWhoseScopeIsKilled(t *testing.T) {
	supervise(t, func(b *bed) {
		b.world.start = func(p Plan, tell func(session.Event)) error { scopeRuns(p, tell); return nil }
		b.call("create", func(ctx context.Context) error {
			_, err := b.sup.Create(ctx, "command", Spec{ID: "shop", Command: []string{"true"}})
			return err
		})
		b.heard()
		b.empty("shop")
		assert.Contains(t, b.heard(), `0s create: cannot start "shop": tmux session no longer exists`)
	})
}

// TestTheAlarmFollowsAReload: what was to be suspended, or to expire, by the old configuration is not by the new one.
func TestTheAlarmFollowsAReload(t *testing.T) {
	supervise(t, func(b *bed) {
		b.idling(config.Agent{Name: "command", IdleSuspend: 10 * time.Minute})
		s := b.running()
		s.says(shimwire.Message{Kind: shimwire.Idle, Since: time.Now(), Seq: 2})
		assert.NotZero(t, b.alarm())
		b.idling(config.Agent{Name: "command", IdleSuspend: config.Infinity})
		assert.Zero(t, b.alarm())
		s.hangUp()
	})
	expiring(t, nothing, func(a *alarmed) {
		a.failsSeen("shop")
		conf := config.Default()
		conf.Retention.Failed = 3 * day
		require.NoError(t, a.sup.Reload(conf, nil))
		assert.Equal(t, time.Now().Add(3*day).Unix(), a.expires("shop").Unix())
		a.pass(2 * day)
		ids, err := a.sup.Clean(a.t.Context())
		require.NoError(t, err)
		assert.Empty(t, ids)
		assert.True(t, a.there("shop"))
	})
}

// TestASecondTextWaitsForTheFirst, which has its session resumed.
func TestASecondTextWaitsForTheFirst(t *testing.T) {
	supervise(t, func(b *bed) {
		b.suspended("shop")
		b.call("send", func(ctx context.Context) error {
			return b.sup.Send(WhenAccepted(ctx, func() { b.tell("accepted") }), "shop", "first", Input{Resume: true})
		})
		assert.NotContains(t, b.heard(), "0s accepted", "the next one is let in after that")
		<-time.After(calmTime)
		assert.Contains(t, b.heard(), "15s send: ok")
	})
}

// TestATextWaitsForWhoeverResumes its session.
func TestATextWaitsForWhoeverResumes(t *testing.T) {
	supervise(t, func(b *bed) {
		b.suspended("shop")
		b.world.start = func(p Plan, tell func(session.Event)) error {
			<-time.After(time.Second)
			return runs(p, tell)
		}
		b.call("resume", func(ctx context.Context) error { return b.sup.Resume(ctx, "shop") })
		assert.Equal(t, "starting", b.state("shop"))
		b.heard()
		b.call("send", func(ctx context.Context) error { return b.sup.Send(ctx, "shop", "text", Input{Resume: true}) })
		assert.NotContains(t, b.heard(), "0s send: ok")
		<-time.After(time.Second + calmTime)
		assert.Contains(t, b.heard(), "16s send: ok")
	})
}

// suspended has a session that was suspended.
func (b *bed) suspended(id string) {
	b.t.Helper()
	b.start(id)
	b.call("suspend", func(ctx context.Context) error { return b.sup.Suspend(ctx, id) })
	b.heard()
	b.exit(id, 0)
	b.empty(id)
	assert.Equal(b.t, "suspended", b.state(id))
	b.heard()
}

// TestAChangeInTheTurnOfAnExitIsSaved before anybody is told of it.
func TestAChangeInTheTurnOfAnExitIsSaved(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.exitUnseen("shop", 0)
		busy := make(chan struct{})
		go func() { _ = b.sup.do(func() { <-busy }) }() // both are in one turn
		synctest.Wait()
		go func() { _ = b.sup.do(func() { b.sup.readExit(b.sup.sessions["shop"]) }) }()
		synctest.Wait()
		b.call("describe", func(ctx context.Context) error { return b.sup.Describe(ctx, "shop", "mine") })
		close(busy)
		told := b.heard()
		assert.Equal(t, "0s save shop: completed", told[0], "%v", told)
		assert.Equal(t, "mine", b.records.last("shop").Description)
	})
}

// TestAWorktreeIsNotTakenFromUnderASession that came while the one it belongs to was ended.
func TestAWorktreeIsNotTakenFromUnderASession(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		tree := b.t.TempDir()
		require.NoError(t, b.sup.do(func() {
			b.sup.sessions["shop"].rec.Worktree = &session.Worktree{Repository: "/nowhere", Path: tree, Branch: "corral/shop"}
		}))
		b.call("remove", func(ctx context.Context) error { return b.sup.RemoveWorktree(ctx, "shop", true, true) })
		assert.Contains(t, b.heard(), "0s ask agent shop")
		_, err := b.sup.Create(b.t.Context(), "command", Spec{ID: "other", Command: []string{"true"}, WorkingDirectory: tree})
		require.NoError(t, err)
		b.heard()
		b.exit("shop", 0)
		b.empty("shop")
		assert.Contains(t, b.heard(), `0s remove: the worktree of session "shop" is the workspace of session "other" too, which is running`)
		assert.Equal(t, "stopped", b.state("shop"))
		_, err = os.Stat(tree)
		require.NoError(t, err)
	})
}

// TestLoginGoesOn where an earlier daemon was in the middle of it, with what is still to be done by then.
func TestLoginGoesOn(t *testing.T) {
	supervise(t, func(b *bed) {
		for _, id := range []string{"a", "b"} {
			b.suspended(id)
			require.NoError(t, b.sup.SetOnLogin(b.t.Context(), id, "resume"))
		}
		ids, err := b.sup.AtLogin()
		require.NoError(t, err)
		assert.Equal(t, []string{"a", "b"}, ids)
		b.heard()
		done := make(chan string, 4)
		require.NoError(t, b.sup.Login(b.t.Context(), []string{"gone", "b"}, func(id string) { done <- id }))
		assert.ElementsMatch(t, []string{"gone", "b"}, []string{<-done, <-done})
		assert.Equal(t, []string{"suspended", "running"}, []string{b.state("a"), b.state("b")})
		require.NoError(t, b.sup.Login(b.t.Context(), []string{"b"}, func(id string) { done <- id }))
		assert.Equal(t, "b", <-done)
		assert.Equal(t, "running", b.state("b"), "there is nothing to do with it")
	})
}

package supervisor

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

// leaving runs f with sessions shop and site that run, and a function that tells the daemon alone to end, and one that tells whether it has.
func leaving(t *testing.T, f func(b *bed, leave func(), ended func() bool)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		require.NoError(t, os.WriteFile(b.world.FreezerFile(""), nil, 0o600))
		b.sup.Ending = func(most time.Duration) { b.tell("ends in %s", most) }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); b.sup.Run(ctx) }()
		b.start("shop")
		b.start("site")
		b.heard()
		b.world.result = "success"
		f(b, cancel, func() bool {
			synctest.Wait()
			select {
			case <-done:
				return true
			default:
				return false
			}
		})
		<-done
		assert.Equal(t, session.Suspended, b.records.last("site").View().State, "the others run on")
		assert.False(t, b.records.last("site").Run.Left.IsZero())
	})
}

// listed is what systemd lists of the two.
func listed(stopping bool) []Scope {
	return []Scope{
		{Name: UnitName("command", "shop"), InvocationID: "inv", Active: true, Stopping: stopping},
		{Name: UnitName("command", "site"), InvocationID: "inv", Active: true},
	}
}

func TestShutDown_EndsWhatSystemdStopsAtTheSameTime(t *testing.T) {
	leaving(t, func(b *bed, leave func(), ended func() bool) {
		b.world.scopes = listed(true)
		leave()
		assert.Equal(t, []string{"0s abandon app-corral-command-site.scope", "0s ends in 15s"}, b.heard())
		<-time.After(signalTime)
		told := b.heard()
		assert.Contains(t, told, "0.25s ask agent shop", "systemd has left that to us: tmux lives")
		assert.NotContains(t, told, "0.25s ask agent site")
		b.exit("shop", 7)
		assert.False(t, ended(), "there may be more in the scope")
		b.world.populated = false
		b.files.tell(b.world.FreezerFile(""), "", unix.IN_MODIFY)
		assert.True(t, ended(), "whether systemd reports it or not")
		rec := b.records.last("shop")
		v := rec.View()
		assert.Equal(t, session.View{State: session.Stopped, Result: "success", Reason: scopeStopped, Since: v.Since}, v)
		assert.Equal(t, 7, rec.Run.Exit.Value)
	})
}

// TestShutDown_EndsWhatSystemdBeginsToStopMeanwhile: after the scopes were listed, and before they were abandoned.
func TestShutDown_EndsWhatSystemdBeginsToStopMeanwhile(t *testing.T) {
	leaving(t, func(b *bed, leave func(), ended func() bool) {
		b.world.scopes, b.world.tooLate = listed(false), []string{UnitName("command", "shop")}
		leave()
		assert.Equal(t, []string{"0s abandon app-corral-command-shop.scope, app-corral-command-site.scope", "0s ends in 15s"}, b.heard())
		<-time.After(signalTime)
		assert.Contains(t, b.heard(), "0.25s ask agent shop")
		b.exit("shop", 7)
		b.empty("shop")
		assert.True(t, ended())
		assert.Equal(t, session.Stopped, b.records.last("shop").View().State)
	})
}

func TestShutDown_EndsWhatSystemdHasAskedItToStop(t *testing.T) {
	leaving(t, func(b *bed, leave func(), ended func() bool) {
		b.world.scopes = listed(true)
		leave()
		b.sup.ScopeStopRequested(UnitName("command", "shop"), "inv")
		assert.Contains(t, b.heard(), "0s ask agent shop", "at once")
		b.exit("shop", 0)
		b.empty("shop")
		<-time.After(signalTime)
		assert.True(t, ended())
		assert.Equal(t, session.Stopped, b.records.last("shop").View().State)
	})
}

func TestShutDown_DoesNotAskWhomSystemdHasAsked(t *testing.T) {
	leaving(t, func(b *bed, leave func(), ended func() bool) {
		b.world.scopes = listed(true)
		e := b.sup.sessions["shop"]
		require.NoError(t, b.sup.do(func() { b.sup.drop(&e.run.tmux) }), "tmux has ended of its SIGTERM")
		leave()
		<-time.After(signalTime)
		assert.NotContains(t, b.heard(), "0.25s ask agent shop")
		b.exit("shop", 0)
		b.empty("shop")
		assert.True(t, ended())
		assert.Equal(t, session.Stopped, b.records.last("shop").View().State)
	})
}

func TestShutDown_WaitsNoLongerThanTheAgentsHaveTime(t *testing.T) {
	leaving(t, func(b *bed, leave func(), ended func() bool) {
		b.world.scopes = listed(true)
		leave()
		<-time.After(b.sup.Config.StopTimeout + shutdownMargin - time.Millisecond)
		assert.False(t, ended())
		<-time.After(time.Millisecond)
		assert.True(t, ended())
		assert.Equal(t, session.Stop, b.records.last("shop").Run.Intent)
	})
}

// TestShutDown_AnExitOfAStopThatSystemdHasNotReported is no end of the agent's own: its shim was told to end, too.
func TestShutDown_AnExitOfAStopThatSystemdHasNotReported(t *testing.T) {
	exit := func(b *bed) {
		rec := b.records.last("shop")
		now := b.sup.Monotonic()
		b.record(rec, exitstatus.Status{
			RunID: rec.Run.ID, Code: exitstatus.Exited, PID: 12, Started: rec.Run.Started, Exited: time.Now(), ExitedMonotonic: now, SIGTERMMonotonic: now - time.Millisecond,
		})
		b.files.tell(b.records.SessionDir("shop"), exitstatus.FileName, unix.IN_MOVED_TO)
		synctest.Wait()
	}
	for name, row := range map[string]struct {
		before, after []Scope
		state         session.State
	}{
		"the scope has ended":                     {listed(false)[1:], nil, session.Stopped},
		"the scope is stopped":                    {listed(true), nil, session.Stopped},
		"somebody has signalled all of it":        {listed(false), nil, session.Completed},
		"it is read while corrald stays for that": {nil, listed(true), session.Stopped},
	} {
		t.Run(name, func(t *testing.T) {
			leaving(t, func(b *bed, leave func(), ended func() bool) {
				if row.before != nil {
					exit(b)
					assert.Equal(t, "completed", b.state("shop"))
					b.world.scopes, b.world.populated = row.before, row.state != session.Stopped
					leave()
				} else {
					b.world.scopes = row.after
					leave()
					exit(b)
					b.meanwhile(func() { b.world.populated = false })
				}
				<-time.After(time.Minute)
				assert.True(t, ended())
				assert.Equal(t, row.state, b.records.last("shop").View().State)
			})
		})
	}
}

// TestShutdown_LateExitWithoutSIGTERMIsNoStop: an exit is read at the very end, and the shim has
// recorded no SIGTERM. The agent has exited by itself, even if its tmux server has exited, too: the
// agent or a person may have ended that.
func TestShutdown_LateExitWithoutSIGTERMIsNoStop(t *testing.T) {
	for name, tmuxDead := range map[string]bool{"tmux runs": false, "tmux has exited": true} {
		t.Run(name, func(t *testing.T) {
			leaving(t, func(b *bed, leave func(), _ func() bool) {
				b.exitUnseen("shop", 0)
				b.world.dead, b.world.scopes = tmuxDead, listed(false)
				require.NoError(t, b.sup.do(func() {
					e := b.sup.sessions["shop"]
					b.sup.stopping = true
					b.sup.apply(e, session.LeftBehind{Run: e.rec.Run.ID, At: time.Now()})
					b.sup.readExit(e)
					b.sup.apply(e, session.ScopeEnded{Run: e.rec.Run.ID, At: time.Now()})
				}))
				b.heard()
				assert.Equal(t, session.Completed, b.records.last("shop").View().State)
				leave()
			})
		})
	}
}

package supervisor

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/supervisor/session"
)

// withTwoSessions runs f with the running sessions shop and site. The functions that it passes to f
// make the daemon alone end, and return whether it has ended.
func withTwoSessions(t *testing.T, f func(b *bed, quit func(), ended func() bool)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		require.NoError(t, os.WriteFile(b.system.EventsFile(""), nil, 0o600))
		b.sup.loop.callbacks.StopDelayed = func(most time.Duration) { b.trace("ends in %s", most) }
		ctx, cancel := context.WithCancel(t.Context())
		done := b.runInBackground(ctx)
		b.start("shop")
		b.start("site")
		b.takeTrace()
		b.system.result = "success"
		f(b, cancel, func() bool { return isClosed(done) })
		<-done
		assert.Equal(t, session.Suspended, b.records.last("site").View().State, "its agent keeps running")
		assert.False(t, b.records.last("site").Run.LeftRunning.IsZero())
	})
}

// listedScopes returns the scopes of the two sessions as systemd lists them: both are active, and
// that of shop may be stopping.
func listedScopes(stopping bool) []Scope {
	return []Scope{
		{Name: unitname.Scope("command", "shop"), InvocationID: "inv", Active: true, Stopping: stopping},
		{Name: unitname.Scope("command", "site"), InvocationID: "inv", Active: true},
	}
}

func TestShutdown_StopsSessionsThatSystemdStops(t *testing.T) {
	withTwoSessions(t, func(b *bed, quit func(), ended func() bool) {
		b.system.scopes = listedScopes(true)
		quit()
		assert.Equal(t, []string{"0s abandon app-corral-command-site.scope", "0s ends in 15s"}, b.takeTrace())
		<-time.After(tmuxExitTimeout)
		trace := b.takeTrace()
		assert.Contains(t, trace, "0.25s terminate shop", "systemd has left that to the daemon: tmux is alive")
		assert.NotContains(t, trace, "0.25s terminate site")
		b.exit("shop", 7)
		assert.False(t, ended(), "the scope may contain other processes")
		b.system.populated = false
		b.changedControlGroup()
		assert.True(t, ended(), "whether systemd reports it or not")
		rec := b.records.last("shop")
		v := rec.View()
		want := session.View{State: session.Stopped, Result: "success", Reason: session.ByScopeStop, Since: v.Since}
		assert.Equal(t, want, v)
		assert.Equal(t, 7, rec.Run.Exit.Value)
	})
}

// TestShutdown_StopsSessionsThatSystemdBeginsToStop: systemd begins to stop a scope after the
// scopes were listed, and before they were abandoned.
func TestShutdown_StopsSessionsThatSystemdBeginsToStop(t *testing.T) {
	withTwoSessions(t, func(b *bed, quit func(), ended func() bool) {
		b.system.scopes, b.system.tooLate = listedScopes(false), []string{unitname.Scope("command", "shop")}
		quit()
		assert.Equal(t, []string{
			"0s abandon app-corral-command-shop.scope, app-corral-command-site.scope", "0s ends in 15s",
		}, b.takeTrace())
		<-time.After(tmuxExitTimeout)
		assert.Contains(t, b.takeTrace(), "0.25s terminate shop")
		b.exit("shop", 7)
		b.endScope("shop")
		assert.True(t, ended())
		assert.Equal(t, session.Stopped, b.records.last("shop").View().State)
	})
}

func TestShutdown_StopsSessionsAtSystemdsRequest(t *testing.T) {
	withTwoSessions(t, func(b *bed, quit func(), ended func() bool) {
		b.system.scopes = listedScopes(true)
		quit()
		b.sup.ScopeStopRequested(unitname.Scope("command", "shop"), "inv")
		assert.Contains(t, b.takeTrace(), "0s terminate shop", "at once")
		b.exit("shop", 0)
		b.endScope("shop")
		<-time.After(tmuxExitTimeout)
		assert.True(t, ended())
		assert.Equal(t, session.Stopped, b.records.last("shop").View().State)
	})
}

func TestShutdown_DoesNotRepeatSystemdsSIGTERM(t *testing.T) {
	withTwoSessions(t, func(b *bed, quit func(), ended func() bool) {
		b.system.scopes = listedScopes(true)
		e := b.sup.loop.sessions.byID["shop"]
		b.onLoop(func() { b.sup.loop.descriptors.Close(&e.run.tmux.pidfd) }) // tmux has exited because of its SIGTERM
		quit()
		<-time.After(tmuxExitTimeout)
		assert.NotContains(t, b.takeTrace(), "0.25s terminate shop")
		b.exit("shop", 0)
		b.endScope("shop")
		assert.True(t, ended())
		assert.Equal(t, session.Stopped, b.records.last("shop").View().State)
	})
}

func TestShutdown_WaitsForTheStopTimeoutAtMost(t *testing.T) {
	withTwoSessions(t, func(b *bed, quit func(), ended func() bool) {
		b.system.scopes = listedScopes(true)
		quit()
		<-time.After(b.sup.loop.settings.config.StopTimeout + shutdownMargin - time.Millisecond)
		assert.False(t, ended())
		<-time.After(time.Millisecond)
		assert.True(t, ended())
		assert.Equal(t, session.Stop, b.records.last("shop").Run.Intent)
	})
}

// TestShutdown_AttributesAnExitToAnUnreportedStop: the agent has not exited by itself if its shim
// got SIGTERM, too.
func TestShutdown_AttributesAnExitToAnUnreportedStop(t *testing.T) {
	for name, row := range map[string]struct {
		before, after []Scope
		state         session.State
	}{
		"the scope has ended":                             {listedScopes(false)[1:], nil, session.Stopped},
		"the scope is stopping":                           {listedScopes(true), nil, session.Stopped},
		"somebody has signalled all of its processes":     {listedScopes(false), nil, session.Completed},
		"the exit is read while corrald waits for a stop": {nil, listedScopes(true), session.Stopped},
	} {
		t.Run(name, func(t *testing.T) {
			withTwoSessions(t, func(b *bed, quit func(), ended func() bool) {
				if row.before != nil {
					b.exitAfterSIGTERM("shop", 0)
					assert.Equal(t, "completed", b.state("shop"))
					b.system.scopes, b.system.populated = row.before, row.state != session.Stopped
					quit()
				} else {
					b.system.scopes = row.after
					quit()
					b.exitAfterSIGTERM("shop", 0)
					b.onLoop(func() { b.system.populated = false })
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
			withTwoSessions(t, func(b *bed, quit func(), _ func() bool) {
				b.exitWithoutEvent("shop", 0)
				b.system.dead, b.system.scopes = tmuxDead, listedScopes(false)
				require.NoError(t, b.sup.loop.do(func() {
					e := b.sup.loop.sessions.byID["shop"]
					b.sup.loop.shutdown.stopping = true
					e.apply(session.LeftRunning{Run: e.rec.Run.ID, At: time.Now()})
					e.run.exit.read()
					e.apply(session.ScopeEnded{Run: e.rec.Run.ID, At: time.Now()})
				}))
				b.takeTrace()
				assert.Equal(t, session.Completed, b.records.last("shop").View().State)
				quit()
			})
		})
	}
}

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/clock"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

// runningRecord is a session that ran when it was last saved.
func runningRecord(b *bed, resumable bool) *session.Session {
	rec := &session.Session{ID: "shop", Agent: "command", Command: []string{"true"}, WorkingDirectory: b.home, Created: time.Now(), NRuns: 1, StateChanged: time.Now()}
	if resumable {
		rec.ResumeCommand = []string{"true"}
	}
	for _, e := range []session.Event{
		session.RunAsked{Run: "r1", BootID: "boot", Unit: UnitName("command", "shop"), At: time.Now()},
		session.ScopeStarted{Run: "r1", InvocationID: "inv", ControlGroup: "/shop"},
		session.TmuxStarted{Run: "r1", Process: session.Process{}},
		session.AgentStarted{Run: "r1", Agent: session.Process{PID: 12, Start: 120}, At: time.Now()},
	} {
		rec.Apply(e)
	}
	return rec
}

// TestAdoption goes through what a daemon can find on its return.
func TestAdoption(t *testing.T) {
	alive := []Scope{{Name: "app-corral-command-shop.scope", InvocationID: "inv", ControlGroup: "/shop", Active: true}}
	exited := func(code exitstatus.Code, value int) func(*bed, *session.Session) {
		return func(b *bed, rec *session.Session) {
			b.record(rec, exitstatus.Status{RunID: "r1", Code: code, Value: value, Exited: time.Now()})
		}
	}
	const now = time.Hour // by the bed's clock
	stopped := func(code exitstatus.Code, value int, began time.Duration) func(*bed, *session.Session) {
		return func(b *bed, rec *session.Session) {
			b.world.began = began
			b.record(rec, exitstatus.Status{RunID: "r1", Code: code, Value: value, Exited: time.Now(), ExitedMonotonic: now, SIGTERMMonotonic: now - time.Millisecond})
		}
	}
	for _, row := range []struct {
		name      string
		scopes    []Scope
		resumable bool
		found     func(*bed, *session.Session)
		state     string
		result    string
	}{
		{"it exited meanwhile, tmux is still open", alive, false, exited(exitstatus.Exited, 3), "failed", "exit-code"},
		{"it completed meanwhile, the scope is gone", nil, false, exited(exitstatus.Exited, 0), "completed", "success"},
		{"it was killed meanwhile, the scope is gone", nil, false, exited(exitstatus.Killed, 9), "failed", "signal"},
		{"the exit of an earlier run is not this one's", nil, false, func(b *bed, rec *session.Session) {
			b.record(rec, exitstatus.Status{RunID: "r0", Code: exitstatus.Exited, Exited: time.Now()})
		}, "failed", "session-lost"},
		{"everything is gone and nothing was recorded", nil, true, nil, "failed", "session-lost"},
		{"another scope has the name now", []Scope{{Name: alive[0].Name, InvocationID: "other", Active: true}}, false, nil, "failed", "session-lost"},
		{"systemd keeps the failed scope", []Scope{{Name: alive[0].Name, InvocationID: "inv", Result: "oom-kill"}}, false, nil, "failed", "oom-kill"},
		{"its time was up meanwhile, and it took its leave with 0", []Scope{{Name: alive[0].Name, InvocationID: "inv", Result: "timeout", TimedOut: time.Nanosecond}}, false,
			exited(exitstatus.Exited, 0), "failed", "timeout"},
		{"it had ended with 0 before its scope's time was up", []Scope{{Name: alive[0].Name, InvocationID: "inv", Result: "timeout", TimedOut: clock.Monotonic() + time.Hour}},
			false, exited(exitstatus.Exited, 0), "completed", "success"},
		{"its time was up meanwhile", []Scope{{Name: alive[0].Name, InvocationID: "inv", Result: "timeout", TimedOut: time.Nanosecond}}, false,
			exited(exitstatus.Killed, 15), "failed", "timeout"},
		{"its scope was stopped meanwhile, and not in time", []Scope{{Name: alive[0].Name, InvocationID: "inv", Result: "timeout"}}, false, nil, "stopped", "success"},
		{"its scope was stopped while corrald was shut down, and not in time", []Scope{{Name: alive[0].Name, InvocationID: "inv", Result: "timeout"}}, false,
			func(_ *bed, rec *session.Session) { rec.Apply(session.LeftBehind{Run: "r1", At: time.Now()}) }, "stopped", "success"},
		{"its scope was stopped meanwhile, and not in time, after it had exited", []Scope{{Name: alive[0].Name, InvocationID: "inv", Result: "timeout"}}, false,
			exited(exitstatus.Exited, 3), "failed", "exit-code"},
		{"its scope was stopped meanwhile", nil, false, stopped(exitstatus.Exited, 143, time.Second), "stopped", "success"},
		{"its scope was stopped meanwhile, which killed it", nil, false, stopped(exitstatus.Killed, 15, time.Second), "stopped", "success"},
		{"its scope was signalled long ago", nil, false, func(b *bed, rec *session.Session) {
			b.record(rec, exitstatus.Status{RunID: "r1", Code: exitstatus.Exited, Exited: time.Now(), ExitedMonotonic: now, SIGTERMMonotonic: now - time.Minute})
		}, "completed", "success"},
		{"its scope is being stopped", []Scope{{Name: alive[0].Name, InvocationID: "inv", Active: true, Stopping: true}}, false, stopped(exitstatus.Exited, 0, time.Second), "stopping", ""},
		{"the manager is stopping", nil, false, func(b *bed, rec *session.Session) {
			b.world.stops = true
			stopped(exitstatus.Exited, 143, time.Second)(b, rec)
		}, "suspended", "success"},
		{"its scope was stopped, and the manager was started again", nil, false, stopped(exitstatus.Exited, 143, now), "suspended", "success"},
		{"its scope was stopped, and the machine went down", nil, false, func(b *bed, rec *session.Session) {
			rec.Run.BootID = "last boot"
			stopped(exitstatus.Exited, 143, time.Second)(b, rec)
		}, "suspended", "success"},
		{"its scope was stopped for want of memory", []Scope{{Name: alive[0].Name, InvocationID: "inv", Result: "oom-kill"}}, false,
			stopped(exitstatus.Killed, 15, time.Second), "failed", "oom-kill"},
		{"its scope was stopped since its time was up", []Scope{{Name: alive[0].Name, InvocationID: "inv", Result: "timeout", TimedOut: time.Nanosecond}}, false,
			stopped(exitstatus.Exited, 0, time.Second), "failed", "timeout"},
		{"the machine went down, it can be resumed", nil, true, func(_ *bed, rec *session.Session) { rec.Run.BootID = "last boot" }, "suspended", "session-lost"},
		{"the machine went down, it cannot be resumed", nil, false, func(_ *bed, rec *session.Session) { rec.Run.BootID = "last boot" }, "failed", "session-lost"},
		{"the machine went down after its exit", nil, true, func(b *bed, rec *session.Session) {
			rec.Run.BootID = "last boot"
			exited(exitstatus.Exited, 3)(b, rec)
		}, "failed", "exit-code"},
		{"the daemon was killed before it had a scope", nil, false, func(_ *bed, rec *session.Session) {
			rec.Run.Scope, rec.Run.Tmux, rec.Run.Shim, rec.Run.Started = session.ScopeNone, session.NotSeen, session.NotSeen, time.Time{}
		}, "failed", "start-failed"},
		{"the daemon was killed before it had a tmux", alive, false, func(_ *bed, rec *session.Session) {
			rec.Run.Tmux, rec.Run.Shim, rec.Run.Started = session.NotSeen, session.NotSeen, time.Time{}
		}, "failed", "start-failed"},
		{"the daemon was killed before it had a scope for what is resumed", nil, false, func(_ *bed, rec *session.Session) {
			rec.Run.Scope, rec.Run.Tmux, rec.Run.Shim, rec.Run.Started, rec.Run.WasSuspended = session.ScopeNone, session.NotSeen, session.NotSeen, time.Time{}, true
		}, "suspended", "success"},
		{"the daemon was killed before it had a tmux for what is resumed", alive, false, func(_ *bed, rec *session.Session) {
			rec.Run.Tmux, rec.Run.Shim, rec.Run.Started, rec.Run.WasSuspended = session.NotSeen, session.NotSeen, time.Time{}, true
		}, "suspended", "success"},
		{"tmux was killed meanwhile", alive, false, func(b *bed, _ *session.Session) { b.world.dead = true }, "stale", "session-lost"},
		{"the shim was killed meanwhile, tmux is there", alive, false, func(b *bed, _ *session.Session) { b.world.answers = true }, "failed", "agent-lost"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				b.world.scopes = row.scopes
				b.world.populated = len(row.scopes) > 0 && row.scopes[0].Active
				rec := runningRecord(b, row.resumable)
				require.NoError(t, b.records.Create("shop"))
				if row.found != nil {
					row.found(b, rec)
				}
				require.NoError(t, b.sup.Adopt(t.Context(), []*session.Session{rec}))
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); b.sup.Run(ctx) }()
				synctest.Wait()
				snap, err := b.sup.Session("shop")
				require.NoError(t, err)
				assert.Equal(t, []string{row.state, row.result}, []string{snap.State, snap.Result}, snap.Reason)
				assert.Equal(t, session.State(row.state), b.records.last("shop").View().State, "saved")
				cancel()
				<-done
			})
		})
	}
}

func TestAdoptionGoesOnWithWhatWasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		rec := runningRecord(b, false)
		rec.Apply(session.EndAsked{Run: "r1", Intent: session.Stop, At: time.Now()})
		require.NoError(t, b.records.Create("shop"))
		b.world.scopes = []Scope{{Name: rec.Run.Unit, InvocationID: "inv", ControlGroup: "/shop", Active: true}, {Name: "app-corral-x-y.scope", Active: true}}
		require.NoError(t, b.sup.Adopt(t.Context(), []*session.Session{rec}))
		ctx, cancel := context.WithCancel(t.Context())
		go b.sup.Run(ctx)
		assert.Equal(t, "stopping", b.state("shop"))
		<-time.After(10 * time.Second)
		assert.Contains(t, b.heard(), "10s kill shop", "the ending goes on to its end")
		assert.Contains(t, b.log.String(), "app-corral-x-y.scope", "a scope that belongs to nobody is told of")
		b.empty("shop")
		assert.Equal(t, "stopped", b.state("shop"))
		cancel()
		synctest.Wait()
	})
}

// TestAnEndThatSystemdDoesNotTell, because it has taken the scope for dead before: the kernel tells that it is empty.
func TestAnEndThatSystemdDoesNotTell(t *testing.T) {
	supervise(t, func(b *bed) {
		require.NoError(t, os.WriteFile(b.world.FreezerFile(""), nil, 0o600))
		b.start("shop")
		b.world.scopesErr = errors.New("systemd does not answer")
		b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) })
		b.exit("shop", 143)
		b.files.tell(b.world.FreezerFile(""), "", unix.IN_MODIFY) // it has processes
		b.rests(time.Second)
		b.heard()
		b.meanwhile(func() { b.world.populated = false })
		b.files.tell(b.world.FreezerFile(""), "", unix.IN_MODIFY)
		b.rests(emptyTime)
		assert.Equal(t, "stopping", b.state("shop"))
		assert.Contains(t, b.log.String(), "cannot list the scopes")
		b.meanwhile(func() { b.world.scopesErr = nil })
		b.rests(firstRetry)
		assert.Equal(t, "stopped", b.state("shop"))
		assert.Contains(t, b.heard(), "4s stop: ok")
	})
}

// TestScopeEnd_ThatSystemdDoesNotNotice: systemd has no inotify watch for the scope, and lists it
// as active though it is empty. The daemon notices it by its own watch, or without one by looking
// again, and has systemd end the scope before anything else is done with its name.
func TestScopeEnd_ThatSystemdDoesNotNotice(t *testing.T) {
	for _, watched := range []bool{true, false} {
		t.Run(fmt.Sprintf("watched %t", watched), func(t *testing.T) {
			supervise(t, func(b *bed) {
				require.NoError(t, os.WriteFile(b.world.FreezerFile(""), nil, 0o600))
				if !watched {
					b.files.fails = noWatchesLeft
				}
				b.start("shop")
				scope := Scope{Name: "app-corral-command-shop.scope", InvocationID: "inv", ControlGroup: "/shop", Active: true}
				b.world.scopes = []Scope{scope}
				b.rests(time.Minute)
				b.heard()
				b.call("remove", func(ctx context.Context) error { return b.sup.Remove(ctx, "shop", true) })
				b.exit("shop", 143)
				b.meanwhile(func() { b.world.populated = false })
				if watched {
					b.files.tell(b.world.FreezerFile(""), "", unix.IN_MODIFY)
				}
				b.rests(emptyTime - time.Millisecond)
				assert.Equal(t, "stopping", b.state("shop"))
				b.rests(lookRetry + time.Millisecond)
				told := only(b.heard(), "release", "clear", "remove:")
				for i := range told {
					_, told[i], _ = strings.Cut(told[i], " ")
				}
				assert.Equal(t, []string{"release shop", "clear app-corral-command-shop.scope", "remove: ok"}, told)
			})
		})
	}
}

// TestAnEndThatSystemdTells is one that nobody has to ask for.
func TestAnEndThatSystemdTells(t *testing.T) {
	supervise(t, func(b *bed) {
		require.NoError(t, os.WriteFile(b.world.FreezerFile(""), nil, 0o600))
		b.start("shop")
		b.exit("shop", 0)
		b.meanwhile(func() { b.world.populated, b.world.scopesErr = false, errors.New("nobody asks") })
		b.files.tell(b.world.FreezerFile(""), "", unix.IN_MODIFY)
		b.empty("shop")
		b.rests(time.Minute)
		assert.NotContains(t, b.log.String(), "cannot list the scopes")
	})
}

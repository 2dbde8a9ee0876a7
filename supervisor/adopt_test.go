package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/clock"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/supervisor/session"
)

// runningRecord returns a session that was running when it was last saved.
func runningRecord(b *bed, resumable bool) *session.Session {
	rec := &session.Session{
		ID: "shop", Agent: "command", Command: []string{"true"}, WorkingDirectory: b.home,
		Created: time.Now(), NRuns: 1, StateChanged: time.Now(),
	}
	if resumable {
		rec.ResumeCommand = []string{"true"}
	}
	for _, e := range []session.Event{
		session.RunBegun{Run: "r1", BootID: "boot", Unit: unitname.Scope("command", "shop"), At: time.Now()},
		session.ScopeStarted{Run: "r1", InvocationID: "inv", ControlGroup: "/shop"},
		session.TmuxStarted{Run: "r1", Process: session.Process{}},
		session.AgentStarted{Run: "r1", Agent: session.Process{PID: 12, Start: 120}, At: time.Now()},
	} {
		rec.Apply(e)
	}
	return rec
}

// TestAdopt_DeterminesTheState covers each situation that a daemon can find when it starts.
func TestAdopt_DeterminesTheState(t *testing.T) {
	const unit = "app-corral-command-shop.scope"
	alive := []Scope{{Name: unit, InvocationID: "inv", ControlGroup: "/shop", Active: true}}
	ended := func(result string, timedOut time.Duration) []Scope {
		return []Scope{{Name: unit, InvocationID: "inv", Result: result, TimedOut: timedOut}}
	}
	const longAgo = time.Nanosecond // by CLOCK_MONOTONIC
	exited := func(code exitstatus.Code, value int) func(*bed, *session.Session) {
		return func(b *bed, rec *session.Session) {
			b.writeExitStatus(rec, exitstatus.Status{RunID: "r1", Code: code, Value: value, Exited: time.Now()})
		}
	}
	const now = time.Hour // by the bed's clock
	stopped := func(code exitstatus.Code, value int, began time.Duration) func(*bed, *session.Session) {
		return func(b *bed, rec *session.Session) {
			b.system.began = began
			b.writeExitStatus(rec, exitstatus.Status{
				RunID: "r1", Code: code, Value: value,
				Exited: time.Now(), ExitedMonotonic: now, SIGTERMMonotonic: now - time.Millisecond,
			})
		}
	}
	saved := func(rec *session.Session, at time.Time) {
		rec.Apply(session.AgentExited{Status: exitstatus.Status{
			RunID: "r1", Code: exitstatus.Killed, Value: 15,
			Exited: at, ExitedMonotonic: now, SIGTERMMonotonic: now - time.Millisecond,
		}})
	}
	rebooted := func(_ *bed, rec *session.Session) { rec.Run.BootID = "last boot" }
	withoutTmux := func(_ *bed, rec *session.Session) {
		rec.Run.Tmux, rec.Run.Shim, rec.Run.Started = session.NotSeen, session.NotSeen, time.Time{}
	}
	withoutScope := func(b *bed, rec *session.Session) {
		rec.Run.Scope = session.ScopeNone
		withoutTmux(b, rec)
	}
	for _, row := range []struct {
		name      string
		scopes    []Scope
		resumable bool
		found     func(*bed, *session.Session)
		state     string
		result    string
	}{
		{"the agent exited meanwhile, tmux is still open", alive, false,
			exited(exitstatus.Exited, 3), "failed", "exit-code"},
		{"the agent completed meanwhile, the scope is gone", nil, false,
			exited(exitstatus.Exited, 0), "completed", "success"},
		{"the agent was killed meanwhile, the scope is gone", nil, false,
			exited(exitstatus.Killed, 9), "failed", "signal"},
		{"the recorded exit belongs to an earlier run", nil, false, func(b *bed, rec *session.Session) {
			b.writeExitStatus(rec, exitstatus.Status{RunID: "r0", Code: exitstatus.Exited, Exited: time.Now()})
		}, "failed", "session-lost"},
		{"everything is gone and nothing was recorded", nil, true, nil, "failed", "session-lost"},
		{"another scope has the name now", []Scope{{Name: unit, InvocationID: "other", Active: true}}, false,
			nil, "failed", "session-lost"},
		{"systemd keeps the failed scope", ended("oom-kill", 0), false, nil, "failed", "oom-kill"},
		{"the scope timed out meanwhile, and the agent then exited with 0", ended("timeout", longAgo), false,
			exited(exitstatus.Exited, 0), "failed", "timeout"},
		{"the agent had exited with 0 before the scope timed out", ended("timeout", clock.Monotonic()+time.Hour), false,
			exited(exitstatus.Exited, 0), "completed", "success"},
		{"the scope timed out meanwhile", ended("timeout", longAgo), false,
			exited(exitstatus.Killed, 15), "failed", "timeout"},
		{"the scope was stopped meanwhile, but not in time", ended("timeout", 0), false, nil, "stopped", "success"},
		{"the scope was stopped while corrald was shut down, but not in time", ended("timeout", 0), false,
			func(_ *bed, rec *session.Session) { rec.Apply(session.LeftRunning{Run: "r1", At: time.Now()}) },
			"stopped", "success"},
		{"the scope was stopped after the agent had exited, but not in time", ended("timeout", 0), false,
			exited(exitstatus.Exited, 3), "failed", "exit-code"},
		{"the scope was stopped meanwhile", nil, false,
			stopped(exitstatus.Exited, 143, time.Second), "stopped", "success"},
		{"the scope was stopped meanwhile, which killed the agent", nil, false,
			stopped(exitstatus.Killed, 15, time.Second), "stopped", "success"},
		{"the exit was saved, but not yet the stop of the scope", nil, false, func(_ *bed, rec *session.Session) {
			saved(rec, time.Now().Add(-time.Second))
		}, "stopped", "success"},
		{"the exit was saved long before the scope ended", nil, false, func(_ *bed, rec *session.Session) {
			saved(rec, time.Now().Add(-recentExit))
		}, "failed", "signal"},
		{"the exit was saved, and the scope is not being stopped", alive, false, func(_ *bed, rec *session.Session) {
			saved(rec, time.Now().Add(-time.Second))
		}, "failed", "signal"},
		{"the scope was signalled long before the exit", nil, false, func(b *bed, rec *session.Session) {
			b.writeExitStatus(rec, exitstatus.Status{
				RunID: "r1", Code: exitstatus.Exited,
				Exited: time.Now(), ExitedMonotonic: now, SIGTERMMonotonic: now - time.Minute,
			})
		}, "completed", "success"},
		{"the scope is being stopped", []Scope{{Name: unit, InvocationID: "inv", Active: true, Stopping: true}}, false,
			stopped(exitstatus.Exited, 0, time.Second), "stopping", ""},
		{"the manager is stopping", nil, false, func(b *bed, rec *session.Session) {
			b.system.stops = true
			stopped(exitstatus.Exited, 143, time.Second)(b, rec)
		}, "suspended", "success"},
		{"the scope was stopped, and the manager was started again", nil, false,
			stopped(exitstatus.Exited, 143, now), "suspended", "success"},
		{"the scope was stopped, and the machine went down", nil, false, func(b *bed, rec *session.Session) {
			rebooted(b, rec)
			stopped(exitstatus.Exited, 143, time.Second)(b, rec)
		}, "suspended", "success"},
		{"the scope was stopped because memory ran out", ended("oom-kill", 0), false,
			stopped(exitstatus.Killed, 15, time.Second), "failed", "oom-kill"},
		{"the scope was stopped because it timed out", ended("timeout", longAgo), false,
			stopped(exitstatus.Exited, 0, time.Second), "failed", "timeout"},
		{"the machine went down, the session can be resumed", nil, true, rebooted, "suspended", "session-lost"},
		{"the machine went down, the session cannot be resumed", nil, false, rebooted, "failed", "session-lost"},
		{"the machine went down after the agent's exit", nil, true, func(b *bed, rec *session.Session) {
			rebooted(b, rec)
			exited(exitstatus.Exited, 3)(b, rec)
		}, "failed", "exit-code"},
		{"the daemon was killed before the scope was started", nil, false, withoutScope, "failed", "start-failed"},
		{"the daemon was killed before tmux was started", alive, false, withoutTmux, "failed", "start-failed"},
		{"the daemon was killed before the scope of a resumed session was started", nil, false,
			func(b *bed, rec *session.Session) { withoutScope(b, rec); rec.Run.WasSuspended = true },
			"suspended", "success"},
		{"the daemon was killed before the tmux of a resumed session was started", alive, false,
			func(b *bed, rec *session.Session) { withoutTmux(b, rec); rec.Run.WasSuspended = true },
			"suspended", "success"},
		{"tmux was killed meanwhile", alive, false,
			func(b *bed, _ *session.Session) { b.system.dead = true }, "stale", "session-lost"},
		{"the shim was killed meanwhile, tmux is still there", alive, false,
			func(b *bed, _ *session.Session) { b.system.answers = true }, "failed", "agent-lost"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				b.system.scopes = row.scopes
				b.system.populated = len(row.scopes) > 0 && row.scopes[0].Active
				rec := runningRecord(b, row.resumable)
				require.NoError(t, b.records.Create("shop"))
				if row.found != nil {
					row.found(b, rec)
				}
				require.NoError(t, b.sup.Adopt(t.Context(), []*session.Session{rec}))
				ctx, cancel := context.WithCancel(t.Context())
				done := b.runInBackground(ctx)
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

// TestAdopt_SavesAnExitAtOnce: if this daemon is killed as well, the next one does not publish the
// exit once more.
func TestAdopt_SavesAnExitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		rec := runningRecord(b, false)
		var st unix.Stat_t
		require.NoError(t, unix.Stat(b.home, &st))
		rec.Apply(session.WorkspaceObserved{Inode: session.Inode{Device: st.Dev, Number: st.Ino}})
		require.NoError(t, b.records.Create("shop"))
		b.system.scopes = []Scope{{Name: rec.Run.Unit, InvocationID: "inv", ControlGroup: "/shop", Active: true}}
		b.system.populated = true
		b.writeExitStatus(rec, exitstatus.Status{RunID: "r1", Code: exitstatus.Exited, Value: 3, Exited: time.Now()})
		require.NoError(t, b.sup.Adopt(t.Context(), []*session.Session{rec}))
		assert.Equal(t, 3, b.records.last("shop").Run.Exit.Value)
	})
}

// TestAdopt_UnwatchesEndedScopes: systemd does not report their ends again.
func TestAdopt_UnwatchesEndedScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		var saved []*session.Session
		for _, id := range []string{"a", "b", "c"} {
			rec := runningRecord(b, false)
			rec.ID, rec.Run.Unit = id, unitname.Scope("command", id)
			require.NoError(t, b.records.Create(id))
			saved = append(saved, rec)
		}
		b.system.populated = false
		b.system.scopes = []Scope{
			{Name: saved[2].Run.Unit, InvocationID: "inv", ControlGroup: "/shop", Active: true},
		}
		require.NoError(t, b.sup.Adopt(t.Context(), saved))
		synctest.Wait()
		require.Len(t, b.system.unwatched, 1)
		assert.ElementsMatch(t, []string{saved[0].Run.Unit, saved[1].Run.Unit}, b.system.unwatched[0])
		ctx, cancel := context.WithCancel(t.Context())
		ended := b.runInBackground(ctx)
		b.endScope("c")
		synctest.Wait()
		assert.Equal(t, []string{saved[2].Run.Unit}, b.system.unwatched[1])
		cancel()
		<-ended
	})
}

func TestAdopt_ContinuesAPendingStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		rec := runningRecord(b, false)
		rec.Apply(session.IntentSet{Run: "r1", Intent: session.Stop, Moment: session.Moment{At: time.Now()}})
		require.NoError(t, b.records.Create("shop"))
		b.system.scopes = []Scope{
			{Name: rec.Run.Unit, InvocationID: "inv", ControlGroup: "/shop", Active: true},
			{Name: "app-corral-x-y.scope", Active: true},
		}
		require.NoError(t, b.sup.Adopt(t.Context(), []*session.Session{rec}))
		ctx, cancel := context.WithCancel(t.Context())
		go b.run(ctx)
		assert.Equal(t, "stopping", b.state("shop"))
		<-time.After(10 * time.Second)
		assert.Contains(t, b.takeTrace(), "10s kill shop", "the escalation continues")
		assert.Contains(t, b.log.String(), "app-corral-x-y.scope", "a scope that belongs to no session is logged")
		b.endScope("shop")
		assert.Equal(t, "stopped", b.state("shop"))
		cancel()
		synctest.Wait()
	})
}

// TestScopeEnd_IsDetectedByTheKernelsEvent: systemd does not report the end of the scope, because
// it had considered the scope dead before. An event of the kernel reports that the scope is empty.
func TestScopeEnd_IsDetectedByTheKernelsEvent(t *testing.T) {
	supervise(t, func(b *bed) {
		require.NoError(t, os.WriteFile(b.system.EventsFile(""), nil, 0o600))
		b.start("shop")
		b.system.scopesErr = errors.New("systemd does not answer")
		b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) })
		b.exit("shop", 143)
		b.changedControlGroup() // it has processes
		b.advance(time.Second)
		b.takeTrace()
		b.onLoop(func() { b.system.populated = false })
		b.changedControlGroup()
		b.advance(emptyScopeTimeout)
		assert.Equal(t, "stopping", b.state("shop"))
		assert.Contains(t, b.log.String(), "cannot list the scopes")
		b.onLoop(func() { b.system.scopesErr = nil })
		b.advance(firstRetry)
		assert.Equal(t, "stopped", b.state("shop"))
		assert.Contains(t, b.takeTrace(), "4s stop: ok")
	})
}

// TestScopeEnd_ThatSystemdDoesNotNotice: systemd has no inotify watch for the scope, and lists it
// as active although it is empty. The daemon detects the end by its own watch, or without one by
// checking again later, and has systemd end the scope before the name is used for anything else.
func TestScopeEnd_ThatSystemdDoesNotNotice(t *testing.T) {
	for _, watched := range []bool{true, false} {
		t.Run(fmt.Sprintf("watched %t", watched), func(t *testing.T) {
			supervise(t, func(b *bed) {
				require.NoError(t, os.WriteFile(b.system.EventsFile(""), nil, 0o600))
				if !watched {
					b.files.fails = noWatchesLeft
				}
				b.start("shop")
				b.system.scopes = []Scope{
					{Name: "app-corral-command-shop.scope", InvocationID: "inv", ControlGroup: "/shop", Active: true},
				}
				b.advance(time.Minute)
				b.takeTrace()
				b.call("remove", func(ctx context.Context) error { return b.sup.Remove(ctx, "shop", true) })
				b.exit("shop", 143)
				b.onLoop(func() { b.system.populated = false })
				if watched {
					b.changedControlGroup()
				}
				b.advance(emptyScopeTimeout - time.Millisecond)
				assert.Equal(t, "stopping", b.state("shop"))
				b.advance(watchRetry + time.Millisecond)
				trace := only(b.takeTrace(), "release", "clear", "remove:")
				for i := range trace {
					_, trace[i], _ = strings.Cut(trace[i], " ")
				}
				assert.Equal(t, []string{"release shop", "clear app-corral-command-shop.scope", "remove: ok"}, trace)
			})
		})
	}
}

// TestScopeEnd_ReportedBySystemdNeedsNoQuery: the daemon does not list the scopes if systemd
// reports the end by itself.
func TestScopeEnd_ReportedBySystemdNeedsNoQuery(t *testing.T) {
	supervise(t, func(b *bed) {
		require.NoError(t, os.WriteFile(b.system.EventsFile(""), nil, 0o600))
		b.start("shop")
		b.exit("shop", 0)
		b.onLoop(func() { b.system.populated, b.system.scopesErr = false, errors.New("not expected to be listed") })
		b.changedControlGroup()
		b.endScope("shop")
		b.advance(time.Minute)
		assert.NotContains(t, b.log.String(), "cannot list the scopes")
	})
}

// TestResync_IgnoresARunThatIsAboutToStart lists the scopes in the iteration that has decided to
// start a run, whose scope cannot exist yet.
func TestResync_IgnoresARunThatIsAboutToStart(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.exit("shop", 0)
		b.endScope("shop")
		require.Equal(t, "completed", b.state("shop"))
		b.system.populated = false
		var isStarted atomic.Bool
		b.system.start = func(p Plan, report func(session.Event)) error {
			isStarted.Store(true)
			return runs(p, report)
		}
		unit := unitname.Scope("command", "shop")
		b.system.list = func() []Scope {
			return []Scope{{Name: unit, InvocationID: "inv", ControlGroup: "/" + unit, Active: isStarted.Load()}}
		}
		started := make(chan error, 1)
		await := func() { <-time.After(time.Millisecond) } // until all other goroutines wait
		b.sup.loop.post(func() {
			go func() { started <- b.sup.Start(b.t.Context(), "shop") }()
			await()
			go b.sup.loop.post(func() {
				await() // the start is requested
				go b.sup.Resync()
				await()
				go b.sup.loop.post(await) // the scopes are listed
				await()
			})
			await()
		})
		require.NoError(t, <-started)
		assert.Equal(t, "running", b.state("shop"))
	})
}

func TestResync_CallsDuringAListingLeadToOneMore(t *testing.T) {
	supervise(t, func(b *bed) {
		var listed atomic.Int32
		b.system.list = func() []Scope {
			listed.Add(1)
			<-time.After(time.Second)
			return nil
		}
		for range 100 {
			go b.sup.Resync()
		}
		<-time.After(time.Minute)
		assert.EqualValues(t, 2, listed.Load())
	})
}

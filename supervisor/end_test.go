package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/supervisor/session"
)

// startThenStop creates a running session and calls Stop for it.
func (b *bed) startThenStop(grace time.Duration) {
	b.t.Helper()
	b.start("shop")
	b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", grace) })
	assert.Equal(b.t, []string{
		"0s save shop: stopping", "0s publish shop: running -> stopping", "0s terminate shop",
	}, moveLast(b.takeTrace(), "terminate"))
}

// moveLast moves the lines with this verb to the end: the effects and the publication of one
// iteration begin at the same time, in any order.
func moveLast(trace []string, verb string) []string {
	var first, last []string
	for _, line := range trace {
		if len(line) > 3 && line[3:3+min(len(verb), len(line)-3)] == verb {
			last = append(last, line)
		} else {
			first = append(first, line)
		}
	}
	return append(first, last...)
}

func TestStop_EscalatesToSIGKILL(t *testing.T) {
	supervise(t, func(b *bed) {
		b.startThenStop(0)
		<-time.After(25 * time.Second)
		assert.Equal(t, []string{
			"1s SIGHUP shop", "1s publish shop: stopping",
			"8s signal all shop SIGTERM", "8s publish shop: stopping",
			"10s kill shop", "20s kill shop",
		}, effectsFirst(b.takeTrace()))
		<-time.After(20 * time.Second)
		assert.Equal(t, []string{"40s kill shop"}, b.takeTrace(), "as long as the scope exists")
		b.endScope("shop")
		assert.Equal(t, []string{
			"45s save shop: stopped", "45s publish shop: stopping -> stopped", "45s answer 1", "45s stop: ok",
		}, b.takeTrace())
		<-time.After(time.Hour)
		assert.Empty(t, b.takeTrace())
	})
}

// effectsFirst moves a publication after the effect of the same iteration: they begin at the same
// time, in any order.
func effectsFirst(trace []string) []string {
	for i := range len(trace) - 1 {
		if len(trace[i]) > 10 && trace[i][:10] == trace[i+1][:2]+" publish"[:8] {
			trace[i], trace[i+1] = trace[i+1], trace[i]
		}
	}
	return trace
}

func TestStop_UsesTheGraceOfTheCaller(t *testing.T) {
	supervise(t, func(b *bed) {
		b.startThenStop(2 * time.Second)
		<-time.After(3 * time.Second)
		trace := b.takeTrace()
		assert.Contains(t, trace, "0.5s SIGHUP shop")
		assert.Contains(t, trace, "1s signal all shop SIGTERM")
		assert.Contains(t, trace, "2s kill shop")
		b.endScope("shop")
	})
}

// TestStop_WaitsForTheKilledScope: systemd reports its end some time after SIGKILL, however short
// the grace is.
func TestStop_WaitsForTheKilledScope(t *testing.T) {
	supervise(t, func(b *bed) {
		b.startThenStop(time.Millisecond)
		<-time.After(1500 * time.Millisecond)
		trace := b.takeTrace()
		assert.Contains(t, trace, "0.001s kill shop")
		assert.NotContains(t, strings.Join(trace, "\n"), "stop:")
		b.endScope("shop")
		assert.Contains(t, b.takeTrace(), "1.5s stop: ok")
	})
}

// TestStop_KillsSurvivorsAgain: after the last of several kills, calls fail. The next call kills
// the scope again and waits as the first one did.
func TestStop_KillsSurvivorsAgain(t *testing.T) {
	supervise(t, func(b *bed) {
		b.startThenStop(0)
		<-time.After(12 * time.Second)
		b.takeTrace()
		b.call("again", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) })
		assert.Contains(t, b.takeTrace(), "12s kill shop", "between two kills")
		<-time.After(188 * time.Second)
		trace := b.takeTrace()
		assert.Contains(t, trace, "80s kill shop")
		assert.Contains(t, trace, `160s stop: session "shop" is still stopping: some of its processes have survived SIGKILL`)
		b.call("remove", func(ctx context.Context) error { return b.sup.Remove(ctx, "shop", true) })
		trace = b.takeTrace()
		assert.Contains(t, trace, "200s kill shop")
		assert.NotContains(t, strings.Join(trace, "\n"), "remove:", "a call that has failed must remove nothing later")
		b.endScope("shop")
		assert.Contains(t, b.takeTrace(), "200s remove: ok")
	})
}

func TestStop_SecondOneCanShortenTheGrace(t *testing.T) {
	supervise(t, func(b *bed) {
		b.startThenStop(time.Hour)
		<-time.After(10 * time.Second)
		b.takeTrace()
		b.call("again", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", time.Second) })
		trace := b.takeTrace()
		assert.Contains(t, trace, "10s signal all shop SIGTERM")
		assert.Contains(t, trace, "10s kill shop", "the grace counts from the first SIGTERM")
		b.endScope("shop")
		assert.Subset(t, b.takeTrace(), []string{"10s stop: ok", "10s again: ok"})
	})
}

func TestStop_SignalsLeftoversOnceTheAgentIsGone(t *testing.T) {
	supervise(t, func(b *bed) {
		b.startThenStop(0)
		<-time.After(300 * time.Millisecond)
		b.exit("shop", 143)
		trace := b.takeTrace()
		assert.Contains(t, trace, "0.3s sync the exit of shop")
		assert.Contains(t, trace, "0.3s signal all shop SIGTERM")
		assert.NotContains(t, trace, "0.3s save shop: stopping", "saved when the scope ends, or later")
		<-time.After(9 * time.Second)
		assert.Equal(t, []string{"0.4s save shop: stopping", "0.4s publish shop: stopping"}, b.takeTrace(),
			"an agent that has exited does not get SIGHUP")
		b.endScope("shop")
		assert.Equal(t, "stopped", b.state("shop"))
	})
}

func TestStop_DoesNothingIfTheSessionDoesNotRun(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.exit("shop", 0)
		b.endScope("shop")
		b.takeTrace()
		require.NoError(t, b.sup.Stop(b.t.Context(), "shop", 0))
		assert.Empty(t, b.takeTrace())
		assert.Equal(t, NoSuchSession, kindOf(b.sup.Stop(b.t.Context(), "other", 0)))
	})
}

func TestStop_EndsLeftoversOfAnEndedSession(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.exit("shop", 0)
		b.takeTrace()
		b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) })
		assert.Contains(t, b.takeTrace(), "0s signal all shop SIGTERM")
		b.endScope("shop")
		assert.Equal(t, "completed", b.state("shop"), "the state remains")
	})
}

func TestStart_IsEndedIfItHangs(t *testing.T) {
	supervise(t, func(b *bed) {
		b.system.start = func(p Plan, report func(session.Event)) error { scopeRuns(p, report); return nil }
		b.call("create", func(ctx context.Context) error {
			_, err := b.sup.Create(ctx, "claude", Spec{ID: "shop"})
			return err
		})
		b.takeTrace()
		<-time.After(systemdTimeout - time.Millisecond)
		assert.Equal(t, []string{"2s continue shop"}, b.takeTrace(), "its shim may be stopped")
		<-time.After(2 * time.Second)
		trace := b.takeTrace()
		assert.Contains(t, trace, "30s publish shop: starting -> failed")
		assert.Contains(t, trace, `30s create: cannot start "shop": its agent did not appear within 30s`)
		assert.Contains(t, trace, "30s signal all shop SIGTERM")
		assert.Contains(t, trace, "31s kill shop")
		b.sup.ScopeEnded(unitname.Scope("claude", "shop"), "", "success")
		snap, err := b.sup.Session("shop")
		require.NoError(t, err)
		assert.Equal(t, []string{"failed", "start-failed"}, []string{snap.State, snap.Result})
	})
}

func TestStart_ReturnsWhyItFailed(t *testing.T) {
	supervise(t, func(b *bed) {
		b.system.start = func(p Plan, report func(session.Event)) error {
			report(session.ScopeStarted{Run: p.Spec.RunID})
			return errors.New("tmux is not installed")
		}
		_, err := b.sup.Create(b.t.Context(), "claude", Spec{ID: "shop"})
		assert.Equal(t, StartFailed, kindOf(err))
		require.EqualError(t, err, `cannot start "shop": tmux is not installed`)
		assert.Equal(t, "failed", b.state("shop"))
		<-time.After(time.Hour)
		b.takeTrace()
		b.system.start = nil
		require.NoError(t, b.sup.Start(b.t.Context(), "shop"), "a person may try again")
	})
}

func TestStart_LeavesNoScopeIfTheCommandCannotBeExecuted(t *testing.T) {
	supervise(t, func(b *bed) {
		b.system.start = func(p Plan, report func(session.Event)) error { scopeRuns(p, report); return nil }
		b.call("create", func(ctx context.Context) error {
			_, err := b.sup.Create(ctx, "claude", Spec{ID: "shop"})
			return err
		})
		b.takeTrace()
		rec := b.records.last("shop")
		b.writeExitStatus(rec, exitstatus.Status{
			RunID: rec.Run.ID, Code: exitstatus.NotStarted, Error: `"claude" not found`, Exited: time.Now(),
		})
		b.changed("shop", exitstatus.FileName, fsnotify.Create)
		trace := b.takeTrace()
		assert.Contains(t, trace, `0s create: cannot start "shop": "claude" not found`)
		assert.Contains(t, trace, "0s signal all shop SIGTERM")
		<-time.After(2 * time.Second)
		assert.Contains(t, b.takeTrace(), "1s kill shop")
	})
}

func TestRestart_StopsThenStarts(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		first := b.records.last("shop").Run.ID
		b.call("restart", func(ctx context.Context) error { return b.sup.Restart(ctx, "shop") })
		assert.Contains(t, b.takeTrace(), "0s terminate shop")
		assert.Equal(t, InvalidState, kindOf(b.sup.Start(b.t.Context(), "shop")))
		assert.Equal(t, InvalidState, kindOf(b.sup.Restart(b.t.Context(), "shop")))
		b.exit("shop", 143)
		assert.NotContains(t, b.takeTrace(), "0s start shop", "there are leftover processes in the scope")
		b.endScope("shop")
		trace := b.takeTrace()
		assert.Equal(t, "0s save shop: starting", trace[0])
		assert.Contains(t, trace, "0s start shop")
		published := slices.Index(trace, "0s publish shop: starting -> running")
		assert.Positive(t, published)
		assert.Less(t, published, slices.Index(trace, "0s restart: ok"))
		rec := b.records.last("shop")
		assert.NotEqual(t, first, rec.Run.ID)
		require.Len(t, rec.Past, 1)
		assert.Equal(t, first, rec.Past[0].ID)
		assert.Equal(t, 143, rec.Past[0].Exit.Value)
		<-time.After(time.Hour)
		assert.Empty(t, b.takeTrace(), "the escalation of the first run does not affect the second")
	})
}

func TestStart_EndsLeftoversOfAnEarlierRun(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.exit("shop", 1)
		b.takeTrace()
		b.call("start", func(ctx context.Context) error { return b.sup.Start(ctx, "shop") })
		trace := b.takeTrace()
		assert.Contains(t, trace, "0s signal all shop SIGTERM")
		assert.NotContains(t, trace, "0s start shop")
		b.endScope("shop")
		trace = b.takeTrace()
		assert.Contains(t, trace, "0s start shop")
		assert.Contains(t, trace, "0s start: ok")
	})
}

func TestRemove(t *testing.T) {
	t.Run("a running session is refused", func(t *testing.T) {
		supervise(t, func(b *bed) {
			b.start("shop")
			assert.Equal(t, InvalidState, kindOf(b.sup.Remove(b.t.Context(), "shop", false)))
			assert.Empty(t, b.takeTrace())
		})
	})
	t.Run("force stops the session first", func(t *testing.T) {
		supervise(t, func(b *bed) {
			b.start("shop")
			b.call("remove", func(ctx context.Context) error { return b.sup.Remove(ctx, "shop", true) })
			assert.Contains(t, b.takeTrace(), "0s terminate shop")
			b.endScope("shop")
			trace := b.takeTrace()
			last := trace[len(trace)-4:]
			assert.Equal(t, "0s remove shop", last[0], "the record is removed before that is published")
			assert.ElementsMatch(t, []string{"0s publish shop: removed", "0s answer 1", "0s remove: ok"}, last[1:])
			assert.Contains(t, trace[:len(trace)-4], "0s clear app-corral-command-shop.scope",
				"what the run left behind is removed before the id can be used again")
			_, err := b.sup.Session("shop")
			assert.Equal(t, NoSuchSession, kindOf(err))
			b.start("shop")
		})
	})
	t.Run("late events of a removed session are ignored", func(t *testing.T) {
		supervise(t, func(b *bed) {
			b.start("shop")
			b.exit("shop", 0)
			b.endScope("shop")
			require.NoError(t, b.sup.Remove(b.t.Context(), "shop", false))
			b.takeTrace()
			b.endScope("shop")
			b.sup.ScopeStopRequested(unitname.Scope("command", "shop"), "")
			b.fds.allReady()
			assert.Empty(t, b.takeTrace())
		})
	})
}

func TestArchive(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		assert.Equal(t, InvalidState, kindOf(b.sup.Archive(b.t.Context(), "shop")))
		b.exit("shop", 0)
		b.takeTrace()
		b.call("archive", func(ctx context.Context) error { return b.sup.Archive(ctx, "shop") })
		assert.Contains(t, b.takeTrace(), "0s signal all shop SIGTERM")
		b.endScope("shop")
		assert.Equal(t, []string{
			"0s save shop: archived", "0s publish shop: completed -> archived", "0s answer 1", "0s archive: ok",
		}, b.takeTrace())
		assert.Equal(t, InvalidState, kindOf(b.sup.Start(b.t.Context(), "shop")))
		assert.Equal(t, InvalidState, kindOf(b.sup.Restart(b.t.Context(), "shop")))
		assert.Equal(t, "archived", b.state("shop"))
	})
}

func TestScopeStopRequested_StopsTheSession(t *testing.T) {
	for _, row := range []struct {
		name                  string
		prepare               func(*fakeSystem)
		state, result, reason string
	}{
		{"RuntimeMaxSec has elapsed", func(w *fakeSystem) { w.result = "timeout" },
			"failed", "timeout", "it ran for as long as RuntimeMaxSec allows"},
		{"the login session ends", func(w *fakeSystem) { w.result, w.stops = "success", true },
			"suspended", "success", "the login session ended"},
		{"somebody stops the scope", func(w *fakeSystem) { w.result = "success" },
			"stopped", "success", "its scope was stopped"},
		{"the cause is unknown", func(w *fakeSystem) { w.causeErr = errors.New("no answer") }, "stopped", "success", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				row.prepare(b.system)
				b.start("shop")
				b.sup.ScopeStopRequested(unitname.Scope("command", "shop"), "")
				b.sup.ScopeStopRequested(unitname.Scope("command", "shop"), "")
				assert.Equal(t, "stopping", b.state("shop"))
				trace := b.takeTrace()
				assert.Equal(t, 1, count(trace, "0s terminate shop"))
				<-time.After(100 * time.Millisecond)
				b.exit("shop", 0)
				assert.Contains(t, b.takeTrace(), "0.1s signal all shop SIGTERM")
				b.endScope("shop")
				synctest.Wait()
				snap, err := b.sup.Session("shop")
				require.NoError(t, err)
				assert.Equal(t, []string{row.state, row.result, row.reason}, []string{snap.State, snap.Result, snap.Reason})
			})
		})
	}
}

// TestLeftovers_StopTimeoutKeepsTheResult: systemd calls it a timeout, too, when leftover processes
// do not stop in time. That does not change the result of an agent that had exited before, and
// neither does the request to stop the scope, which may be received before the earlier exit.
func TestLeftovers_StopTimeoutKeepsTheResult(t *testing.T) {
	for name, exit := range map[string]func(b *bed){
		"the exit is known":      func(b *bed) { b.exit("shop", 3) },
		"the exit is read later": func(b *bed) { b.exitWithoutEvent("shop", 3) },
	} {
		t.Run(name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				b.start("shop")
				exit(b)
				<-time.After(time.Millisecond)
				b.system.result = "success"
				b.sup.ScopeStopRequested(unitname.Scope("command", "shop"), "")
				<-time.After(10 * time.Second)
				b.sup.ScopeEnded(unitname.Scope("command", "shop"), "", "timeout")
				synctest.Wait()
				snap, err := b.sup.Session("shop")
				require.NoError(t, err)
				assert.Equal(t, []string{"failed", "exit-code", "command exited with code 3"},
					[]string{snap.State, snap.Result, snap.Reason})
			})
		})
	}
}

// TestScopeStopping_DoesNotSignalTheAgentAgain: systemd stops the scope itself. It has sent SIGTERM
// to every process in it, and leaves nothing of that to the daemon.
func TestScopeStopping_DoesNotSignalTheAgentAgain(t *testing.T) {
	for _, row := range []struct {
		name, cause   string
		state, result string
	}{
		{"somebody stops the scope", "success", "stopped", "success"},
		{"RuntimeMaxSec has elapsed", "timeout", "failed", "timeout"},
		{"memory ran out", "oom-kill", "completed", "success"}, // the agent had a moment to exit successfully
	} {
		t.Run(row.name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				b.start("shop")
				b.sup.ScopeStopping(unitname.Scope("command", "shop"), "", StopCause{row.cause, b.sup.loop.clocks.Monotonic()})
				assert.Zero(t, count(b.takeTrace(), "0s terminate shop"), "one SIGTERM is enough")
				<-time.After(100 * time.Millisecond)
				b.exit("shop", 0)
				b.endScope("shop")
				synctest.Wait()
				snap, err := b.sup.Session("shop")
				require.NoError(t, err)
				assert.Equal(t, []string{row.state, row.result}, []string{snap.State, snap.Result})
			})
		})
	}
}

// TestScopeStopping_IsOrderedWithTheExitBySystemdsClock: the agent exits before the reason for
// which its scope is stopped is known. Whether the stop or the exit came first is decided by the
// times that systemd and the shim have recorded, not by when the daemon learns of them.
func TestScopeStopping_IsOrderedWithTheExitBySystemdsClock(t *testing.T) {
	for _, row := range []struct {
		name, cause   string
		since         time.Duration // from the stop to the agent's exit
		gone          bool          // the scope ends before the reason is known
		stops         bool          // the user manager is stopping
		state, reason string
	}{
		{"the scope was stopped", "success", time.Millisecond, false, false,
			"stopped", "its scope was stopped"},
		{"the scope was stopped, and is gone", "success", time.Millisecond, true, false,
			"stopped", "its scope was stopped"},
		{"the login session ended", "success", time.Millisecond, true, true,
			"suspended", "the login session ended"},
		{"RuntimeMaxSec had elapsed", "timeout", time.Millisecond, false, false,
			"failed", "it ran for as long as RuntimeMaxSec allows"},
		{"the agent had exited by itself", "success", -time.Millisecond, false, false, "completed", ""},
		{"the agent had exited by itself before RuntimeMaxSec elapsed", "timeout", -time.Millisecond, false, false,
			"completed", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				b.start("shop")
				b.system.stops = row.stops
				b.exit("shop", 0)
				answer := make(chan struct{})
				b.system.asked = answer
				since := b.sup.loop.clocks.Monotonic() - row.since
				b.sup.ScopeStopping(unitname.Scope("command", "shop"), "", StopCause{row.cause, since})
				if row.gone {
					b.endScope("shop")
				}
				close(answer)
				synctest.Wait()
				if !row.gone {
					b.endScope("shop")
				}
				assert.Equal(t, row.state, b.state("shop"))
				snap, err := b.sup.Session("shop")
				require.NoError(t, err)
				assert.Equal(t, row.reason, snap.Reason)
			})
		})
	}
}

// TestExit_BeforeSystemdReportsTheStop: systemd signals the processes of a scope without a
// Controller before it reports that it stops the scope. An agent that exits in between is never
// published as one that has exited by itself.
func TestExit_BeforeSystemdReportsTheStop(t *testing.T) {
	for _, row := range []struct {
		name, cause string
		stopping    bool // systemd stops the scope
		gone        bool // the scope ends before the cause is known
		stops       bool // the user manager is stopping
		published   []string
	}{
		{"the scope is stopped", "success", true, false, false, []string{"stopping", "stopped"}},
		{"the scope was stopped, and is gone", "success", true, true, false, []string{"stopped"}},
		{"the login session ends", "success", true, false, true, []string{"stopping", "suspended"}},
		{"RuntimeMaxSec has elapsed", "timeout", true, false, false, []string{"failed"}},
		{"somebody has signalled all processes", "success", false, false, false, []string{"failed"}},
		{"somebody has ended all processes by a signal", "success", false, true, false, []string{"failed"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				b.start("shop")
				b.system.result, b.system.stops = row.cause, row.stops
				if row.stopping {
					b.system.since = b.sup.loop.clocks.Monotonic() - 2*time.Millisecond
				}
				answer := make(chan struct{})
				b.system.explain = answer
				b.exitAfterSIGTERM("shop", 3)
				if row.gone {
					b.endScope("shop")
				}
				assert.Equal(t, "running", b.state("shop"), "nothing is published before the cause is known")
				close(answer)
				synctest.Wait()
				if !row.gone {
					b.endScope("shop")
				}
				assert.Equal(t, row.published, publishedStates(b.takeTrace()))
			})
		})
	}
}

// publishedStates returns the states that a trace shows for its only session, in order.
func publishedStates(trace []string) (states []string) {
	for _, line := range trace {
		if _, state, ok := strings.Cut(line, " -> "); ok && strings.Contains(line, " publish ") {
			states = append(states, state)
		}
	}
	return states
}

// TestArchive_AcceptsLeftovers: a session of which only leftover processes exist has no agent.
func TestArchive_AcceptsLeftovers(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		assert.Equal(t, InvalidState, kindOf(b.sup.Archive(b.t.Context(), "shop")))
		require.NoError(t, b.sup.loop.do(func() {
			e := b.sup.loop.sessions.byID["shop"]
			e.apply(session.TmuxDied{Run: e.rec.Run.ID})
		}))
		require.Equal(t, "stale", b.state("shop"))
		assert.Equal(t, InvalidState, kindOf(b.sup.Archive(b.t.Context(), "shop")), "its agent is alive")
		require.NoError(t, b.sup.loop.do(func() {
			e := b.sup.loop.sessions.byID["shop"]
			e.apply(session.ShimDied{Run: e.rec.Run.ID, At: time.Now()})
		}))
		require.Equal(t, "stale", b.state("shop"))
		b.call("archive", func(ctx context.Context) error { return b.sup.Archive(ctx, "shop") })
		b.endScope("shop")
		assert.Contains(t, b.takeTrace(), "0s archive: ok")
		assert.Equal(t, "archived", b.state("shop"))
	})
}

// TestCreate_AvoidsAnIDWhoseDirectoryExists: the directory contains no readable record.
func TestCreate_AvoidsAnIDWhoseDirectoryExists(t *testing.T) {
	supervise(t, func(b *bed) {
		dir := filepath.Join(t.TempDir(), "shop")
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.MkdirAll(b.records.SessionDir("shop"), 0o700))
		id, err := b.sup.Create(b.t.Context(), "command", Spec{Command: []string{"true"}, WorkingDirectory: dir})
		require.NoError(t, err)
		assert.Equal(t, "shop-2", id)
	})
}

// count returns how many of the lines equal this one.
func count(lines []string, line string) int {
	n := 0
	for _, l := range lines {
		if l == line {
			n++
		}
	}
	return n
}

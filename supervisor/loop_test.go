package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/inotify"
	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/supervisor/session"
)

// TestIteration_SavesThenPublishesThenAnswers follows one session from its creation to its end. An
// effect begins after the record that announces it was saved, and a call is answered after its
// result was published.
func TestIteration_SavesThenPublishesThenAnswers(t *testing.T) {
	supervise(t, func(b *bed) {
		step := make(chan struct{})
		b.system.start = func(p Plan, report func(session.Event)) error {
			scopeRuns(p, report)
			<-step
			agentRuns(p, report)
			return nil
		}
		b.call("create", func(ctx context.Context) error {
			_, err := b.sup.Create(ctx, "claude", Spec{ID: "shop"})
			return err
		})
		// The events of the start come in one iteration or in several.
		trace := slices.Compact(b.takeTrace())
		for len(trace) > 5 {
			require.Equal(t, trace[3:5], trace[5:7])
			trace = trace[:len(trace)-2]
		}
		require.Len(t, trace, 5)
		assert.Equal(t, "0s save shop: starting", trace[0])
		assert.ElementsMatch(t, []string{"0s publish shop: new, starting", "0s start shop"}, trace[1:3],
			"both come after the save")
		assert.Equal(t, []string{"0s save shop: starting", "0s publish shop: starting"}, trace[3:],
			"scope and tmux server have been started")
		close(step)
		assert.Equal(t, []string{
			"0s save shop: running", "0s publish shop: starting -> running", "0s answer 1", "0s create: ok",
		}, b.takeTrace())

		rec := b.records.last("shop")
		b.writeExitStatus(rec, exitstatus.Status{RunID: rec.Run.ID, Code: exitstatus.Exited, Value: 3, Exited: time.Now()})
		b.changed("shop", exitstatus.FileName, fsnotify.Create)
		assert.Equal(t, []string{"0s sync the exit of shop", "0s publish shop: running -> failed"}, b.takeTrace(),
			"the exit is on disk before it is published")
		b.advance(exitSaveDelay)
		assert.Equal(t, []string{"0.1s save shop: failed", "0.1s publish shop: failed"}, b.takeTrace())
		b.sup.ScopeEnded(unitname.Scope("claude", "shop"), "", "success")
		assert.Equal(t, []string{"0.1s save shop: failed", "0.1s publish shop: failed"}, b.takeTrace())
	})
}

// TestExit_IsSavedWithTheEndOfItsScope: the session is saved once, if its scope ends before the
// exit alone would be saved.
func TestExit_IsSavedWithTheEndOfItsScope(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.exit("shop", 3)
		b.takeTrace()
		b.endScope("shop")
		assert.Equal(t, []string{"0s save shop: failed", "0s publish shop: failed"}, b.takeTrace())
		b.advance(exitSaveDelay)
		assert.Empty(t, b.takeTrace())
	})
}

func TestIteration_HandlesABurstOfEvents(t *testing.T) {
	supervise(t, func(b *bed) {
		const n = 100
		for i := range n {
			b.start(fmt.Sprint("s", i))
		}
		gate := make(chan struct{})
		b.sup.loop.post(func() { <-gate })
		synctest.Wait() // the loop is in an iteration: the events that follow are for the next one
		for i := range n {
			b.exit(fmt.Sprint("s", i), i)
		}
		synctest.Wait()
		close(gate)
		trace := b.takeTrace()
		b.advance(exitSaveDelay)
		saves := b.takeTrace()
		require.Len(t, trace, n+1)
		require.Len(t, saves, n+1)
		for i := range n {
			assert.Contains(t, trace[i], "sync the exit of s")
			assert.Contains(t, saves[i], "save s")
		}
		assert.Equal(t, "0s publish 100 changes", trace[n])
		for i := range n {
			snap, err := b.sup.Session(fmt.Sprint("s", i))
			require.NoError(t, err)
			assert.EqualValues(t, i, snap.ExecMainStatus, "each session has its own exit status")
		}
	})
}

func TestEffects_RunInOrderWithinASessionOnly(t *testing.T) {
	supervise(t, func(b *bed) {
		hang := make(chan struct{})
		b.system.start = func(p Plan, report func(session.Event)) error {
			if p.ID == "slow" {
				<-hang
			}
			return runs(p, report)
		}
		b.call("slow", func(ctx context.Context) error {
			_, err := b.sup.Create(ctx, "claude", Spec{ID: "slow"})
			return err
		})
		b.takeTrace()
		b.start("quick")
		assert.Equal(t, "running", b.state("quick"))
		assert.Equal(t, "starting", b.state("slow"))
		close(hang)
		assert.Equal(t, "running", b.state("slow"))
	})
}

// TestStart_FailsIfTheRunCannotBeSaved: an agent without a record would be lost together with the
// daemon, and is not started.
func TestStart_FailsIfTheRunCannotBeSaved(t *testing.T) {
	supervise(t, func(b *bed) {
		b.records.fails = func(string) error { return errors.New("no space left on device") }
		_, err := b.sup.Create(b.t.Context(), "command", Spec{ID: "shop", Command: []string{"true"}})
		assert.Equal(t, StartFailed, kindOf(err))
		require.ErrorContains(t, err, "no space left on device")
		assert.NotContains(t, b.takeTrace(), "0s start shop")
		assert.Equal(t, "failed", b.state("shop"))

		b.records.fails = nil
		require.NoError(t, b.sup.Start(b.t.Context(), "shop"))
		assert.Equal(t, "running", b.state("shop"))
	})
}

// TestStart_ReportsAfterTheRunWasReset: a run may end while the executor still starts it. The race
// detector reports if the executor's goroutine uses what the loop has reset. That goroutine waits
// for a file, because a channel would order the two for the race detector.
func TestStart_ReportsAfterTheRunWasReset(t *testing.T) {
	supervise(t, func(b *bed) {
		reset := filepath.Join(b.home, "reset")
		b.system.start = func(p Plan, report func(session.Event)) error {
			scopeRuns(p, report)
			b.sup.loop.post(func() {
				b.sup.loop.sessions.byID["shop"].resetRun()
				assert.NoError(t, os.WriteFile(reset, nil, 0o600))
			})
			for !exists(reset) {
				continue
			}
			agentRuns(p, report)
			return nil
		}
		b.start("shop")
		assert.Equal(t, "running", b.state("shop"))
	})
}

// TestSave_SkipsReportsFromOutput: a status report that was derived from the agent's output is
// published, and not saved.
func TestSave_SkipsReportsFromOutput(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		e := b.sup.loop.sessions.byID["shop"]
		e.postEvent(session.StatusReported{
			Run: b.records.last("shop").Run.ID, Source: session.FromOutput,
			Report: session.Report{Activity: word.Idle, At: time.Now()},
		})
		assert.Equal(t, []string{"0s publish shop: running"}, b.takeTrace())
	})
}

func TestStatus_IsReportedWhenTheCountsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		var texts []string
		b.sup.loop.callbacks.SetStatus = func(text string) { texts = append(texts, text) }
		ctx, cancel := context.WithCancel(b.t.Context())
		go b.run(ctx)
		b.start("one")
		b.start("two")
		b.exit("two", 1)
		require.NoError(t, b.sup.Describe(b.t.Context(), "one", "does not change the counts"))
		synctest.Wait()
		assert.Equal(t, []string{"1 running", "2 running", "1 running, 1 failed"}, dropRepeated(texts, "no sessions running"))
		cancel()
		synctest.Wait()
	})
}

// dropRepeated returns the texts without those that equal their predecessor or the exception.
func dropRepeated(texts []string, except string) []string {
	var kept []string
	for _, text := range texts {
		if text != except && (len(kept) == 0 || kept[len(kept)-1] != text) {
			kept = append(kept, text)
		}
	}
	return kept
}

func TestWatchdog_IsFedByTheEventLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		calls := 0
		b.sup.loop.callbacks.KeepAliveInterval, b.sup.loop.callbacks.KeepAlive = 10*time.Second, func() { calls++ }
		ctx, cancel := context.WithCancel(b.t.Context())
		go b.run(ctx)
		<-time.After(35 * time.Second)
		cancel()
		synctest.Wait()
		assert.Equal(t, 3, calls)
	})
}

func TestRun_AnswersEveryCallWhenItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		ctx, cancel := context.WithCancel(b.t.Context())
		go b.run(ctx)
		b.start("shop")
		b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) })
		b.takeTrace()
		cancel()
		assert.Contains(t, b.takeTrace(), "0s stop: "+ErrClosed.Error())
		_, err := b.sup.Sessions()
		require.ErrorIs(t, err, ErrClosed)
		assert.Equal(t, session.Stopping, b.records.last("shop").View().State, "the stop was saved")
	})
}

func TestStop_ReturnsTimedOutToAnImpatientCaller(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		err := b.sup.Stop(ctx, "shop", 0)
		assert.Equal(t, TimedOut, kindOf(err))
		assert.Equal(t, "stopping", b.state("shop"), "the stop continues")
		b.endScope("shop")
		assert.Equal(t, "stopped", b.state("shop"))
	})
}

func TestCall_IsAcceptedBeforeItIsAnswered(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.call("stop", func(ctx context.Context) error {
			return b.sup.Stop(WhenAccepted(ctx, func() { b.trace("accepted") }), "shop", 0)
		})
		assert.Contains(t, b.takeTrace(), "0s accepted")
		b.endScope("shop")
		assert.Contains(t, b.takeTrace(), "0s stop: ok")
	})
}

func TestFileEvents_OverflowReadsFilesAgain(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		rec := b.records.last("shop")
		b.writeExitStatus(rec, exitstatus.Status{RunID: rec.Run.ID, Code: exitstatus.Killed, Value: 9, Exited: time.Now()})
		b.files.events <- inotify.Event{Watch: -1, Mask: unix.IN_Q_OVERFLOW}
		assert.Equal(t, "failed", b.state("shop"))
	})
}

func TestTmuxDeath_MakesASessionStaleIfItsScopeIsPopulated(t *testing.T) {
	for _, row := range []struct {
		name      string
		populated bool
		want      string
	}{
		{"the scope has processes", true, "stale"},
		{"the scope is empty, and systemd is about to report its end", false, "running"},
	} {
		t.Run(row.name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				b.system.populated = row.populated
				b.start("shop")
				b.fds.allReady()
				assert.Equal(t, row.want, b.state("shop"))
				b.endScope("shop")
				assert.Equal(t, "failed", b.state("shop"))
			})
		})
	}
}

func TestWorkspace_VanishesAndComesBack(t *testing.T) {
	supervise(t, func(b *bed) {
		work := t.TempDir()
		moved := work + ".moved"
		_, err := b.sup.Create(b.t.Context(), "command", Spec{ID: "shop", Command: []string{"true"}, WorkingDirectory: work})
		require.NoError(t, err)
		<-time.After(time.Minute)
		require.NoError(t, unix.Rename(work, moved))
		b.files.notify(work, "", unix.IN_MOVE_SELF)
		assert.Equal(t, "orphaned", b.state("shop"))
		<-time.After(time.Minute)
		require.NoError(t, unix.Rename(moved, work))
		b.files.notify(filepath.Dir(work), filepath.Base(work), unix.IN_MOVED_TO)
		assert.Equal(t, "running", b.state("shop"))
		snap, err := b.sup.Session("shop")
		require.NoError(t, err)
		assert.Equal(t, 2*time.Minute, snap.StateChanged.Sub(snap.Started), "since the workspace came back")
	})
}

func TestWorkspace_VanishesBeforeTheAgentIsReady(t *testing.T) {
	supervise(t, func(b *bed) {
		require.NoError(t, b.sup.Reload(config.Default(), map[string]config.Agent{
			"command": {Name: "command", Type: config.TypeNotify},
		}))
		work := t.TempDir()
		b.call("create", func(ctx context.Context) error {
			_, err := b.sup.Create(ctx, "command", Spec{ID: "shop", Command: []string{"true"}, WorkingDirectory: work})
			return err
		})
		require.Equal(t, "starting", b.state("shop"))
		<-time.After(10 * time.Second)
		require.NoError(t, unix.Rename(work, work+".moved"))
		b.files.notify(work, "", unix.IN_MOVE_SELF)
		require.Equal(t, "orphaned", b.state("shop"))
		<-time.After(10 * time.Second)
		require.NoError(t, unix.Rename(work+".moved", work))
		b.files.notify(filepath.Dir(work), filepath.Base(work), unix.IN_MOVED_TO)
		require.Equal(t, "starting", b.state("shop"))
		snap, err := b.sup.Session("shop")
		require.NoError(t, err)
		assert.Equal(t, 20*time.Second, time.Since(b.begin))
		assert.True(t, snap.StateChanged.Equal(time.Now()), "since the workspace came back: %v", snap.StateChanged)
	})
}

// TestChangedMonotonic_AdvancesWhenTheClockIsSetBack: the order of changes is given by a clock that
// cannot be set.
func TestChangedMonotonic_AdvancesWhenTheClockIsSetBack(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		before, err := b.sup.Session("shop")
		require.NoError(t, err)
		b.clockOffset -= time.Hour // an hour has passed, and the wall clock was set back by an hour
		b.exit("shop", 3)
		assert.Equal(t, "failed", b.state("shop"))
		after, err := b.sup.Session("shop")
		require.NoError(t, err)
		assert.Equal(t, before.StateChanged, after.StateChanged)
		assert.Equal(t, time.Hour, after.ChangedMonotonic-before.ChangedMonotonic)
	})
}

// TestCall_OfTheLastIterationIsAnswered: what the last iteration has applied, saved and published
// is not reported as refused because the daemon exits.
func TestCall_OfTheLastIterationIsAnswered(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t)
			rec := &session.Session{ID: "shop", Agent: "command", Created: time.Now()}
			require.NoError(t, b.sup.Adopt(t.Context(), []*session.Session{rec}))
			b.call("describe", func(ctx context.Context) error { return b.sup.Describe(ctx, "shop", "text") })
			synctest.Wait()
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			b.run(ended)
			synctest.Wait()
			require.Contains(t, b.takeTrace(), "0s describe: ok")
		})
	}
}

// TestExecuteImmediate_RefusesAnEffectThatIsQueued: only immediate effects bypass the queue of a
// session.
func TestExecuteImmediate_RefusesAnEffectThatIsQueued(t *testing.T) {
	supervise(t, func(b *bed) {
		assert.Panics(t, func() { _ = b.sup.loop.executeImmediate(t.Context(), Target{}, session.CleanUp{}) })
		assert.NotPanics(t, func() { _ = b.sup.loop.executeImmediate(t.Context(), Target{}, session.KillScope{}) })
	})
}

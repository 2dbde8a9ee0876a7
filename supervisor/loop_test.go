package supervisor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/inotify"
	"github.com/corrald/corral/supervisor/session"
)

// TestATurnSavesThenPublishesThenAnswers follows one session from its creation to its end. What is done in the world begins after it was saved that
// it would be done, and a call is answered after what it did was published.
func TestATurnSavesThenPublishesThenAnswers(t *testing.T) {
	supervise(t, func(b *bed) {
		step := make(chan struct{})
		b.world.start = func(p Plan, tell func(session.Event)) error {
			scopeRuns(p, tell)
			<-step
			agentRuns(p, tell)
			return nil
		}
		b.call("create", func(ctx context.Context) error {
			_, err := b.sup.Create(ctx, "claude", Spec{ID: "shop"})
			return err
		})
		told := slices.Compact(b.heard()) // what the world tells of its steps comes in one turn or in several
		for len(told) > 5 {
			require.Equal(t, told[3:5], told[5:7])
			told = told[:len(told)-2]
		}
		require.Len(t, told, 5)
		assert.Equal(t, "0s save shop: starting", told[0])
		assert.ElementsMatch(t, []string{"0s publish shop: new, starting", "0s start shop"}, told[1:3], "neither before it was saved")
		assert.Equal(t, []string{"0s save shop: starting", "0s publish shop: starting"}, told[3:], "scope and tmux are there")
		close(step)
		assert.Equal(t, []string{"0s save shop: running", "0s publish shop: starting -> running", "0s answer 1", "0s create: ok"}, b.heard())

		rec := b.records.last("shop")
		b.record(rec, exitstatus.Status{RunID: rec.Run.ID, Code: exitstatus.Exited, Value: 3, Exited: time.Now()})
		b.files.tell(b.records.SessionDir("shop"), exitstatus.FileName, unix.IN_MOVED_TO)
		assert.Equal(t, []string{"0s sync the exit of shop", "0s publish shop: running -> failed", "0s save shop: failed"}, b.heard(),
			"the exit is on disk before it is told, and the session's record soon after")
		b.sup.ScopeEnded(UnitName("claude", "shop"), "", "success")
		assert.Equal(t, []string{"0s save shop: failed", "0s publish shop: failed"}, b.heard())
	})
}

func TestABurstCostsOnePass(t *testing.T) {
	supervise(t, func(b *bed) {
		const n = 100
		for i := range n {
			b.start(fmt.Sprint("s", i))
		}
		gate := make(chan struct{})
		b.sup.post(func() { <-gate })
		synctest.Wait() // the loop is in a turn: what comes now is for the next
		for i := range n {
			b.exit(fmt.Sprint("s", i), i)
		}
		synctest.Wait()
		close(gate)
		told := b.heard()
		require.Len(t, told, n+1+n)
		for i := range n {
			assert.Contains(t, told[i], "sync the exit of s")
			assert.Contains(t, told[n+1+i], "save s")
		}
		assert.Equal(t, "0s publish 100 changes", told[n])
		for i := range n {
			snap, err := b.sup.Session(fmt.Sprint("s", i))
			require.NoError(t, err)
			assert.EqualValues(t, i, snap.ExecMainStatus, "none is mistaken for another")
		}
	})
}

func TestTheEffectsOfOneSessionAreInOrderAndSessionsDoNotWait(t *testing.T) {
	supervise(t, func(b *bed) {
		hangs := make(chan struct{})
		b.world.start = func(p Plan, tell func(session.Event)) error {
			if p.ID == "slow" {
				<-hangs
			}
			return runs(p, tell)
		}
		b.call("slow", func(ctx context.Context) error {
			_, err := b.sup.Create(ctx, "claude", Spec{ID: "slow"})
			return err
		})
		b.heard()
		b.start("quick")
		assert.Equal(t, "running", b.state("quick"))
		assert.Equal(t, "starting", b.state("slow"))
		close(hangs)
		assert.Equal(t, "running", b.state("slow"))
	})
}

// An agent that no record knows of would be lost with the daemon: it is not started.
func TestARunThatCannotBeSavedDoesNotBegin(t *testing.T) {
	supervise(t, func(b *bed) {
		b.records.fails = func(string) error { return errors.New("no space left on device") }
		_, err := b.sup.Create(b.t.Context(), "command", Spec{ID: "shop", Command: []string{"true"}})
		assert.Equal(t, StartFailed, kindOf(err))
		require.ErrorContains(t, err, "no space left on device")
		assert.NotContains(t, b.heard(), "0s start shop")
		assert.Equal(t, "failed", b.state("shop"))

		b.records.fails = nil
		require.NoError(t, b.sup.Start(b.t.Context(), "shop"))
		assert.Equal(t, "running", b.state("shop"))
	})
}

func TestWhatIsNoFactIsNotSaved(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		e := b.sup.sessions["shop"]
		b.sup.event(e, session.Said{Run: b.records.last("shop").Run.ID, Source: session.FromOutput, Word: session.Word{Activity: session.Idle, At: time.Now()}})
		assert.Equal(t, []string{"0s publish shop: running"}, b.heard())
	})
}

func TestTheStatusIsToldWhenTheCountsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		var texts []string
		b.sup.Status = func(text string) { texts = append(texts, text) }
		ctx, cancel := context.WithCancel(b.t.Context())
		go b.sup.Run(ctx)
		b.start("one")
		b.start("two")
		b.exit("two", 1)
		require.NoError(t, b.sup.Describe(b.t.Context(), "one", "nothing that counts"))
		synctest.Wait()
		assert.Equal(t, []string{"1 running", "2 running", "1 running, 1 failed"}, dropRepeated(texts, "no sessions running"))
		cancel()
		synctest.Wait()
	})
}

func dropRepeated(texts []string, except string) []string {
	var kept []string
	for _, text := range texts {
		if text != except && (len(kept) == 0 || kept[len(kept)-1] != text) {
			kept = append(kept, text)
		}
	}
	return kept
}

func TestTheWatchdogIsFedByTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		fed := 0
		b.sup.AliveEvery, b.sup.Alive = 10*time.Second, func() { fed++ }
		ctx, cancel := context.WithCancel(b.t.Context())
		go b.sup.Run(ctx)
		<-time.After(35 * time.Second)
		cancel()
		synctest.Wait()
		assert.Equal(t, 3, fed)
	})
}

func TestTheEndOfTheLoopAnswersEveryCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		ctx, cancel := context.WithCancel(b.t.Context())
		go b.sup.Run(ctx)
		b.start("shop")
		b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) })
		b.heard()
		cancel()
		assert.Contains(t, b.heard(), "0s stop: "+ErrClosed.Error())
		_, err := b.sup.Sessions()
		require.ErrorIs(t, err, ErrClosed)
		assert.Equal(t, session.Stopping, b.records.last("shop").View().State, "it was saved")
	})
}

func TestACallerThatDoesNotWaitIsToldSo(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		err := b.sup.Stop(ctx, "shop", 0)
		assert.Equal(t, TimedOut, kindOf(err))
		assert.Equal(t, "stopping", b.state("shop"), "it goes on")
		b.empty("shop")
		assert.Equal(t, "stopped", b.state("shop"))
	})
}

func TestACallIsAcceptedBeforeItIsAnswered(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.call("stop", func(ctx context.Context) error {
			return b.sup.Stop(WhenAccepted(ctx, func() { b.tell("accepted") }), "shop", 0)
		})
		assert.Contains(t, b.heard(), "0s accepted")
		b.empty("shop")
		assert.Contains(t, b.heard(), "0s stop: ok")
	})
}

func TestLostFileEventsAreMadeUpFor(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		rec := b.records.last("shop")
		b.record(rec, exitstatus.Status{RunID: rec.Run.ID, Code: exitstatus.Killed, Value: 9, Exited: time.Now()})
		b.files.events <- inotify.Event{Watch: -1, Mask: unix.IN_Q_OVERFLOW}
		assert.Equal(t, "failed", b.state("shop"))
	})
}

func TestTmuxDies(t *testing.T) {
	for _, row := range []struct {
		name      string
		populated bool
		want      string
	}{
		{"and the scope is not empty", true, "stale"},
		{"with everything else: the scope's end will be told", false, "running"},
	} {
		t.Run(row.name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				b.world.populated = row.populated
				b.start("shop")
				b.fds.all()
				assert.Equal(t, row.want, b.state("shop"))
				b.empty("shop")
				assert.Equal(t, "failed", b.state("shop"))
			})
		})
	}
}

func TestTheWorkspaceVanishesAndComesBack(t *testing.T) {
	supervise(t, func(b *bed) {
		work := t.TempDir()
		moved := work + ".moved"
		_, err := b.sup.Create(b.t.Context(), "command", Spec{ID: "shop", Command: []string{"true"}, WorkingDirectory: work})
		require.NoError(t, err)
		<-time.After(time.Minute)
		require.NoError(t, unix.Rename(work, moved))
		b.files.tell(work, "", unix.IN_MOVE_SELF)
		assert.Equal(t, "orphaned", b.state("shop"))
		<-time.After(time.Minute)
		require.NoError(t, unix.Rename(moved, work))
		b.files.tell(filepath.Dir(work), filepath.Base(work), unix.IN_MOVED_TO)
		assert.Equal(t, "running", b.state("shop"))
		snap, err := b.sup.Session("shop")
		require.NoError(t, err)
		assert.Equal(t, 2*time.Minute, snap.StateChanged.Sub(snap.Started), "since it came back")
	})
}

func TestTheWorkspaceVanishesBeforeTheAgentIsReady(t *testing.T) {
	supervise(t, func(b *bed) {
		require.NoError(t, b.sup.Reload(config.Default(), map[string]config.Agent{"command": {Name: "command", Type: config.TypeNotify}}))
		work := t.TempDir()
		b.call("create", func(ctx context.Context) error {
			_, err := b.sup.Create(ctx, "command", Spec{ID: "shop", Command: []string{"true"}, WorkingDirectory: work})
			return err
		})
		require.Equal(t, "starting", b.state("shop"))
		<-time.After(10 * time.Second)
		require.NoError(t, unix.Rename(work, work+".moved"))
		b.files.tell(work, "", unix.IN_MOVE_SELF)
		require.Equal(t, "orphaned", b.state("shop"))
		<-time.After(10 * time.Second)
		require.NoError(t, unix.Rename(work+".moved", work))
		b.files.tell(filepath.Dir(work), filepath.Base(work), unix.IN_MOVED_TO)
		require.Equal(t, "starting", b.state("shop"))
		snap, err := b.sup.Session("shop")
		require.NoError(t, err)
		assert.Equal(t, 20*time.Second, time.Since(b.begin))
		assert.True(t, snap.StateChanged.Equal(time.Now()), "since it came back: %v", snap.StateChanged)
	})
}

// What came first is told by a clock that nobody sets.
func TestAChangeIsLaterThanTheOneBefore(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		was, err := b.sup.Session("shop")
		require.NoError(t, err)
		b.set -= time.Hour // an hour has gone by, and the clock on the wall was set back by as much
		b.exit("shop", 3)
		assert.Equal(t, "failed", b.state("shop"))
		is, err := b.sup.Session("shop")
		require.NoError(t, err)
		assert.Equal(t, was.StateChanged, is.StateChanged)
		assert.Equal(t, time.Hour, is.ChangedMonotonic-was.ChangedMonotonic)
	})
}

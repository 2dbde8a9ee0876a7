package supervisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/store"
)

func diskIsFull(string) error {
	return &os.PathError{Op: "write", Path: "session.json", Err: unix.ENOSPC}
}

// rests lets time go by.
func (b *bed) rests(d time.Duration) {
	b.t.Helper()
	<-time.After(d)
	synctest.Wait()
}

// meanwhile changes the world while the loop does nothing.
func (b *bed) meanwhile(f func()) {
	b.t.Helper()
	synctest.Wait() // a workspace may be looked at
	require.NoError(b.t, b.sup.do(f))
}

func (b *bed) problems() []Problem {
	b.t.Helper()
	require.NoError(b.t, b.sup.CheckProblems())
	var all []Problem
	b.meanwhile(func() { all = b.sup.toldProblems })
	return all
}

func TestASaveThatFailsIsToldAndTriedAgain(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.records.fails = diskIsFull
		b.exit("shop", 3)
		problem := "0s problem shop: write session.json: no space left on device; free space on the disk, and it will be saved automatically"
		assert.Equal(t, []string{"0s cannot sync the exit of shop", "0s publish shop: running -> failed", "0s problems 1", problem}, b.heard(),
			"supervision goes on")
		b.rests(200 * time.Second)
		told := b.heard()
		attempts := "1s 3s 7s 15s 31s 63s 123s 183s"
		for i, at := range strings.Fields(attempts) {
			assert.Equal(t, []string{at + " cannot save shop: failed", at + " publish shop: failed"}, told[2*i:2*i+2])
		}
		assert.Len(t, told, 2*len(strings.Fields(attempts)), "less and less often")
		assert.Equal(t, 1, strings.Count(b.log.String(), "no space left on device"), "told once")
		assert.Contains(t, b.log.String(), "session=shop")

		b.meanwhile(func() { b.records.fails = nil })
		b.rests(time.Minute)
		assert.Equal(t, []string{"243s save shop: failed", "243s publish shop: failed", "243s problems 0"}, b.heard(), "by itself")
		assert.Equal(t, 3, b.records.last("shop").Run.Exit.Value)
		assert.Equal(t, 1, strings.Count(b.log.String(), "the session is saved again"))
		b.rests(time.Hour)
		assert.Empty(t, b.heard(), "nothing is done when all is well")
	})
}

// Before the machine sleeps, what could not be saved is tried again.
func TestSettle(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.records.fails = diskIsFull
		require.NoError(t, b.sup.Describe(b.t.Context(), "shop", "a shop"))
		b.heard()
		b.meanwhile(func() { b.records.fails = nil })
		require.NoError(t, b.sup.Settle(b.t.Context()))
		assert.Subset(t, b.heard(), []string{"0s save shop: running", "0s answer 1"})
		b.rests(time.Hour)
		assert.NotContains(t, b.heard(), "0s save shop: running", "once is enough")
	})
}

func TestWhatCouldNotBeSavedIsSavedWithTheNextChangeAndAtTheEnd(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.start("other")
		b.records.fails = diskIsFull
		require.NoError(t, b.sup.Describe(b.t.Context(), "shop", "a shop"))
		require.NoError(t, b.sup.Describe(b.t.Context(), "other", "another"))
		b.heard()
		b.meanwhile(func() { b.records.fails = nil })
		require.NoError(t, b.sup.Label(b.t.Context(), "shop", nil))
		assert.Contains(t, b.heard(), "0s save shop: running")
		b.sup.post(b.sup.shutDown)
		assert.Contains(t, b.heard(), "0s save other: suspended")
	})
}

func TestANewProblemDoesNotWaitForAnOldOne(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("old")
		b.start("new")
		failing := map[string]bool{"old": true}
		b.records.fails = func(id string) error {
			if failing[id] {
				return diskIsFull(id)
			}
			return nil
		}
		b.exit("old", 1)
		b.rests(10 * time.Minute)
		b.heard()
		failing["new"] = true
		b.exit("new", 1)
		b.heard()
		b.meanwhile(func() { delete(failing, "new") })
		b.rests(time.Second)
		assert.Contains(t, b.heard(), "601s save new: failed")
	})
}

func TestARecordOfANewerVersionIsNoReasonToTryAgain(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.records.fails = func(string) error { return fmt.Errorf("cannot save session: %w", store.ErrNewer) }
		b.exit("shop", 3)
		b.heard()
		b.rests(time.Hour)
		assert.Empty(t, b.heard())
		assert.Equal(t, "failed", b.state("shop"))
	})
}

// TestAnExitThatIsWrittenDownElsewhere, in the runtime directory, is told like any other, and kept where it belongs as soon as that can be.
func TestAnExitThatIsWrittenDownElsewhere(t *testing.T) {
	for _, full := range []bool{false, true} {
		supervise(t, func(b *bed) {
			b.start("shop")
			dir := b.sup.runtimeDir("shop")
			pending, err := exitstatus.Prepare(dir)
			require.NoError(t, err)
			require.NoError(t, pending.Write(exitstatus.Status{RunID: b.records.last("shop").Run.ID, Code: exitstatus.Exited, Value: 3, Exited: time.Now()}))
			if full {
				b.records.fails = diskIsFull
			}
			b.files.tell(dir, exitstatus.FileName, unix.IN_MOVED_TO)
			told := b.heard()
			if full {
				assert.Equal(t, []string{"0s cannot save shop: failed", "0s publish shop: running -> failed"}, told[:2])
				assert.FileExists(t, filepath.Join(dir, exitstatus.FileName))
				b.meanwhile(func() { b.records.fails = nil })
				b.rests(time.Second)
				assert.Equal(t, "1s keep the exit of shop", b.heard()[0])
			} else {
				assert.Equal(t, []string{"0s keep the exit of shop", "0s publish shop: running -> failed", "0s save shop: failed"}, told)
			}
			assert.NoFileExists(t, filepath.Join(dir, exitstatus.FileName))
			assert.Equal(t, 3, b.records.last("shop").Run.Exit.Value)
		})
	}
}

func noWatchesLeft(path string) error {
	return fmt.Errorf("cannot watch %q: no inotify watches are left: %w", path, unix.ENOSPC)
}

// TestNoWatchesAreLeft: sessions start and end as ever, only later, and all is watched again once there are watches.
func TestNoWatchesAreLeft(t *testing.T) {
	supervise(t, func(b *bed) {
		b.files.fails = noWatchesLeft
		b.start("shop")
		assert.Equal(t, "running", b.state("shop"))
		require.Len(t, b.problems(), 1)
		assert.Contains(t, b.problems()[0].Text, "no inotify watches are left")
		b.exit("shop", 3)
		b.rests(time.Minute)
		assert.Equal(t, "failed", b.state("shop"))
		assert.Equal(t, 2, strings.Count(b.log.String(), "no inotify watches are left"), "once of its workspace, once of the session: %s", b.log)
		b.empty("shop")
		b.heard()
		assert.Empty(t, b.problems(), "nothing of it has to be watched any more")

		require.NoError(t, b.sup.Start(b.t.Context(), "shop"))
		require.Len(t, b.problems(), 1)
		b.meanwhile(func() { b.files.fails = nil })
		b.rests(time.Minute)
		assert.Empty(t, b.problems())
		b.heard()
		b.exit("shop", 4)
		assert.Contains(t, b.heard(), "120s publish shop: running -> failed", "told at once")
	})
}

// TestNothingCanBeWatchedAtFirst: there was no inotify instance left when the daemon began.
func TestNothingCanBeWatchedAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		options := b.sup.Options
		options.Files = nil
		full := true
		options.OpenFiles = func() (Files, error) {
			if full {
				return nil, fmt.Errorf("cannot watch files: %w", unix.EMFILE)
			}
			return b.files, nil
		}
		b.sup = New(options)
		ctx, cancel := context.WithCancel(t.Context())
		go b.sup.Run(ctx)
		b.start("shop")
		require.Len(t, b.problems(), 1)
		assert.Empty(t, b.problems()[0].Session, "the daemon's own")
		assert.Contains(t, b.problems()[0].Text, "max_user_instances")
		b.exitUnseen("shop", 3)
		b.rests(time.Minute)
		assert.Equal(t, "failed", b.state("shop"))
		assert.Equal(t, 1, strings.Count(b.log.String(), `msg="cannot watch`), b.log)

		b.empty("shop")
		require.NoError(t, b.sup.Start(b.t.Context(), "shop"))
		b.meanwhile(func() { full = false })
		b.rests(time.Minute)
		assert.Empty(t, b.problems())
		b.heard()
		b.exit("shop", 4)
		assert.Contains(t, b.heard(), "120s publish shop: running -> failed", "told at once")
		cancel()
		synctest.Wait()
	})
}

// TestWhatWasFoundIsToldUntilItIsMended by taking the file away, or with the session.
func TestWhatWasFoundIsToldUntilItIsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		aside := filepath.Join(b.home, "session.json.damaged")
		require.NoError(t, os.WriteFile(aside, nil, 0o600))
		for _, p := range []Problem{{Session: "lost", Text: "set aside", Path: aside}, {Session: "shop", Text: "newer"}, {Session: "shop", Text: "edited", UntilSaved: true}} {
			b.sup.Found(p)
		}
		require.NoError(t, b.sup.Adopt(t.Context(), []*session.Session{{ID: "shop", Agent: "command", WorkingDirectory: b.home, Created: time.Now(), State: session.Created, StateChanged: time.Now()}}))
		ctx, cancel := context.WithCancel(t.Context())
		go b.sup.Run(ctx)
		b.sup.Trouble("configuration", "it cannot be read")
		require.Len(t, b.problems(), 4)
		require.NoError(t, b.sup.Describe(t.Context(), "shop", "this saves it"))
		assert.Equal(t, []Problem{{Text: "it cannot be read"}, {Session: "lost", Text: "set aside", Path: aside}, {Session: "shop", Text: "newer"}}, b.problems())
		require.NoError(t, os.Remove(aside))
		b.sup.Trouble("configuration", "")
		require.NoError(t, b.sup.Remove(t.Context(), "shop", false))
		assert.Empty(t, b.problems())
		told := b.heard()
		assert.Equal(t, "0s problems 0", told[len(told)-1])
		cancel()
		synctest.Wait()
	})
}

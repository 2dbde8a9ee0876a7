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

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/sources"
	"github.com/corrald/corral/supervisor/store"
)

func diskIsFull(string) error {
	return &os.PathError{Op: "write", Path: "session.json", Err: unix.ENOSPC}
}

// advance waits until the given time has passed on the fake clock, and everything is at rest.
func (b *bed) advance(d time.Duration) {
	b.t.Helper()
	<-time.After(d)
	synctest.Wait()
}

// onLoop waits until everything is at rest, then runs f in the event loop: f may change the fakes.
func (b *bed) onLoop(f func()) {
	b.t.Helper()
	synctest.Wait() // a workspace may be being examined
	require.NoError(b.t, b.sup.loop.do(f))
}

func (b *bed) problems() []Problem {
	b.t.Helper()
	require.NoError(b.t, b.sup.CheckProblems())
	var all []Problem
	b.onLoop(func() { all = b.sup.loop.problems.published })
	return all
}

func TestSave_FailureIsReportedAndRetried(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.records.fails = diskIsFull
		b.exit("shop", 3)
		problem := "0s problem shop: write session.json: no space left on device; " +
			"free space on the disk, and it will be saved automatically"
		assert.Equal(t,
			[]string{"0s cannot sync the exit of shop", "0s problems 1", problem, "0s publish shop: running -> failed"},
			b.takeTrace(), "the session is still supervised")
		b.advance(200 * time.Second)
		recorded := b.takeTrace()
		attempts := "1s 3s 7s 15s 31s 63s 123s 183s"
		for i, at := range strings.Fields(attempts) {
			assert.Equal(t,
				[]string{at + " cannot save shop: failed", at + " publish shop: failed"}, recorded[2*i:2*i+2])
		}
		assert.Len(t, recorded, 2*len(strings.Fields(attempts)), "at growing intervals")
		assert.Equal(t, 1, strings.Count(b.log.String(), "no space left on device"), "logged once")
		assert.Contains(t, b.log.String(), "session=shop")

		b.onLoop(func() { b.records.fails = nil })
		b.advance(time.Minute)
		assert.Equal(t, []string{"243s save shop: failed", "243s problems 0", "243s publish shop: failed"}, b.takeTrace(),
			"saved without a call")
		assert.Equal(t, 3, b.records.last("shop").Run.Exit.Value)
		assert.Equal(t, 1, strings.Count(b.log.String(), "the session is saved again"))
		b.advance(time.Hour)
		assert.Empty(t, b.takeTrace(), "nothing is retried while there is no problem")
	})
}

// TestSave_IsRetriedBeforeSleep: before the machine sleeps, failed saves are retried.
func TestSave_IsRetriedBeforeSleep(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.records.fails = diskIsFull
		require.NoError(t, b.sup.Describe(b.t.Context(), "shop", "a shop"))
		b.takeTrace()
		b.onLoop(func() { b.records.fails = nil })
		require.NoError(t, b.sup.Flush(b.t.Context()))
		assert.Subset(t, b.takeTrace(), []string{"0s save shop: running", "0s answer 1"})
		b.advance(time.Hour)
		assert.NotContains(t, b.takeTrace(), "0s save shop: running", "it was saved already")
	})
}

func TestSave_IsRetriedOnNextChangeAndAtShutdown(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.start("other")
		b.records.fails = diskIsFull
		require.NoError(t, b.sup.Describe(b.t.Context(), "shop", "a shop"))
		require.NoError(t, b.sup.Describe(b.t.Context(), "other", "another"))
		b.takeTrace()
		b.onLoop(func() { b.records.fails = nil })
		require.NoError(t, b.sup.Label(b.t.Context(), "shop", nil))
		assert.Contains(t, b.takeTrace(), "0s save shop: running")
		b.sup.loop.post(b.sup.loop.shutdown.run)
		assert.Contains(t, b.takeTrace(), "0s save other: suspended")
	})
}

func TestRetry_OfANewFailureDoesNotWaitForOlderOnes(t *testing.T) {
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
		b.advance(10 * time.Minute)
		b.takeTrace()
		failing["new"] = true
		b.exit("new", 1)
		b.takeTrace()
		b.onLoop(func() { delete(failing, "new") })
		b.advance(time.Second)
		assert.Contains(t, b.takeTrace(), "601s save new: failed")
	})
}

func TestRetry_SkipsRecordsOfNewerVersions(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.records.fails = func(string) error { return fmt.Errorf("cannot save session: %w", store.ErrNewer) }
		b.exit("shop", 3)
		b.takeTrace()
		b.advance(time.Hour)
		assert.Empty(t, b.takeTrace())
		assert.Equal(t, "failed", b.state("shop"))
	})
}

// TestExit_RecordedInTheRuntimeDirectory: such an exit is published like any other, and the record
// is moved to the state directory as soon as that is possible.
func TestExit_RecordedInTheRuntimeDirectory(t *testing.T) {
	for _, full := range []bool{false, true} {
		supervise(t, func(b *bed) {
			b.start("shop")
			dir := b.sup.loop.settings.runtimeDir("shop")
			require.NoError(t, exitstatus.Write(dir, exitstatus.Status{
				RunID: b.records.last("shop").Run.ID, Code: exitstatus.Exited, Value: 3, Exited: time.Now(),
			}))
			if full {
				b.records.fails = diskIsFull
			}
			b.changed("shop", exitstatus.FileName, fsnotify.Create)
			recorded := b.takeTrace()
			if full {
				assert.Equal(t, []string{"0s cannot save shop: failed", "0s problems 1"}, recorded[:2])
				assert.Equal(t, "0s publish shop: running -> failed", recorded[len(recorded)-1])
				assert.FileExists(t, filepath.Join(dir, exitstatus.FileName))
				b.onLoop(func() { b.records.fails = nil })
				b.advance(time.Second)
				assert.Equal(t, "1s keep the exit of shop", b.takeTrace()[0])
			} else {
				assert.Equal(t, []string{"0s keep the exit of shop", "0s publish shop: running -> failed"}, recorded)
				b.advance(exitSaveDelay)
			}
			assert.NoFileExists(t, filepath.Join(dir, exitstatus.FileName))
			assert.Equal(t, 3, b.records.last("shop").Run.Exit.Value)
		})
	}
}

// TestRuntimeDirectory_IsWatchedAgain: the directory is moved away, which ends its watch. The
// directory is created again, and what has happened meanwhile is found.
func TestRuntimeDirectory_IsWatchedAgain(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		dir := b.sup.loop.settings.runtimeDir("shop")
		require.NoError(t, os.Rename(dir, dir+".away"))
		b.onLoop(func() { delete(b.paths.watched, dir) })
		b.exitWithoutEvent("shop", 3)
		b.changed("shop", "", fsnotify.Rename)
		assert.Equal(t, "failed", b.state("shop"))
		assert.DirExists(t, dir)
		b.onLoop(func() { assert.True(t, b.paths.watched[dir]) })
	})
}

func noWatchesLeft(path string) error {
	return fmt.Errorf("cannot watch %q: no inotify watches are left: %w", path, unix.ENOSPC)
}

// TestInotify_WatchesAreExhausted: sessions start and end as usual, but ends are noticed later. All
// files are watched again once inotify has watches again.
func TestInotify_WatchesAreExhausted(t *testing.T) {
	supervise(t, func(b *bed) {
		b.files.fails = noWatchesLeft
		b.start("shop")
		assert.Equal(t, "running", b.state("shop"))
		require.Len(t, b.problems(), 1)
		assert.Contains(t, b.problems()[0].Text, "no inotify watches are left")
		b.exit("shop", 3)
		b.advance(time.Minute)
		assert.Equal(t, "failed", b.state("shop"))
		assert.Equal(t, 2, strings.Count(b.log.String(), "no inotify watches are left"),
			"once for its workspace, once for the session: %s", b.log)
		b.endScope("shop")
		b.takeTrace()
		assert.Empty(t, b.problems(), "no file of the session has to be watched any longer")

		require.NoError(t, b.sup.Start(b.t.Context(), "shop"))
		require.Len(t, b.problems(), 1)
		b.onLoop(func() { b.files.fails = nil })
		b.advance(time.Minute)
		assert.Empty(t, b.problems())
		b.takeTrace()
		b.exit("shop", 4)
		assert.Contains(t, b.takeTrace(), "120s publish shop: running -> failed", "published at once")
	})
}

// TestInotify_NoInstanceAtStart: the limit of inotify instances is reached when the daemon starts.
func TestInotify_NoInstanceAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		options := b.options
		full := true
		options.OpenWatchers = func() (sources.Inotify, sources.Notifier, error) {
			if full {
				return nil, nil, fmt.Errorf("cannot watch files: %w", unix.EMFILE)
			}
			return b.files, b.paths, nil
		}
		b.sup = New(options)
		ctx, cancel := context.WithCancel(t.Context())
		go b.run(ctx)
		b.start("shop")
		require.Len(t, b.problems(), 1)
		assert.Empty(t, b.problems()[0].Session, "the daemon's own")
		assert.Contains(t, b.problems()[0].Text, "max_user_instances")
		b.exitWithoutEvent("shop", 3)
		b.advance(time.Minute)
		assert.Equal(t, "failed", b.state("shop"))
		assert.Equal(t, 1, strings.Count(b.log.String(), `err="cannot watch`), b.log)

		b.endScope("shop")
		require.NoError(t, b.sup.Start(b.t.Context(), "shop"))
		b.onLoop(func() { full = false })
		b.advance(time.Minute)
		assert.Empty(t, b.problems())
		b.takeTrace()
		b.exit("shop", 4)
		assert.Contains(t, b.takeTrace(), "120s publish shop: running -> failed", "published at once")
		cancel()
		synctest.Wait()
	})
}

// TestProblems_OfRecordsArePublishedUntilFixed: a person fixes them by removing the file or the
// session.
func TestProblems_OfRecordsArePublishedUntilFixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		aside := filepath.Join(b.home, "session.json.damaged")
		require.NoError(t, os.WriteFile(aside, nil, 0o600))
		lost := Problem{Session: "lost", Text: "set aside", Path: aside}
		newer := Problem{Session: "shop", Text: "newer"}
		for _, p := range []Problem{lost, newer, {Session: "shop", Text: "edited", UntilSaved: true}} {
			b.sup.loop.problems.add(p)
		}
		require.NoError(t, b.sup.Adopt(t.Context(), []*session.Session{{
			ID: "shop", Agent: "command", WorkingDirectory: b.home, Created: time.Now(),
			State: session.Created, StateChanged: time.Now(),
		}}))
		ctx, cancel := context.WithCancel(t.Context())
		go b.run(ctx)
		b.sup.SetProblem("configuration", "it cannot be read")
		require.Len(t, b.problems(), 4)
		require.NoError(t, b.sup.Describe(t.Context(), "shop", "this saves it"))
		assert.Equal(t, []Problem{{Text: "it cannot be read"}, lost, newer}, b.problems())
		require.NoError(t, os.Remove(aside))
		b.sup.SetProblem("configuration", "")
		require.NoError(t, b.sup.Remove(t.Context(), "shop", false))
		assert.Empty(t, b.problems())
		recorded := b.takeTrace()
		assert.Equal(t, "0s problems 0", recorded[len(recorded)-1])
		cancel()
		synctest.Wait()
	})
}

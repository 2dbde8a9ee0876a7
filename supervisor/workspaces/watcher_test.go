package workspaces

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/inotify"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/sources"
)

// bed is a Watcher with a simulated inotify. The test is the event loop.
type bed struct {
	files    *sources.Files
	watcher  *Watcher
	observed []string
	states   map[string]bool // by session: whether its workspace is gone
	inode    session.Inode   // the last that was observed
	results  []error         // of recordErr

	mu      sync.Mutex
	mailbox []func()
	numbers map[string]int32
	adding  func(path string) error // called by Add
}

func newBed() *bed {
	b := &bed{numbers: map[string]int32{}, states: map[string]bool{}, adding: func(string) error { return nil }}
	b.files = sources.NewFiles()
	b.files.SetWatchers(b, nil)
	b.watcher = NewWatcher(b.files, b.post, func(id string, gone bool, inode session.Inode) {
		b.observed = append(b.observed, id)
		b.states[id], b.inode = gone, inode
	}, func(_ string, before *error, err error) {
		*before = err
		b.results = append(b.results, err)
	})
	return b
}

func (b *bed) post(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mailbox = append(b.mailbox, f)
}

// drain calls what was posted until all goroutines are blocked and nothing more is posted. It
// returns the sessions whose workspaces were observed, sorted.
func (b *bed) drain() []string {
	b.observed = nil
	for {
		synctest.Wait()
		b.mu.Lock()
		posted := b.mailbox
		b.mailbox = nil
		b.mu.Unlock()
		if len(posted) == 0 {
			slices.Sort(b.observed)
			return slices.Compact(b.observed)
		}
		for _, f := range posted {
			f()
		}
	}
}

// The methods below implement sources.Inotify.
func (b *bed) Add(path string, _ uint32) (int32, error) {
	if err := b.adding(path); err != nil {
		return -1, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.numbers[path] == 0 {
		b.numbers[path] = int32(len(b.numbers) + 1)
	}
	return b.numbers[path], nil
}

func (b *bed) Remove(int32)            {}
func (b *bed) Run(func(inotify.Event)) {}
func (b *bed) Close() error            { return nil }

func TestWatcher_ReportsWhetherAWorkspaceIsInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed()
		dir := filepath.Join(t.TempDir(), "work")
		require.NoError(t, os.Mkdir(dir, 0o700))
		key, inode := Key{dir, dir}, InodeOf(dir)
		b.watcher.Watch(key, "shop", session.Inode{})
		b.watcher.Watch(key, "site", session.Inode{})
		assert.Equal(t, []string{"shop", "site"}, b.drain())
		assert.Equal(t, map[string]bool{"shop": false, "site": false}, b.states)
		assert.Equal(t, inode, b.inode)

		require.NoError(t, os.Remove(dir))
		b.files.Handle(inotify.Event{Watch: b.numbers[dir], Mask: unix.IN_DELETE_SELF})
		b.drain()
		assert.Equal(t, map[string]bool{"shop": true, "site": true}, b.states)
		assert.Equal(t, inode, b.inode, "the last one")

		assert.True(t, b.watcher.Unwatch(key, "site"))
		assert.False(t, b.watcher.Unwatch(key, "site"))
		b.watcher.Probe(key, "site") // not watched for it any more
		assert.Empty(t, b.drain())
		require.NoError(t, os.Mkdir(dir, 0o700))
		b.watcher.Probe(key, "shop")
		assert.Equal(t, []string{"shop"}, b.drain())
		assert.False(t, b.states["shop"])
		b.watcher.ProbeAll()
		assert.Equal(t, []string{"shop"}, b.drain())
		assert.True(t, b.watcher.Unwatch(key, "shop"))
		assert.Empty(t, b.watcher.workspaces)
		b.watcher.ProbeAll()
		assert.Empty(t, b.drain())
	})
}

// The path leads to another directory than the one in which the run began, but the same directory
// may have been moved and replaced by a link.
func TestWatcher_FollowsAMovedDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed()
		base := t.TempDir()
		dir, moved, other := filepath.Join(base, "dir"), filepath.Join(base, "moved"), filepath.Join(base, "other")
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.Mkdir(other, 0o700))
		key := Key{dir, dir}
		b.watcher.Watch(key, "shop", InodeOf(dir))
		require.NoError(t, os.Rename(dir, moved))
		require.NoError(t, os.Symlink(moved, dir))
		b.watcher.Probe(key, "shop")
		b.drain()
		assert.False(t, b.states["shop"])
		require.NoError(t, os.Remove(dir))
		require.NoError(t, os.Symlink(other, dir))
		b.watcher.Probe(key, "shop")
		b.drain()
		assert.True(t, b.states["shop"])
	})
}

// A probe may have missed an event that arrives while it runs.
func TestWatcher_EventDuringAProbeCausesAnotherOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed()
		dir := t.TempDir()
		probes := 0
		b.adding = func(path string) error {
			if path == dir {
				probes++
			}
			return nil
		}
		b.watcher.Watch(Key{dir, dir}, "shop", session.Inode{})
		b.drain()
		assert.Equal(t, 2, probes, "the event loop did not know the watches of the first one")
		probes = 0
		b.watcher.ProbeAll()
		b.drain()
		assert.Equal(t, 1, probes)
		b.watcher.ProbeAll()
		b.files.Handle(inotify.Event{Watch: b.numbers[dir], Mask: unix.IN_MOVE_SELF})
		b.files.Handle(inotify.Event{Watch: b.numbers[dir] + 1000, Mask: unix.IN_CREATE, Name: "x"})
		b.drain()
		assert.Equal(t, 3, probes)
		parent := b.numbers[filepath.Dir(dir)]
		b.files.Handle(inotify.Event{Watch: parent, Mask: unix.IN_DELETE, Name: "x"})
		b.drain()
		assert.Equal(t, 3, probes, "another entry of the parent does not matter")
		b.files.Handle(inotify.Event{Watch: parent, Mask: unix.IN_DELETE, Name: filepath.Base(dir)})
		b.drain()
		assert.Equal(t, 4, probes)
	})
}

// What happens between the watch that a probe adds and its result is seen by the probe after it.
func TestWatcher_ProbesAgainWithNewWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed()
		dir := filepath.Join(t.TempDir(), "work")
		require.NoError(t, os.Mkdir(dir, 0o700))
		b.watcher.Watch(Key{dir, dir}, "shop", session.Inode{})
		synctest.Wait() // the first probe has found the directory
		require.NoError(t, os.Remove(dir))
		b.files.Handle(inotify.Event{Watch: b.numbers[dir], Mask: unix.IN_DELETE_SELF})
		b.files.Handle(inotify.Event{Watch: b.numbers[dir], Mask: unix.IN_IGNORED})
		b.drain()
		assert.True(t, b.states["shop"])

		// The parent is now watched for other events than before.
		b.watcher.ProbeAll()
		synctest.Wait()
		require.NoError(t, os.Mkdir(dir, 0o700))
		b.files.Handle(inotify.Event{Watch: b.numbers[filepath.Dir(dir)], Mask: unix.IN_CREATE, Name: "work"})
		b.drain()
		assert.False(t, b.states["shop"])
	})
}

// There is never more than one probe of a workspace, also if no session uses it for some time.
func TestWatcher_KeepsAnUnusedWorkspaceUntilItsProbeReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed()
		dir := t.TempDir()
		key := Key{dir, dir}
		blocked, probes := make(chan struct{}), 0
		b.adding = func(path string) error {
			if path == dir {
				probes++
				<-blocked
			}
			return nil
		}
		for range 3 {
			b.watcher.Watch(key, "shop", session.Inode{})
			assert.Empty(t, b.drain())
			assert.True(t, b.watcher.Unwatch(key, "shop"))
		}
		assert.Len(t, b.watcher.workspaces, 1)
		assert.Equal(t, 1, probes)
		assert.True(t, b.watcher.IsProbing())
		close(blocked)
		assert.Empty(t, b.drain())
		assert.Empty(t, b.watcher.workspaces)
		assert.False(t, b.watcher.IsProbing())
	})
}

func TestWatcher_RetriesWhatCannotBeWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed()
		dir, other := t.TempDir(), t.TempDir()
		key := Key{dir, dir}
		b.adding = func(path string) error {
			switch path {
			case dir:
				return unix.ENOSPC
			case other:
				return unix.EACCES // ignored
			}
			return nil
		}
		b.watcher.Watch(key, "shop", session.Inode{})
		b.watcher.Watch(Key{other, other}, "site", session.Inode{})
		b.drain()
		assert.ElementsMatch(t, []error{unix.ENOSPC, unix.ENOSPC, nil, nil}, b.results)
		require.ErrorIs(t, b.watcher.Err(key), unix.ENOSPC)
		require.NoError(t, b.watcher.Err(Key{other, other}))
		require.NoError(t, b.watcher.Err(Key{}))
		assert.False(t, b.states["shop"], "it is examined nevertheless")
		b.adding = func(string) error { return nil }
		b.watcher.Retry()
		assert.Equal(t, []string{"shop"}, b.drain())
		require.NoError(t, b.watcher.Err(key))
		b.watcher.Retry()
		assert.Empty(t, b.drain())
	})
}

func TestWatcher_NeedsInotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed()
		b.files.SetWatchers(nil, nil)
		dir := t.TempDir()
		b.watcher.Watch(Key{dir, dir}, "shop", session.Inode{})
		assert.Equal(t, []string{"shop"}, b.drain())
		assert.ErrorIs(t, b.watcher.Err(Key{dir, dir}), sources.ErrNoInotify)
	})
}

func TestResolver_ResolvesAPathOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed()
		dir := t.TempDir()
		blocked, calls := make(chan struct{}), 0
		r := NewResolver(func(path string) (string, error) {
			calls++
			if path == "/dead" {
				<-blocked
				return "", errors.New("stale handle")
			}
			return filepath.EvalSymlinks(path)
		}, b.post, func(after time.Duration, f func()) deadline.Stopper { return time.AfterFunc(after, f) })

		dead := r.Resolve("/dead")
		began := time.Now()
		assert.False(t, dead.Wait(t.Context()))
		assert.Equal(t, Timeout, time.Since(began))
		assert.Same(t, dead, r.Resolve("/dead"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.False(t, dead.Wait(ctx))
		close(blocked)
		require.True(t, dead.Wait(t.Context()))
		_, ok := dead.Directory()
		assert.False(t, ok)
		assert.Equal(t, 1, calls)
		b.drain()
		assert.Empty(t, r.running)

		alive := r.Resolve(dir)
		require.True(t, alive.Wait(t.Context()))
		got, ok := alive.Directory()
		assert.True(t, ok)
		assert.Equal(t, Directory{Resolve(dir), InodeOf(dir)}, got)
		_, ok = (*Resolution)(nil).Directory()
		assert.False(t, ok)
		b.drain()
	})
}

package sources

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// runFiles returns Files whose watchers are those of the kernel, and the functions that they pass
// to the event loop, which is the test. Lost events are reported as the value of *lost.
func runFiles(t *testing.T) (f *Files, mailbox chan func(), lost *int) {
	t.Helper()
	f, mailbox, lost = NewFiles(), make(chan func()), new(int)
	in, n, err := Open()
	require.NoError(t, err)
	f.SetWatchers(in, n)
	ended := make(chan struct{})
	go f.Run(func(event func()) {
		select {
		case mailbox <- event:
		case <-ended:
		}
	}, func() { *lost++ })
	t.Cleanup(func() {
		close(ended)
		f.Close()
	})
	return f, mailbox, lost
}

func TestPath_EventsOfADirectoryAndOfAFile(t *testing.T) {
	f, mailbox, _ := runFiles(t)
	dir := t.TempDir()
	record, file := filepath.Join(dir, "watched", "exit_status"), filepath.Join(dir, "file")
	watched := filepath.Dir(record)
	require.NoError(t, os.Mkdir(watched, 0o700))
	content, err := os.Create(file)
	require.NoError(t, err)
	defer func() { _ = content.Close() }()
	var events []string
	log := func(ev fsnotify.Event) { events = append(events, ev.Op.String()+" "+filepath.Base(ev.Name)) }
	require.NoError(t, f.WatchPath(watched, log))
	require.NoError(t, f.WatchPath(file, log))
	next := func() []string {
		(<-mailbox)()
		defer func() { events = nil }()
		return events
	}

	require.NoError(t, os.WriteFile(filepath.Join(dir, "elsewhere"), nil, 0o600))
	require.NoError(t, os.Rename(filepath.Join(dir, "elsewhere"), record))
	assert.Equal(t, []string{"CREATE exit_status"}, next())
	require.NoError(t, os.Chmod(record, 0o700))
	assert.Equal(t, []string{"CHMOD exit_status"}, next())
	_, err = content.WriteString("frozen 1\n")
	require.NoError(t, err)
	assert.Equal(t, []string{"WRITE file"}, next())

	require.NoError(t, os.Remove(record)) // its event arrives when the directory is not watched any more
	f.UnwatchPath(&watched)
	assert.Empty(t, watched)
	f.UnwatchPath(&watched)
	require.NoError(t, os.Chmod(file, 0o700))
	for events == nil {
		(<-mailbox)()
	}
	assert.Equal(t, []string{"CHMOD file"}, events)

	removed := filepath.Join(dir, "removed")
	require.NoError(t, os.Mkdir(removed, 0o700))
	require.NoError(t, f.WatchPath(removed, log))
	require.NoError(t, os.Remove(removed))
	events = nil
	assert.Equal(t, []string{"REMOVE removed"}, next())
	f.UnwatchPath(&removed)
	assert.Len(t, f.paths, 1)
}

func TestPath_CannotBeWatched(t *testing.T) {
	f := NewFiles()
	require.ErrorIs(t, f.WatchPath(t.TempDir(), nil), ErrNoInotify)
	f.Close()
	f, _, _ = runFiles(t)
	missing := filepath.Join(t.TempDir(), "missing")
	err := f.WatchPath(missing, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, fmt.Sprintf("cannot watch %q", missing))
	assert.Empty(t, f.paths)
}

// TestPath_WatchingNeverWaitsForTheEventLoop: fsnotify sends an error because it cannot end the
// watch of a directory that was moved and is gone. Nobody receives events yet.
func TestPath_WatchingNeverWaitsForTheEventLoop(t *testing.T) {
	f := NewFiles()
	in, n, err := Open()
	require.NoError(t, err)
	f.SetWatchers(in, n)
	defer f.Close()
	top := t.TempDir()
	for range 100 {
		dir := filepath.Join(top, "dir")
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, f.WatchPath(dir, nil))
		require.NoError(t, os.Rename(dir, dir+".moved"))
		require.NoError(t, os.Remove(dir+".moved"))
		require.NoError(t, f.WatchPath(filepath.Dir(top), nil))
	}
}

// TestPath_LostEvents fills the kernel's queue of events while the event loop is busy.
func TestPath_LostEvents(t *testing.T) {
	f, mailbox, lost := runFiles(t)
	dir := t.TempDir()
	require.NoError(t, f.WatchPath(dir, func(fsnotify.Event) {}))
	limit, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	require.NoError(t, err)
	var events int
	_, err = fmt.Sscan(string(limit), &events)
	require.NoError(t, err)
	for range 2 * events {
		name := filepath.Join(dir, "a")
		require.NoError(t, os.WriteFile(name, nil, 0o600)) // at least one event: CREATE
		require.NoError(t, os.Remove(name))
	}
	for *lost == 0 {
		(<-mailbox)()
	}
	assert.Equal(t, 1, *lost)
	require.NoError(t, f.WatchPath(filepath.Dir(dir), func(fsnotify.Event) {}), "the event loop is not blocked")
}

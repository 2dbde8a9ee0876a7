package inotify

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/testbed"
)

// watcher returns a running Watcher and its events.
func watcher(t *testing.T) (*Watcher, <-chan Event) {
	t.Helper()
	w, err := New()
	require.NoError(t, err)
	events, ended := make(chan Event, 100), make(chan struct{})
	go func() { defer close(ended); w.Run(func(e Event) { events <- e }) }()
	t.Cleanup(func() {
		_ = w.Close()
		<-ended
	})
	return w, events
}

func next(t *testing.T, events <-chan Event) Event {
	t.Helper()
	return testbed.Receive(t, events, "event")
}

func TestWatcher_DeliversRequestedEventsOnly(t *testing.T) {
	w, events := watcher(t)
	dir := t.TempDir()
	wd, err := w.Add(dir, unix.IN_MOVED_TO)
	require.NoError(t, err)
	source := filepath.Join(dir, "main.go")
	for range 100 {
		require.NoError(t, os.WriteFile(source, []byte("a line\n"), 0o600)) // not reported
	}
	require.NoError(t, os.Rename(source, filepath.Join(dir, "work")))
	assert.Equal(t, Event{Watch: wd, Mask: unix.IN_MOVED_TO, Name: "work"}, next(t, events))
}

func TestWatcher_ReturnsSameNumberForSameInode(t *testing.T) {
	w, events := watcher(t)
	dir := t.TempDir()
	first, err := w.Add(dir, unix.IN_CREATE)
	require.NoError(t, err)
	second, err := w.Add(dir+"/.", unix.IN_DELETE|unix.IN_MASK_ADD)
	require.NoError(t, err)
	assert.Equal(t, first, second)
	name := filepath.Join(dir, "x")
	require.NoError(t, os.WriteFile(name, nil, 0o600))
	require.NoError(t, os.Remove(name))
	assert.Equal(t, Event{first, unix.IN_CREATE, "x"}, next(t, events))
	assert.Equal(t, Event{first, unix.IN_DELETE, "x"}, next(t, events))
}

func TestWatcher_ReportsRemovedDirectory(t *testing.T) {
	w, events := watcher(t)
	dir := filepath.Join(t.TempDir(), "work")
	require.NoError(t, os.Mkdir(dir, 0o700))
	wd, err := w.Add(dir, unix.IN_DELETE_SELF)
	require.NoError(t, err)
	require.NoError(t, os.Remove(dir))
	assert.Equal(t, Event{Watch: wd, Mask: unix.IN_DELETE_SELF}, next(t, events), "the inode itself has no name")
	assert.Equal(t, Event{Watch: wd, Mask: unix.IN_IGNORED}, next(t, events), "the watch has ended")
	w.Remove(wd)
}

func TestWatcher_DeliversNothingAfterRemove(t *testing.T) {
	w, events := watcher(t)
	quiet, loud := t.TempDir(), t.TempDir()
	gone, err := w.Add(quiet, unix.IN_CREATE)
	require.NoError(t, err)
	wd, err := w.Add(loud, unix.IN_CREATE)
	require.NoError(t, err)
	w.Remove(gone)
	assert.Equal(t, Event{Watch: gone, Mask: unix.IN_IGNORED}, next(t, events))
	require.NoError(t, os.WriteFile(filepath.Join(quiet, "x"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(loud, "y"), nil, 0o600))
	assert.Equal(t, Event{wd, unix.IN_CREATE, "y"}, next(t, events))
}

func TestWatcher_AddFailsForUnwatchablePath(t *testing.T) {
	w, _ := watcher(t)
	_, err := w.Add("/nowhere/at all", unix.IN_CREATE)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, `cannot watch "/nowhere/at all"`)
	_, err = w.Add("/etc/passwd", unix.IN_CREATE|unix.IN_ONLYDIR)
	assert.ErrorIs(t, err, unix.ENOTDIR)
}

func TestEvent_IsOverflow(t *testing.T) {
	assert.True(t, Event{Watch: -1, Mask: unix.IN_Q_OVERFLOW}.IsOverflow())
	assert.False(t, Event{Watch: 1, Mask: unix.IN_CREATE}.IsOverflow())
}

// encode returns an event in the format of the kernel.
func encode(e Event, padding int) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(e.Watch))
	b = binary.NativeEndian.AppendUint32(b, e.Mask)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.NativeEndian.AppendUint32(b, uint32(len(e.Name)+padding))
	return append(append(b, e.Name...), make([]byte, padding)...)
}

// FuzzParse checks that parsing never reads beyond the buffer, and that complete events are
// returned unchanged.
func FuzzParse(f *testing.F) {
	f.Add([]byte{}, int32(1), uint32(unix.IN_CREATE), "exit_status", uint8(5))
	f.Add(encode(Event{1, 2, "x"}, 15), int32(-1), uint32(unix.IN_Q_OVERFLOW), "", uint8(0))
	f.Add(encode(Event{1, 2, "x"}, 15)[:20], int32(-1), uint32(0), "a", uint8(1))
	f.Fuzz(func(t *testing.T, tail []byte, watch int32, mask uint32, name string, padding uint8) {
		for len(name) > 0 && name[len(name)-1] == 0 {
			name = name[:len(name)-1]
		}
		want := Event{watch, mask, name}
		var got []Event
		parse(append(encode(want, int(padding)), tail...), func(e Event) { got = append(got, e) })
		require.NotEmpty(t, got)
		require.Equal(t, want, got[0])
		require.LessOrEqual(t, len(got), 1+len(tail)/unix.SizeofInotifyEvent)
	})
}

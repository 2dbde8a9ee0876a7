// Package inotify watches directories and files for exactly the requested events. See inotify(7).
//
// It is for directories that others write to all the time, such as a workspace: fsnotify (1.10)
// always requests IN_MODIFY too, so that each of these writes would wake the daemon.
package inotify

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Event is an event of inotify. Name is the directory entry that the event is about, "" for the
// watched inode itself.
type Event struct {
	Watch int32
	Mask  uint32
	Name  string
}

// IsOverflow reports whether the event means that events were lost, so that the caller has to check
// everything again. Watch is then -1.
func (e Event) IsOverflow() bool { return e.Mask&unix.IN_Q_OVERFLOW != 0 }

// Watcher is an inotify instance.
type Watcher struct {
	file *os.File
	fd   int // descriptor of file, valid until Close
}

// New returns a new Watcher.
func New() (*Watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("cannot watch files: %w", err)
	}
	return &Watcher{file: os.NewFile(uintptr(fd), "inotify"), fd: fd}, nil
}

// Add watches path for the events in mask and returns the number of the watch. A second watch of
// the same inode has the same number and replaces the mask. The error is ENOSPC if the user has no
// watches left (fs.inotify.max_user_watches).
func (w *Watcher) Add(path string, mask uint32) (int32, error) {
	wd, err := unix.InotifyAddWatch(w.fd, path, mask)
	if err != nil {
		return -1, AddError(path, err)
	}
	return int32(wd), nil
}

// AddError returns the error for a watch of path that inotify_add_watch(2) has refused with err.
func AddError(path string, err error) error {
	if errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("cannot watch %q: no inotify watches are left (see fs.inotify.max_user_watches): %w", path, err)
	}
	return fmt.Errorf("cannot watch %q: %w", path, err)
}

// Remove ends a watch. It is not an error if the watch has already ended.
func (w *Watcher) Remove(watch int32) {
	_, _ = unix.InotifyRmWatch(w.fd, uint32(watch))
}

// Run calls f for each event, in order, until Close.
func (w *Watcher) Run(f func(Event)) {
	buf := make([]byte, 16<<10)
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return
		}
		parse(buf[:n], f)
	}
}

// parse splits the result of a read into events: struct inotify_event, then Len bytes of name,
// padded with NUL.
func parse(b []byte, f func(Event)) {
	for len(b) >= unix.SizeofInotifyEvent {
		e := Event{
			Watch: int32(binary.NativeEndian.Uint32(b)),
			Mask:  binary.NativeEndian.Uint32(b[4:]),
		}
		size := int(binary.NativeEndian.Uint32(b[12:]))
		b = b[unix.SizeofInotifyEvent:]
		if size > len(b) {
			return
		}
		e.Name = string(bytes.TrimRight(b[:size], "\x00"))
		b = b[size:]
		f(e)
	}
}

// Close ends all watches and makes Run return.
func (w *Watcher) Close() error { return w.file.Close() }

// Package mounts tells that a file system was mounted or unmounted, which no watch on a file does
// while somebody is in it.
package mounts

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Table is the mount table of this process's mount namespace, of which the kernel tells each change
// (proc(5), /proc/pid/mounts).
type Table struct {
	table int
	end   [2]int // a pipe: that its second end is closed ends Run
}

// Open begins to listen: what changes from now on is told.
func Open() (*Table, error) {
	// Not by os.Open: the kernel tells a change to whoever asks first, and Go's poller would ask on
	// our behalf, and keep the answer.
	table, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot watch mounts: %w", err)
	}
	t := &Table{table: table}
	if err := unix.Pipe2(t.end[:], unix.O_CLOEXEC); err != nil {
		_ = unix.Close(table)
		return nil, fmt.Errorf("cannot watch mounts: %w", err)
	}
	return t, nil
}

// Run calls f after each change, until Close. Changes that come together may be told as one. It
// holds a thread.
func (t *Table) Run(f func()) {
	defer func() {
		_ = unix.Close(t.end[0])
		_ = unix.Close(t.table)
	}()
	fds := []unix.PollFd{{Fd: int32(t.table), Events: unix.POLLPRI}, {Fd: int32(t.end[0]), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || fds[1].Revents != 0:
			return
		default:
			f()
		}
	}
}

// Close ends Run, which has to have been called.
func (t *Table) Close() error { return unix.Close(t.end[1]) }

// Package mounts reports when a file system is mounted or unmounted. inotify does not report this
// while a process uses the directory.
package mounts

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Table is the mount table of this process's mount namespace. The kernel reports each change of it
// (proc(5), /proc/pid/mounts).
type Table struct {
	table int
	end   [2]int // a pipe: closing its second end makes Run return
}

// Open opens the mount table; changes from now on are reported.
func Open() (*Table, error) {
	// os.Open would not work: the kernel reports a change only to the first poll, and that would be
	// Go's own poller.
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

// Run calls f after each change, until Close. One call may stand for several changes. Run blocks a
// thread.
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

// Close makes Run return. Run has to be running.
func (t *Table) Close() error { return unix.Close(t.end[1]) }

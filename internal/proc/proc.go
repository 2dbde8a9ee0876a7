// Package proc reads what the kernel tells of processes and control groups in /proc and
// /sys/fs/cgroup.
//
// A process id alone names nobody: it is used again after its process is gone. What has to be found
// again later, or signalled, is kept as an Identity.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Identity is a process that cannot be mistaken for another on the same boot (BootID): its id and
// when it was started.
type Identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot: field 22 of /proc/PID/stat, proc_pid_stat(5)
}

// Status is a process as /proc/PID/stat shows it.
type Status struct {
	Identity
	Comm    string // its name, cut to 15 bytes by the kernel; any byte may be in it
	State   byte   // R, S, D, T, t, X, I, or Z for one that ended and was not waited for
	Parent  int
	Group   int // process group
	Session int // of setsid(2)
}

// Stat reads the process with this id, also when it is a zombie. Errors: fs.ErrNotExist where there
// is none.
func Stat(pid int) (Status, error) {
	b, err := read(pid, "stat")
	if err != nil {
		return Status{}, err
	}
	s, err := parseStat(b)
	if err != nil {
		return Status{}, fmt.Errorf("cannot read the status of process %d: %w", pid, err)
	}
	return s, nil
}

// parseStat reads a line "PID (COMM) STATE PPID PGRP SESSION …". A process chooses its own COMM,
// parentheses, spaces and newlines included, so the fields are counted from the last closing
// parenthesis: nothing behind it can hold another one.
func parseStat(b []byte) (Status, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return Status{}, errors.New("its stat has no name in parentheses")
	}
	const stateField, startField = 3, 22 // as proc_pid_stat(5) counts them
	fields := bytes.Fields(b[end+1:])
	if len(fields) <= startField-stateField || len(fields[0]) != 1 {
		return Status{}, errors.New("its stat is too short")
	}
	s := Status{Comm: string(b[open+1 : end]), State: fields[0][0]}
	for _, f := range []struct {
		to   *int
		from []byte
	}{{&s.PID, bytes.TrimSpace(b[:open])}, {&s.Parent, fields[1]}, {&s.Group, fields[2]}, {&s.Session, fields[3]}} {
		n, err := strconv.Atoi(string(f.from))
		if err != nil {
			return Status{}, fmt.Errorf("its stat has %q for a number", f.from)
		}
		*f.to = n
	}
	start, err := strconv.ParseUint(string(fields[startField-stateField]), 10, 64)
	if err != nil {
		return Status{}, fmt.Errorf("its stat has %q for its start time", fields[startField-stateField])
	}
	s.Start = start
	return s, nil
}

// IgnoresSignal tells whether the process ignores the signal. It is false of a process that is not there.
func IgnoresSignal(pid int, signal syscall.Signal) bool {
	b, err := read(pid, "status")
	return err == nil && maskHas(b, "SigIgn", signal)
}

// maskHas looks a signal up in one of the hexadecimal masks of /proc/PID/status, whose lowest bit
// is signal 1.
func maskHas(status []byte, name string, signal syscall.Signal) bool {
	for line := range bytes.Lines(status) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		if string(key) != name {
			continue
		}
		mask, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 16, 64)
		return err == nil && signal >= 1 && signal <= 64 && mask&(1<<(signal-1)) != 0
	}
	return false
}

// Arguments gives what the process was executed with. It is empty for a zombie. Errors:
// fs.ErrNotExist where there is no such process.
func Arguments(pid int) ([]string, error) {
	b, err := read(pid, "cmdline")
	if err != nil || len(b) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00"), nil
}

// Variable looks up a variable in the environment that the process was executed with, and tells
// whether it is there. It is not where the environment cannot be read: that of another user, or of
// a process that made itself private.
func Variable(pid int, name string) (string, bool) {
	b, err := read(pid, "environ")
	if err != nil {
		return "", false
	}
	return variable(b, name)
}

// variable looks up NAME in what /proc/PID/environ holds, NAME=VALUE each with a NUL at its end.
func variable(environ []byte, name string) (string, bool) {
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if value, is := bytes.CutPrefix(entry, []byte(name+"=")); is {
			return string(value), true
		}
	}
	return "", false
}

// All lists the ids of all processes that can be seen.
func All() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("cannot list the processes: %w", err)
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// BootID tells this boot of the machine from every other.
func BootID() (string, error) {
	b, err := ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("cannot read the boot id: %w", err)
	}
	return string(bytes.TrimSpace(b)), nil
}

// OpenPidfd opens a descriptor of exactly this process, a zombie too, for the caller to poll,
// signal and close; it is closed on exec. The error is unix.ESRCH where the process is gone,
// whoever has its id now.
func OpenPidfd(id Identity) (int, error) {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if err != nil {
		return -1, fmt.Errorf("cannot open process %d: %w", id.PID, err)
	}
	// Compared after the open: the descriptor stays with one process, so what its id meant before does
	// not matter.
	if s, err := Stat(id.PID); err != nil || s.Identity != id {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("cannot open process %d started at %d: %w", id.PID, id.Start, unix.ESRCH)
	}
	return fd, nil
}

// WaitExit waits until the process of a pidfd has ended, and tells whether it has within limit. It
// is not put off by signals: poll(2) ends at each, and the end of any child is one.
func WaitExit(pidfd int, limit time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for deadline := time.Now().Add(limit); ; {
		n, err := unix.Poll(fds, int(max(0, time.Until(deadline).Milliseconds()+1)))
		if !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

// read reads a file of /proc/PID. The kernel answers ESRCH instead of ENOENT for a process that
// goes away between open and read.
func read(pid int, name string) ([]byte, error) {
	if pid < 1 {
		return nil, fmt.Errorf("cannot read process %d: %w", pid, os.ErrNotExist)
	}
	b, err := ReadFile("/proc/" + strconv.Itoa(pid) + "/" + name)
	if errors.Is(err, unix.ESRCH) {
		err = os.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read process %d: %w", pid, err)
	}
	return b, nil
}

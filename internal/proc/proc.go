// Package proc reads the state of processes and control groups from /proc and /sys/fs/cgroup.
//
// A process ID alone does not identify a process: the kernel reuses it after the process has
// exited. A process that has to be found again later, or signalled, is stored as an Identity.
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

// Identity identifies a process uniquely within one boot (BootID): its process ID and its start
// time.
type Identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot: field 22 of /proc/PID/stat, proc_pid_stat(5)
}

// Status is the state of a process as /proc/PID/stat shows it.
type Status struct {
	Identity
	Comm    string // name, cut to 15 bytes by the kernel; may contain any byte
	State   byte   // R, S, D, T, t, X, I, or Z for a zombie
	Parent  int
	Group   int    // process group
	Session int    // session of setsid(2)
	TTY     uint64 // device number of the controlling terminal, as makedev(3) returns it; 0 for none
}

// Stat returns the state of a process, which may be a zombie. Errors: fs.ErrNotExist if there is no
// such process.
func Stat(pid int) (Status, error) {
	b, err := readProc(pid, "stat")
	if err != nil {
		return Status{}, err
	}
	s, comm, err := ParseStat(b)
	if err != nil {
		return Status{}, fmt.Errorf("cannot read the status of process %d: %w", pid, err)
	}
	s.Comm = string(comm)
	return s, nil
}

var (
	errNoName   = errors.New("its stat has no name in parentheses")
	errTooShort = errors.New("its stat is too short")
)

// ParseStat parses the content of /proc/PID/stat, "PID (COMM) STATE PPID PGRP SESSION …". It
// returns the name, a part of b, instead of setting Comm, so that it does not allocate.
func ParseStat(b []byte) (s Status, comm []byte, err error) {
	// A process chooses its own name, which may contain parentheses, spaces and newlines. So the
	// fields are counted from the last closing parenthesis: no later field can contain one.
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return Status{}, nil, errNoName
	}
	number := bytes.TrimSpace(b[:open])
	s.PID, err = strconv.Atoi(string(number))
	rest := bytes.TrimSpace(b[end+1:])
	for field := 3; field <= 22 && err == nil; field++ { // numbered as in proc_pid_stat(5)
		if len(rest) == 0 {
			return Status{}, nil, errTooShort
		}
		number, rest, _ = bytes.Cut(rest, []byte(" "))
		switch field {
		case 3:
			s.State = number[0]
		case 4:
			s.Parent, err = strconv.Atoi(string(number))
		case 5:
			s.Group, err = strconv.Atoi(string(number))
		case 6:
			s.Session, err = strconv.Atoi(string(number))
		case 7:
			var tty int64 // of 32 bits, and signed
			tty, err = strconv.ParseInt(string(number), 10, 64)
			s.TTY = uint64(uint32(tty))
		case 22:
			s.Start, err = strconv.ParseUint(string(number), 10, 64)
		}
	}
	if err != nil {
		return Status{}, nil, fmt.Errorf("invalid number %q in its stat", string(number))
	}
	return s, b[open+1 : end], nil
}

// IgnoresSignal reports whether the process ignores the signal. It returns false if the process
// does not exist.
func IgnoresSignal(pid int, signal syscall.Signal) bool {
	b, err := readProc(pid, "status")
	return err == nil && maskHas(b, "SigIgn", signal)
}

// maskHas looks up a signal in a hexadecimal mask of /proc/PID/status, whose lowest bit is signal
// 1.
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

// Arguments returns the arguments with which the process was executed. They are empty for a zombie.
// Errors: fs.ErrNotExist if there is no such process.
func Arguments(pid int) ([]string, error) {
	b, err := readProc(pid, "cmdline")
	if err != nil || len(b) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00"), nil
}

// Variable looks up a variable in the environment with which the process was executed, and reports
// whether it is set. It returns false if the environment cannot be read, as for a process of
// another user or one that is not dumpable.
func Variable(pid int, name string) (string, bool) {
	b, err := readProc(pid, "environ")
	if err != nil {
		return "", false
	}
	return variable(b, name)
}

// variable looks up a variable in the content of /proc/PID/environ: NAME=VALUE entries, each
// terminated by NUL.
func variable(environ []byte, name string) (string, bool) {
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if value, is := bytes.CutPrefix(entry, []byte(name+"=")); is {
			return string(value), true
		}
	}
	return "", false
}

// All returns the IDs of all visible processes.
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

// Children returns the IDs of the processes that the first thread of a process has started and not
// reaped (proc_tid_children(5)).
func Children(pid int) ([]int, error) {
	b, err := readProc(pid, "task/"+strconv.Itoa(pid)+"/children")
	if err != nil {
		return nil, err
	}
	return parsePIDs(b)
}

// BootID returns an identifier of the current boot of the machine.
func BootID() (string, error) {
	b, err := ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("cannot read the boot id: %w", err)
	}
	return string(bytes.TrimSpace(b)), nil
}

// OpenPidfd opens a pidfd of exactly this process, which may be a zombie. The caller can poll it
// and send signals with it, and closes it; it is closed on exec. The error is unix.ESRCH if the
// process no longer exists, even if another process has its ID.
func OpenPidfd(id Identity) (int, error) {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if err != nil {
		return -1, fmt.Errorf("cannot open process %d: %w", id.PID, err)
	}
	// The comparison comes after the open: the descriptor stays bound to one process, so an earlier
	// use of its ID does not matter.
	if s, err := Stat(id.PID); err != nil || s.Identity != id {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("cannot open process %d started at %d: %w", id.PID, id.Start, unix.ESRCH)
	}
	return fd, nil
}

// WaitExit waits until the process of a pidfd has exited, and reports whether it has exited within
// limit; it does not wait if that is 0. It continues after a signal, such as the SIGCHLD of any
// child, has interrupted poll(2). The kernel reports an exit before wait4(2) returns the status,
// but not before the last thread has exited (pidfd_open(2)).
func WaitExit(pidfd int, limit time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for deadline := time.Now().Add(limit); ; {
		left := time.Until(deadline) + time.Millisecond - 1 // rounded up
		n, err := unix.Poll(fds, int(max(0, left.Milliseconds())))
		if !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

// readProc reads a file of /proc/PID. If a process disappears between open and read, the kernel
// returns ESRCH instead of ENOENT.
func readProc(pid int, name string) ([]byte, error) {
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

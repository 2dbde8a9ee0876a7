package main

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// isAgentRunning reports whether a foreground process of the agent's terminal runs, waits for a CPU
// or waits for a disk, so that it may not have processed what it has read. A program that waits for
// something else has: nothing is left for it to do. It allocates nothing, because it is called
// every few milliseconds while a text is delivered.
func (s *shim) isAgentRunning() bool {
	group, err := unix.IoctlGetInt(s.inner.master, unix.TIOCGPGRP)
	if err != nil || s.scope.procs < 0 {
		return false
	}
	n, err := unix.Pread(s.scope.procs, s.cgroupBuffer[:], 0)
	if err != nil {
		return false
	}
	for pids := s.cgroupBuffer[:n]; ; {
		pid, rest, ok := bytes.Cut(pids, []byte{'\n'})
		if !ok {
			return false
		}
		if isRunning(pid, group) {
			return true
		}
		pids = rest
	}
}

// isRunning reports whether a process is in the process group and can run, or waits for a disk. pid
// is in decimal.
func isRunning(pid []byte, group int) bool {
	var path [32]byte
	var stat [512]byte
	fd, e := sysOpen(append(append(append(path[:0], "/proc/"...), pid...), "/stat\x00"...))
	if e != 0 {
		return false
	}
	n, e := sysRead(fd, stat[:])
	_ = unix.Close(fd)
	if e != 0 {
		return false
	}
	s := parseStat(stat[:n])
	return s.group == group && (s.state == 'R' || s.state == 'D')
}

// processStat is what /proc/PID/stat shows of a process (proc_pid_stat(5)).
type processStat struct {
	state byte   // R runs or waits for a CPU, D waits for a disk
	group int    // process group
	start uint64 // clock ticks since boot
}

// parseStat returns zeros if the text is incomplete. It counts the fields from the last closing
// parenthesis, because the name of the process before it may contain any character.
func parseStat(text []byte) (s processStat) {
	const stateField, groupField, startField = 3, 5, 22
	number := stateField
	for field := range bytes.FieldsSeq(text[bytes.LastIndexByte(text, ')')+1:]) {
		switch number {
		case stateField:
			s.state = field[0]
		case groupField:
			s.group, _ = strconv.Atoi(string(field)) // the conversion does not allocate
		case startField:
			s.start = parseDecimal(field)
			return s
		}
		number++
	}
	return processStat{}
}

package main

import (
	"bytes"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/proc"
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
		line, rest, complete := bytes.Cut(pids, []byte{'\n'})
		if !complete {
			return false
		}
		if pid, ok := proc.ParseNumber(line); ok && isRunning(int(pid), group) {
			return true
		}
		pids = rest
	}
}

// isRunning reports whether a process is in the process group and can run, or waits for a disk.
func isRunning(pid, group int) bool {
	var stat [512]byte
	s, _, err := proc.ParseStat(readProc(pid, "/stat", stat[:]))
	return err == nil && s.Group == group && (s.State == 'R' || s.State == 'D')
}

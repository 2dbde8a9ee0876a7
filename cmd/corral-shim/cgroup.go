package main

import (
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/proc"
)

// cgroupFiles are files of the scope's control group, opened before the agent can use up all
// descriptors. Without the memory controller there are no counters, and their values are 0.
type cgroupFiles struct {
	procs, events, limit int // descriptors of the processes and the counters; -1 if there is none
	killedBefore         uint64
}

// openCgroupFiles opens the files of a control group, none if the group is "". A hybrid machine has
// no counters: there the memory controller is not in the version 2 hierarchy.
func openCgroupFiles(group string) cgroupFiles {
	c := cgroupFiles{procs: -1, events: -1, limit: -1}
	root, err := proc.CgroupRoot()
	if err != nil || group == "" {
		return c
	}
	open := func(name string) int {
		path := filepath.Join(root, group, name)
		fd, _ := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) //nolint:forbidigo // the kernel's
		return fd
	}
	c.procs, c.events, c.limit = open("cgroup.procs"), open("memory.events"), open("memory.max")
	c.killedBefore = c.readKills()
	return c
}

// readProc reads a file of /proc/PID into buffer and returns its content, or nil if the process has
// exited. It does not allocate.
func readProc(pid int, name string, buffer []byte) []byte {
	var path [32]byte
	fd, e := sysOpen(append(append(strconv.AppendInt(append(path[:0], "/proc/"...), int64(pid), 10), name...), 0))
	if e != 0 {
		return nil
	}
	size, e := sysRead(fd, buffer)
	_ = unix.Close(fd)
	if e != 0 {
		return nil
	}
	return buffer[:size]
}

// cgroupOf returns the control group of a process, or nil if the process has exited. It reads it
// into buffer.
func cgroupOf(pid int32, buffer []byte) []byte {
	return proc.ParseCgroup(readProc(int(pid), "/cgroup", buffer))
}

// kills returns how many of the scope's processes the kernel's OOM killer has killed since the shim
// started.
func (c *cgroupFiles) kills() uint64 {
	n := c.readKills()
	return n - min(n, c.killedBefore)
}

func (c *cgroupFiles) readKills() uint64 {
	n, _ := proc.FlatKeyed(readAt(c.events), "oom_kill")
	return n
}

// max returns the scope's memory limit in bytes, or 0 if there is none.
func (c *cgroupFiles) max() uint64 {
	n, _ := proc.ParseNumber(readAt(c.limit))
	return n
}

func readAt(fd int) []byte {
	if fd < 0 {
		return nil
	}
	b := make([]byte, 512)
	n, err := unix.Pread(fd, b, 0)
	if err != nil {
		return nil
	}
	return b[:n]
}

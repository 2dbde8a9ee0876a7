package main

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// cgroupFiles are files of the scope's control group, opened before the agent can use up all
// descriptors. Without the memory controller there are no counters, and their values are 0.
type cgroupFiles struct {
	procs, events, limit int // descriptors of the processes and the counters; -1 if there is none
	killedBefore         uint64
}

func openCgroupFiles() cgroupFiles {
	c := cgroupFiles{procs: -1, events: -1, limit: -1}
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return c
	}
	path := string(parseCgroup(b))
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		dir, err := unix.Open(root+path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if c.procs < 0 {
			c.procs, _ = unix.Openat(dir, "cgroup.procs", unix.O_RDONLY|unix.O_CLOEXEC, 0) //nolint:forbidigo // the kernel's
		}
		c.events, _ = unix.Openat(dir, "memory.events", unix.O_RDONLY|unix.O_CLOEXEC, 0) //nolint:forbidigo // the kernel's
		c.limit, _ = unix.Openat(dir, "memory.max", unix.O_RDONLY|unix.O_CLOEXEC, 0)     //nolint:forbidigo // the kernel's
		_ = unix.Close(dir)
		if c.events >= 0 {
			break
		}
	}
	c.killedBefore = c.readKills()
	return c
}

// cgroupOf returns the control group of a process, or nil if the process has exited. It reads it
// into buffer.
func cgroupOf(pid int32, buffer []byte) []byte {
	if pid <= 0 {
		return nil
	}
	var path [32]byte
	fd, e := sysOpen(append(strconv.AppendInt(append(path[:0], "/proc/"...), int64(pid), 10), "/cgroup\x00"...))
	if e != 0 {
		return nil
	}
	size, e := sysRead(fd, buffer)
	_ = unix.Close(fd)
	if e != 0 || size == 0 {
		return nil
	}
	return parseCgroup(buffer[:size])
}

// parseCgroup returns the path in the unified hierarchy from the content of /proc/PID/cgroup
// (cgroups(7)).
func parseCgroup(text []byte) []byte {
	for line := range bytes.SplitSeq(text, []byte{'\n'}) {
		if path, ok := bytes.CutPrefix(line, []byte("0::")); ok {
			return path
		}
	}
	return []byte("/")
}

// kills returns how many of the scope's processes the kernel's OOM killer has killed since the shim
// started.
func (c *cgroupFiles) kills() uint64 {
	if n := c.readKills(); n > c.killedBefore {
		return n - c.killedBefore
	}
	return 0
}

func (c *cgroupFiles) readKills() uint64 { return parseOOMKills(readAt(c.events)) }

// parseOOMKills returns the number of kills from the content of memory.events.
func parseOOMKills(events []byte) uint64 {
	for line := range bytes.Lines(events) {
		if v, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			return parseDecimal(v)
		}
	}
	return 0
}

// max returns the scope's memory limit in bytes, or 0 if there is none.
func (c *cgroupFiles) max() uint64 { return parseDecimal(readAt(c.limit)) }

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

// parseDecimal returns the number in b, or 0 if b is not a number ("max").
func parseDecimal(b []byte) uint64 {
	n, _ := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64)
	return n
}

package main

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// memoryCounters are files of the scope's control group, opened before the agent could use up all
// descriptors. Where the memory controller is not at work there are none, and what they would tell
// is 0.
type memoryCounters struct {
	events, limit int // descriptors, -1 if there is none
	killedBefore  uint64
}

func openMemoryCounters() memoryCounters {
	c := memoryCounters{events: -1, limit: -1}
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return c
	}
	path := string(ownCgroup(b))
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		dir, err := unix.Open(root+path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		c.events, _ = unix.Openat(dir, "memory.events", unix.O_RDONLY|unix.O_CLOEXEC, 0) //nolint:forbidigo // the kernel's
		c.limit, _ = unix.Openat(dir, "memory.max", unix.O_RDONLY|unix.O_CLOEXEC, 0)     //nolint:forbidigo // the kernel's
		_ = unix.Close(dir)
		if c.events >= 0 {
			break
		}
	}
	c.killedBefore = c.killed()
	return c
}

// groupOf returns the control group of a process, nil if it is gone. It is read into room.
func groupOf(pid int32, room []byte) []byte {
	if pid <= 0 {
		return nil
	}
	var path [32]byte
	fd, e := sysOpen(append(strconv.AppendInt(append(path[:0], "/proc/"...), int64(pid), 10), "/cgroup\x00"...))
	if e != 0 {
		return nil
	}
	size, e := sysRead(fd, room)
	_ = unix.Close(fd)
	if e != 0 || size == 0 {
		return nil
	}
	return ownCgroup(room[:size])
}

// ownCgroup finds the path in the unified hierarchy in the text of /proc/self/cgroup (cgroups(7)).
func ownCgroup(text []byte) []byte {
	for line := range bytes.SplitSeq(text, []byte{'\n'}) {
		if path, ok := bytes.CutPrefix(line, []byte("0::")); ok {
			return path
		}
	}
	return []byte("/")
}

// kills is how many of the scope's processes the kernel's OOM killer has ended since the shim
// began.
func (c *memoryCounters) kills() uint64 {
	if n := c.killed(); n > c.killedBefore {
		return n - c.killedBefore
	}
	return 0
}

func (c *memoryCounters) killed() uint64 { return oomKills(readAt(c.events)) }

// oomKills finds the number in the text of memory.events.
func oomKills(events []byte) uint64 {
	for line := range bytes.Lines(events) {
		if v, ok := bytes.CutPrefix(line, []byte("oom_kill ")); ok {
			return decimal(v)
		}
	}
	return 0
}

// max is the scope's memory limit in bytes, 0 if it has none.
func (c *memoryCounters) max() uint64 { return decimal(readAt(c.limit)) }

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

// decimal is the number that b is, 0 if it is none ("max").
func decimal(b []byte) uint64 {
	n, _ := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64)
	return n
}

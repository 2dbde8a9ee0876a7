package proc

import (
	"bytes"
	"math"
	"path/filepath"
	"strconv"
)

// Usage is the resource usage of a control group with those below it. Which values are known
// depends on the controllers that are delegated to the user.
type Usage struct {
	CPUTime            uint64 // nanoseconds
	Memory, MemoryPeak uint64 // bytes
	Tasks              uint64 // threads; processes without the pids controller
}

// Unknown is the value of a counter that is not available, as in systemd's unit properties.
const Unknown = math.MaxUint64

// ReadUsage reads the resource usage of a control group. It returns false if there is no such
// group.
func ReadUsage(cgroupPath string) (u Usage, exists bool) {
	dir, err := groupDir(cgroupPath)
	if err != nil {
		return Usage{}, false
	}
	stat, _ := ReadFile(filepath.Join(dir, "cpu.stat"))
	u = Usage{
		cpuTime(stat), readNumber(dir, "memory.current"), readNumber(dir, "memory.peak"), readNumber(dir, "pids.current"),
	}
	if u.Tasks == Unknown {
		pids, err := Processes(cgroupPath)
		if err != nil {
			return Usage{}, false
		}
		u.Tasks = uint64(len(pids))
	}
	return u, true
}

// cpuTime returns the CPU time in the content of cpu.stat, in nanoseconds.
func cpuTime(stat []byte) uint64 {
	if usec, ok := FlatKeyed(stat, "usage_usec"); ok && usec <= math.MaxUint64/1000 {
		return usec * 1000
	}
	return Unknown
}

// readNumber reads the number that a file of a control group contains, Unknown if there is none.
func readNumber(dir, name string) uint64 {
	b, _ := ReadFile(filepath.Join(dir, name))
	if n, ok := ParseNumber(b); ok {
		return n
	}
	return Unknown
}

// FlatKeyed returns the value of a key in a flat keyed file of a control group, such as
// memory.events: lines of a key and a number (Documentation/admin-guide/cgroup-v2.rst). It does not
// allocate.
func FlatKeyed(b []byte, key string) (uint64, bool) {
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte("\n"))
		if name, value, _ := bytes.Cut(line, []byte(" ")); string(name) == key {
			return ParseNumber(value)
		}
	}
	return 0, false
}

// ParseNumber returns the number that b consists of, apart from white space around it. It returns
// false for "max", which stands for no limit. It does not allocate for a number.
func ParseNumber(b []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64)
	return n, err == nil
}

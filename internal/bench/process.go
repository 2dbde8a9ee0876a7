package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/unitname"
)

// usage is what the threads of a Go program have used so far.
type usage struct {
	switches uint64        // voluntary and involuntary context switches: each is a thread that was woken or had to wait
	cpu      time.Duration // of all threads
	monitor  uint64        // switches of the runtime's monitor thread, not included in switches
}

func (u usage) since(before usage) usage {
	return usage{u.switches - before.switches, u.cpu - before.cpu, u.monitor - before.monitor}
}

// used reads /proc/PID/task/TID/status and schedstat. schedstat is exact, while utime and stime in
// stat count ticks of 10 ms. The first thread that a Go program starts is the runtime's monitor
// (runtime.sysmon), which wakes up once a minute even in an idle program.
func used(pid int) (usage, error) {
	var u usage
	tasks, err := threads(pid)
	for i, task := range tasks {
		fields, e := readFields(filepath.Join(task, "status"))
		if e != nil {
			return u, fmt.Errorf("cannot read the switches of process %d: %w", pid, e)
		}
		switches := fields["voluntary_ctxt_switches"] + fields["nonvoluntary_ctxt_switches"]
		if i == 1 {
			u.monitor = switches
		} else {
			u.switches += switches
		}
		text, e := os.ReadFile(filepath.Join(task, "schedstat"))
		if e != nil {
			return u, fmt.Errorf("cannot read the CPU time of process %d: %w", pid, e)
		}
		running, _, _ := strings.Cut(string(text), " ")
		nanoseconds, _ := strconv.ParseInt(running, 10, 64)
		u.cpu += time.Duration(nanoseconds)
	}
	return u, err
}

// threads returns the /proc directories of the process's threads in the order in which they were
// started.
func threads(pid int) ([]string, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err == nil && len(tasks) == 0 {
		err = fmt.Errorf("cannot list the threads of process %d", pid)
	}
	slices.SortFunc(tasks, func(a, b string) int { // by number
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	return tasks, err
}

// memory is the memory of a process, in MiB.
type memory struct {
	rss, pss, private float64
}

// occupied reads the memory of a process from /proc/PID/smaps_rollup.
func occupied(pid int) (memory, error) {
	fields, err := readFields(filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"))
	if err != nil {
		return memory{}, fmt.Errorf("cannot read the memory of process %d: %w", pid, err)
	}
	mib := func(kib uint64) float64 { return float64(kib) / 1024 }
	return memory{mib(fields["Rss"]), mib(fields["Pss"]), mib(fields["Private_Clean"] + fields["Private_Dirty"])}, nil
}

// readFields reads lines such as "Name: 123 kB" from a file in /proc and ignores those without a
// number.
func readFields(path string) (map[string]uint64, error) {
	text, err := os.ReadFile(path)
	fields := map[string]uint64{}
	for line := range strings.SplitSeq(string(text), "\n") {
		name, value, _ := strings.Cut(line, ":")
		if first := strings.Fields(value); len(first) > 0 {
			if n, err := strconv.ParseUint(first[0], 10, 64); err == nil {
				fields[name] = n
			}
		}
	}
	return fields, err
}

// inScopes returns the processes with this name (at most 15 bytes) in the scopes of sessions.
func inScopes(comm string) ([]int, error) {
	all, err := proc.All()
	var pids []int
	for _, pid := range all {
		status, _ := proc.Stat(pid)
		group, _ := proc.Cgroup(pid)
		if status.Comm == comm && unitname.ScopeIn([]byte(group)) != nil {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

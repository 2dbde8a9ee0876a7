package main

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/shimwire"
)

// cgroupRoots are where the unified control group hierarchy is mounted: alone, or beside the old
// ones.
var cgroupRoots = []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}

// process is one process of a control group.
type process struct {
	pid  int
	argv []string // as /proc tells
	name string
}

// isCorralProcess tells of a process that Corral put beside the agent, or that one of those runs.
func (p process) isCorralProcess() bool {
	return shimwire.IsInfrastructure(p.name, func() []string { return p.argv })
}

// command is what the process runs, for a person.
func (p process) command() string {
	if p.isCorralProcess() {
		return p.name
	}
	return wording.ShellWords(p.argv)
}

// groupProcesses returns the processes in a control group of this machine and in the groups below
// it, in the order of their pids.
func groupProcesses(group string) []process {
	var processes []process
	for _, root := range cgroupRoots {
		directory := filepath.Join(root, group)
		if directory == root {
			return nil
		}
		// A group that ends while it is read has no processes to tell of.
		_ = filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return fs.SkipDir
			}
			if !entry.IsDir() {
				return nil
			}
			pids, _ := proc.ReadFile(filepath.Join(path, "cgroup.procs"))
			for _, text := range strings.Fields(string(pids)) {
				pid, err := strconv.Atoi(text)
				if err != nil || pid <= 0 {
					continue
				}
				if p, alive := readProcess(pid); alive {
					processes = append(processes, p)
				}
			}
			return nil
		})
		if processes != nil {
			break
		}
	}
	slices.SortFunc(processes, func(a, b process) int { return a.pid - b.pid })
	return processes
}

// readProcess reads what a process runs. One that is gone, or that waits to be reaped, has no
// arguments to be read and does not count.
func readProcess(pid int) (process, bool) {
	directory := filepath.Join("/proc", strconv.Itoa(pid))
	name, _ := proc.ReadFile(filepath.Join(directory, "comm"))
	argv, _ := proc.ReadFile(filepath.Join(directory, "cmdline"))
	text := strings.TrimRight(string(argv), "\x00")
	if text == "" {
		return process{}, false
	}
	return process{pid: pid, argv: strings.Split(text, "\x00"), name: strings.TrimSuffix(string(name), "\n")}, true
}

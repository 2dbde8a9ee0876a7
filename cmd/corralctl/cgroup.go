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

// cgroupRoots are the mount points of the unified control group hierarchy: alone, or beside the
// hierarchies of version 1.
var cgroupRoots = []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}

// process is one process of a control group.
type process struct {
	pid  int
	argv []string // from /proc/PID/cmdline
	name string
}

// isCorralProcess reports whether the process belongs to Corral's own part of a session: the shim,
// the tmux server, or a process that one of them has started for itself.
func (p process) isCorralProcess() bool {
	return shimwire.IsInfrastructure(p.name, func() []string { return p.argv })
}

// command returns what the process runs, as text for a person.
func (p process) command() string {
	if p.isCorralProcess() {
		return p.name
	}
	return wording.ShellWords(p.argv)
}

// groupProcesses returns the processes in a control group of this machine and in the groups below
// it, sorted by PID.
func groupProcesses(group string) []process {
	var processes []process
	for _, root := range cgroupRoots {
		directory := filepath.Join(root, group)
		if directory == root {
			return nil
		}
		// A group that is removed while it is read has no processes.
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

// readProcess reads what a process runs. It returns false for a process that has exited or is a
// zombie: neither has arguments.
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

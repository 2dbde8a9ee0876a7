package main

import (
	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/shimwire"
)

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
// it, sorted by PID, without those that have exited and without zombies: neither have arguments.
func groupProcesses(group string) []process {
	var processes []process
	pids, _ := proc.Processes(group) // a group that was removed has no processes
	for _, pid := range pids {
		argv, _ := proc.Arguments(pid)
		for len(argv) > 0 && argv[len(argv)-1] == "" { // as after a program has shortened its title
			argv = argv[:len(argv)-1]
		}
		if p, err := proc.Stat(pid); err == nil && len(argv) > 0 {
			processes = append(processes, process{pid, argv, p.Comm})
		}
	}
	return processes
}

package shimwire

import (
	"strings"

	"github.com/corrald/corral/internal/proc"
)

// TmuxClient is the first argument (argv[0]) of a tmux client that a shim runs. The shim executes
// tmux as /proc/PID/exe, so the kernel calls the client's process "exe" until the client has set
// its own name.
const TmuxClient = "corral-shim: tmux"

// IsInfrastructure reports whether a process belongs to Corral's own part of a session (its shim
// and its tmux server) and not to the agent. name is the process's name in /proc (comm); arguments
// returns its argument vector and is called only if the name alone is ambiguous. utempter(8) is run
// by tmux to record the terminals that it opens and closes.
func IsInfrastructure(name string, arguments func() []string) bool {
	if name == "exe" {
		args := arguments()
		return len(args) > 0 && args[0] == TmuxClient
	}
	return strings.HasPrefix(name, "tmux: ") || strings.HasPrefix(name, "corral-shim") || name == "utempter"
}

// CountLeftovers returns the number of processes in the control group of a session whose agent has
// exited, without zombies and without Corral's own part of the session.
func CountLeftovers(group string) int {
	pids, _ := proc.Processes(group) // a group that was removed contains no process
	n := 0
	for _, pid := range pids {
		arguments := func() []string { args, _ := proc.Arguments(pid); return args }
		p, err := proc.Stat(pid)
		if err == nil && p.State != 'Z' && !IsInfrastructure(p.Comm, arguments) {
			n++
		}
	}
	return n
}

package shimwire

import "strings"

// TmuxClient is the first argument of a tmux client that a shim runs. It is executed by a name in
// /proc, which the kernel calls "exe" until the client has given itself a name.
const TmuxClient = "corral-shim: tmux"

// IsInfrastructure tells whether a process is one that Corral put beside the agent, or that one of
// those runs, by its name in /proc and its arguments, which are asked for only where the name does
// not tell. utempter(8) is what tmux has record a terminal that it opens or closes.
func IsInfrastructure(name string, arguments func() []string) bool {
	if name == "exe" {
		args := arguments()
		return len(args) > 0 && args[0] == TmuxClient
	}
	return strings.HasPrefix(name, "tmux: ") || strings.HasPrefix(name, "corral-shim") || name == "utempter"
}

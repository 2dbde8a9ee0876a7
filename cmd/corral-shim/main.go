// Corral-shim is the parent process of one agent. It holds the agent's terminal, shows it in a tmux
// pane, logs its output, writes input to it, and records how the agent ended.
//
//	corral-shim run SPECFILE   in a tmux pane: run the agent that the file (shimwire.Spec) describes
//	corral-shim join SOCKET    in a new tmux pane: show the agent of the shim that listens on SOCKET
//	corral-shim confined COMMAND…  in a sandbox: run the agent for the shim outside of it
//	corral-shim environment MARK   in a login shell: print the environment between markers
//
// One goroutine does the work around one epoll set. Everything that the shim may need while the
// agent runs (threads, descriptors, memory, the file for the record) is allocated before the agent
// starts, because the agent may use up every resource that the two share.
package main

import (
	"os"

	"github.com/corrald/corral/internal/shimwire"
)

// version is set by the linker.
var version = "unknown"

func main() { os.Exit(runCommand(os.Args[1:])) }

func runCommand(args []string) int {
	switch {
	case len(args) == 2 && args[0] == "run":
		return runAgent(args[1])
	case len(args) == 2 && args[0] == "join":
		return joinPane(args[1])
	case len(args) >= 2 && args[0] == "confined":
		return runConfined(args[1:])
	case len(args) == 2 && args[0] == "environment":
		if _, err := os.Stdout.Write(shimwire.AppendEnvironment(nil, args[1], os.Environ())); err != nil {
			return 1
		}
		return 0
	case len(args) == 1 && (args[0] == "version" || args[0] == "--version"):
		_, _ = os.Stdout.WriteString("corral-shim " + version + "\n")
		return 0
	}
	printError("usage: corral-shim run SPECFILE | corral-shim join SOCKET")
	return 2
}

// printError prints a message into the pane for the user.
func printError(text string) { _, _ = os.Stderr.WriteString("corral-shim: " + text + "\n") }

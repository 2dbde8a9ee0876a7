// Corral-shim is the parent of one agent: it holds the agent's terminal, shows it in a tmux pane,
// keeps what it prints, hands input to it and records how it ended.
//
//	corral-shim run SPECFILE   in a tmux pane: run the agent that the file describes (see shimwire.Spec)
//	corral-shim join SOCKET    in a new tmux pane: show the agent of the shim that listens on SOCKET there
//	corral-shim environment MARK   in a login shell: print the environment, between marks
//
// It is one thread of work around one epoll set. Whatever it may need while the agent runs
// (threads, descriptors, memory, the file of the record) it has before the agent starts, because an
// agent may use up everything that the two have in common.
package main

import (
	"os"

	"github.com/corrald/corral/internal/shimwire"
)

// version is set by the linker.
var version = "unknown"

func main() { os.Exit(command(os.Args[1:])) }

func command(args []string) int {
	switch {
	case len(args) == 2 && args[0] == "run":
		return runAgent(args[1])
	case len(args) == 2 && args[0] == "join":
		return joinPane(args[1])
	case len(args) == 2 && args[0] == "environment":
		if _, err := os.Stdout.Write(shimwire.AppendEnvironment(nil, args[1], os.Environ())); err != nil {
			return 1
		}
		return 0
	case len(args) == 1 && (args[0] == "version" || args[0] == "--version"):
		_, _ = os.Stdout.WriteString("corral-shim " + version + "\n")
		return 0
	}
	complain("usage: corral-shim run SPECFILE | corral-shim join SOCKET")
	return 2
}

// complain tells the person in front of the pane, who may be nobody.
func complain(text string) { _, _ = os.Stderr.WriteString("corral-shim: " + text + "\n") }

// Package outcome describes in a few words how a run ended, for places without room for a sentence:
// a column of a table, a status bar, the title of a notification. It also rewrites those values of
// the Reason property that only a developer would understand.
package outcome

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi/word"
)

// Short describes a result in one or two words: "exit 3", "SIGKILL", "SIGSEGV (core)", "oom".
// status is the exit code or the signal number, as in ExecMainStatus. Short returns "" for success
// and for an unknown result.
func Short(result string, status int) string {
	switch result {
	case word.ExitCode:
		return fmt.Sprintf("exit %d", status)
	case word.Signal:
		return SignalName(status)
	case word.CoreDump:
		return SignalName(status) + " (core)"
	case word.OOMKill:
		return "oom"
	case word.Timeout:
		return "timeout"
	case word.StartFailed:
		return "not started"
	case word.SessionLost:
		return "exit unknown"
	case word.AgentLost:
		return "shim died"
	}
	return ""
}

// Phrase describes how an agent ended, to follow the name of its program: "exited with code 3",
// "was killed by SIGSEGV (core dumped)". It returns "" for a result that has another cause.
func Phrase(result string, status int) string {
	switch result {
	case word.ExitCode:
		return fmt.Sprintf("exited with code %d", status)
	case word.Signal:
		return "was killed by " + SignalName(status)
	case word.CoreDump:
		return "was killed by " + SignalName(status) + " (core dumped)"
	}
	return ""
}

// End has the properties of a session from which Sentence derives how its run ended.
type End struct {
	State, Result, EndCause, Reason string
	AgentAlive                      bool
}

// Sentence returns the Reason in the wording for users.
func Sentence(e End) string {
	switch {
	case e.State == word.Stale && e.AgentAlive:
		return "its tmux server died; the agent is still running"
	case e.State == word.Stale:
		return "its tmux server died"
	case e.Result == word.AgentLost:
		return "its shim died, and the agent lost its terminal; the exit status is unknown"
	case e.Result == word.SessionLost && e.EndCause == word.Killed:
		return "all of its processes were killed; the exit status is unknown"
	case e.Result == word.Timeout:
		return "it reached its RuntimeMaxSec="
	}
	return e.Reason
}

// SignalName returns the name of a signal as kill -l prints it, with the prefix SIG.
func SignalName(n int) string {
	if name := unix.SignalName(unix.Signal(n)); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", n)
}

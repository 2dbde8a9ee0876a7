// Package outcome describes in a few words how a run ended, for places without room for a sentence:
// a column of a table, a status bar, the title of a notification. It also rewrites those values of
// the Reason property that only a developer would understand.
package outcome

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi/word"
)

// Values of the Reason property that clients compare with. They are part of the D-Bus contract and
// must not change.
const (
	ReasonStale      = "scope running, session dead"
	ReasonShimDied   = "shell process exited"
	ReasonKilled     = "tmux session no longer exists"
	ReasonMachine    = "the machine went down"
	ReasonRuntimeMax = "it ran for as long as RuntimeMaxSec allows"
	ReasonIdle       = "its agent was idle for " // a duration follows
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

// Sentence returns a Reason in the wording for users. agentAlive is whether the agent is still
// running.
func Sentence(reason string, agentAlive bool) string {
	switch reason {
	case ReasonStale:
		if agentAlive {
			return "its tmux server died; the agent is still running"
		}
		return "its tmux server died"
	case ReasonShimDied:
		return "its shim died, and the agent lost its terminal; the exit status is unknown"
	case ReasonKilled:
		return "all of its processes were killed; the exit status is unknown"
	case ReasonRuntimeMax:
		return "it reached its RuntimeMaxSec="
	}
	return reason
}

// SignalName returns the name of a signal as kill -l prints it, with the prefix SIG.
func SignalName(n int) string {
	if name := unix.SignalName(unix.Signal(n)); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", n)
}

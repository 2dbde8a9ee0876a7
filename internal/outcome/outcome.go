// Package outcome describes in a few words how a run ended, for every place that has no room for a
// sentence: a column of a table, a status bar, the title of a notification. It also translates
// those of the bus's Reason sentences that only a developer understands.
package outcome

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// The results of a run, as in the Result property. A run that lives has none.
const (
	Success     = "success"
	ExitCode    = "exit-code"
	Signal      = "signal"
	CoreDump    = "core-dump"
	OOMKill     = "oom-kill"
	Timeout     = "timeout"
	CannotStart = "start-failed"
	SessionLost = "session-lost"
	AgentLost   = "agent-lost"
)

// The sentences of the Reason property that clients compare with. They are part of the contract and
// do not change.
const (
	ReasonStale      = "scope running, session dead"
	ReasonShimDied   = "shell process exited"
	ReasonKilled     = "tmux session no longer exists"
	ReasonMachine    = "the machine went down"
	ReasonRuntimeMax = "it ran for as long as RuntimeMaxSec allows"
	ReasonIdle       = "its agent was idle for " // a duration follows
)

// Short describes a result; status is the exit code or the number of the signal, as in
// ExecMainStatus: "exit 3", "SIGKILL", "SIGSEGV (core)", "oom". It returns "" for success and for a
// result that it does not know.
func Short(result string, status int) string {
	switch result {
	case ExitCode:
		return fmt.Sprintf("exit %d", status)
	case Signal:
		return SignalName(status)
	case CoreDump:
		return SignalName(status) + " (core)"
	case OOMKill:
		return "oom"
	case Timeout:
		return "timeout"
	case CannotStart:
		return "not started"
	case SessionLost:
		return "exit unknown"
	case AgentLost:
		return "shim died"
	}
	return ""
}

// Sentence returns a Reason as a person reads it. AgentAlive says whether the agent still runs.
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

// SignalName returns the name of a signal as kill -l has it, with SIG in front.
func SignalName(n int) string {
	if name := unix.SignalName(unix.Signal(n)); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", n)
}

package outcome_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/outcome"
)

func TestShort(t *testing.T) {
	for _, row := range []struct {
		result string
		status int
		want   string
	}{
		{word.Success, 0, ""},
		{word.ExitCode, 3, "exit 3"},
		{word.Signal, 9, "SIGKILL"},
		{word.Signal, 99, "signal 99"},
		{word.CoreDump, 11, "SIGSEGV (core)"},
		{word.OOMKill, 9, "oom"},
		{word.Timeout, 15, "timeout"},
		{word.StartFailed, 0, "not started"},
		{word.SessionLost, 0, "exit unknown"},
		{word.AgentLost, 0, "shim died"},
		{"", 0, ""},
		{"of a later version", 0, ""},
	} {
		assert.Equal(t, row.want, outcome.Short(row.result, row.status), "%s %d", row.result, row.status)
	}
}

func TestPhrase(t *testing.T) {
	assert.Equal(t, "exited with code 3", outcome.Phrase(word.ExitCode, 3))
	assert.Equal(t, "was killed by SIGKILL", outcome.Phrase(word.Signal, 9))
	assert.Equal(t, "was killed by SIGSEGV (core dumped)", outcome.Phrase(word.CoreDump, 11))
	assert.Empty(t, outcome.Phrase(word.OOMKill, 9))
}

func TestSentence(t *testing.T) {
	for _, row := range []struct {
		name string
		end  outcome.End
		want string
	}{
		{"stale, the agent runs", outcome.End{State: word.Stale, Result: word.SessionLost, AgentAlive: true},
			"its tmux server died; the agent is still running"},
		{"stale", outcome.End{State: word.Stale, Result: word.SessionLost}, "its tmux server died"},
		{"killed", outcome.End{
			State: word.Failed, Result: word.SessionLost, EndCause: word.Killed, Reason: "tmux session no longer exists",
		}, "all of its processes were killed; the exit status is unknown"},
		{"a daemon without EndCause", outcome.End{
			State: word.Failed, Result: word.SessionLost, Reason: "the machine went down",
		}, "the machine went down"},
		{"the machine went down", outcome.End{
			State: word.Failed, Result: word.SessionLost, EndCause: word.Shutdown, Reason: "the machine went down",
		}, "the machine went down"},
		{"shim died", outcome.End{State: word.Failed, Result: word.AgentLost, Reason: "shell process exited"},
			"its shim died, and the agent lost its terminal; the exit status is unknown"},
		{"time limit", outcome.End{State: word.Failed, Result: word.Timeout}, "it reached its RuntimeMaxSec="},
		{"plain sentence", outcome.End{State: word.Failed, Result: word.ExitCode, Reason: "command exited with code 3"},
			"command exited with code 3"},
	} {
		assert.Equal(t, row.want, outcome.Sentence(row.end), row.name)
	}
}

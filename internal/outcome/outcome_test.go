package outcome_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/outcome"
)

func TestShort(t *testing.T) {
	for _, row := range []struct {
		result string
		status int
		want   string
	}{
		{outcome.Success, 0, ""},
		{outcome.ExitCode, 3, "exit 3"},
		{outcome.Signal, 9, "SIGKILL"},
		{outcome.Signal, 99, "signal 99"},
		{outcome.CoreDump, 11, "SIGSEGV (core)"},
		{outcome.OOMKill, 9, "oom"},
		{outcome.Timeout, 15, "timeout"},
		{outcome.CannotStart, 0, "not started"},
		{outcome.SessionLost, 0, "exit unknown"},
		{outcome.AgentLost, 0, "shim died"},
		{"", 0, ""},
		{"of a later version", 0, ""},
	} {
		assert.Equal(t, row.want, outcome.Short(row.result, row.status), "%s %d", row.result, row.status)
	}
}

func TestSentence(t *testing.T) {
	assert.Equal(t, "its tmux server died; the agent is still running",
		outcome.Sentence("scope running, session dead", true))
	assert.Equal(t, "its tmux server died", outcome.Sentence("scope running, session dead", false))
	assert.Equal(t, "all of its processes were killed; the exit status is unknown",
		outcome.Sentence("tmux session no longer exists", false))
	assert.Equal(t, "its shim died, and the agent lost its terminal; the exit status is unknown",
		outcome.Sentence("shell process exited", false))
	assert.Equal(t, "command exited with code 3", outcome.Sentence("command exited with code 3", false),
		"plain sentences are not changed")
}

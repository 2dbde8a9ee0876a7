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

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

// TestSavedSession_KnowsTheRecordedExit: a daemon that was killed had not saved the exit yet, or
// the agent exited after that.
func TestSavedSession_KnowsTheRecordedExit(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_STATE_HOME", home)
	dir := filepath.Join(home, "corral/sessions/shop")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	for run, state := range map[string]string{"run": "failed", "an earlier run": "unknown"} {
		record := &session.Session{ID: "shop", Agent: "command", Command: []string{"true"}}
		record.Apply(session.RunBegun{Run: "run", At: time.Now()})
		record.Apply(session.AgentStarted{Run: "run", Agent: session.Process{PID: 7, Start: 7}, At: time.Now()})
		require.NoError(t, exitstatus.Write(dir, exitstatus.Status{RunID: run, Code: exitstatus.Exited, Value: 3}))
		applyRecordedExit(record)
		assert.Equal(t, state, savedSession(record, "unknown").State)
	}
}

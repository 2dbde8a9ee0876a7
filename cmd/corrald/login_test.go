package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLogin_IsFinishedByTheNextDaemon checks that the next daemon restores the pending sessions of
// a login that was interrupted, and none of one that was finished.
func TestLogin_IsFinishedByTheNextDaemon(t *testing.T) {
	d := startDaemon(t)
	progress := d.runtimeDir(".login")
	for _, id := range []string{"done", "left"} {
		s := d.create(t, id, spec{"Command": []string{"sleep", "1000"}, "OnLogin": "resume"})
		s.must("Suspend")
	}
	d.kill(syscall.SIGKILL)
	content, err := os.ReadFile(progress)
	require.NoError(t, err)
	assert.Len(t, strings.Fields(string(content)), 1, "the incarnation, and no pending session")

	d.launch()
	left := d.session(t, "left")
	assert.Equal(t, "suspended", left.properties().text("State"), "a restart restores nothing")
	d.kill(syscall.SIGKILL)

	require.NoError(t, os.WriteFile(progress, append(content, "left\nremoved\n"...), 0o600))
	d.launch()
	left = d.session(t, "left")
	left.waitState("running")
	assert.Equal(t, "suspended", d.session(t, "done").properties().text("State"))
	waitFile(t, progress, string(content))
}

// TestRuntimeDirectory_OwnFilesCannotBeSessionIDs checks that the names of the daemon's own files
// begin with a dot: a session can have the id login, or tmux.conf, and its runtime directory is
// removed with it.
func TestRuntimeDirectory_OwnFilesCannotBeSessionIDs(t *testing.T) {
	d := startDaemon(t)
	d.run(t, "shop", "exec sleep 1000")
	all, err := os.ReadDir(d.runtimeDir(""))
	require.NoError(t, err)
	for _, entry := range all {
		assert.True(t, entry.IsDir() || strings.HasPrefix(entry.Name(), "."), entry.Name())
	}
}

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLogin_IsFinishedByTheNextDaemon is gone on with by the next daemon; one that was seen to is
// not.
func TestLogin_IsFinishedByTheNextDaemon(t *testing.T) {
	d := startDaemon(t)
	note := d.runtimeDir(".login")
	for _, id := range []string{"done", "left"} {
		s := d.create(t, id, spec{"Command": []string{"sleep", "1000"}, "OnLogin": "resume"})
		s.must("Suspend")
	}
	d.kill(syscall.SIGKILL)
	content, err := os.ReadFile(note)
	require.NoError(t, err)
	assert.Len(t, strings.Fields(string(content)), 1, "which login it was, and nothing that is left")

	d.launch()
	left := d.subject(t, "left")
	assert.Equal(t, "suspended", left.facts().text("State"), "a mere restart")
	d.kill(syscall.SIGKILL)

	require.NoError(t, os.WriteFile(note, append(content, "left\nremoved\n"...), 0o600))
	d.launch()
	left = d.subject(t, "left")
	left.become("running")
	assert.Equal(t, "suspended", d.subject(t, "done").facts().text("State"))
	waitFile(t, note, string(content))
}

// TestRuntimeDirectory_HasNoFileASessionCouldBeNamed: a session can be called login, or tmux.conf,
// and its runtime directory goes with it.
func TestRuntimeDirectory_HasNoFileASessionCouldBeNamed(t *testing.T) {
	d := startDaemon(t)
	d.run(t, "shop", "exec sleep 1000")
	all, err := os.ReadDir(d.runtimeDir(""))
	require.NoError(t, err)
	for _, entry := range all {
		assert.True(t, entry.IsDir() || strings.HasPrefix(entry.Name(), "."), entry.Name())
	}
}

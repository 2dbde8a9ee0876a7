package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// tmux runs a tmux command on the server of a session and returns what it prints.
func (d *corrald) tmux(id string, args ...string) string {
	out, _ := exec.Command("tmux", append([]string{"-N", "-u", "-S", filepath.Join(d.runtimeDir(id), "tmux")}, args...)...).Output()
	return strings.TrimSuffix(string(out), "\n")
}

// TestPane_IsDeadAfterEveryExit, also where tmux has missed it, as one before 3.6 does with some, and shows the complete last screen with the result below it.
func TestPane_IsDeadAfterEveryExit(t *testing.T) {
	d := startDaemon(t)
	const n = 24
	for i := range n {
		d.run(t, fmt.Sprint("s", i), "echo hello; exit 3")
	}
	for i := range n {
		id := fmt.Sprint("s", i)
		testbed.Poll(t, "the pane of "+id+" is dead", func() bool { return d.tmux(id, "list-panes", "-F", "#{pane_dead} #{pane_dead_status}") == "1 3" })
		assert.Equal(t, "hello\n[corral] sh exited with code 3. Restart or log: corralctl attach "+id, strings.TrimRight(d.tmux(id, "capture-pane", "-p"), "\n"))
	}
	var text string
	require.NoError(t, d.call(dbusapi.SessionPath("s0"), dbusapi.SessionInterface+".Capture", []any{uint32(0), uint64(0)}, &text))
	assert.Equal(t, "hello\n", text, "that line is no output of the agent")
}

// TestReload_ChangesTheDetachKeyOfRunningSessions, and of those that are started later.
func TestReload_ChangesTheDetachKeyOfRunningSessions(t *testing.T) {
	d := startDaemon(t)
	d.run(t, "shop", "exec sleep 1000")
	bound := func(id, key string) bool { return strings.Contains(d.tmux(id, "list-keys", "-T", "root"), " "+key+" ") }
	assert.True(t, bound("shop", "C-q"))
	assert.Equal(t, "sh", d.tmux("shop", "list-windows", "-F", "#{window_name}"))
	d.write("config/corral/corral.conf", "[Corral]\nDetachKey=F12\n")
	require.NoError(t, d.manager("Reload", nil))
	testbed.Poll(t, "the key is another one", func() bool { return bound("shop", "F12") && !bound("shop", "C-q") })
	assert.Equal(t, "F12", d.tmux("shop", "display-message", "-p", "#{@corral-detach}"))
	d.run(t, "site", "exec sleep 1000")
	assert.True(t, bound("site", "F12"))
	assert.False(t, bound("site", "C-q"))
}

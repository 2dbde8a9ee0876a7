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

// tmux runs a tmux command on the server of a session and returns its output.
func (d *corrald) tmux(id string, args ...string) string {
	out, _ := exec.Command("tmux",
		append([]string{"-N", "-u", "-S", filepath.Join(d.runtimeDir(id), "tmux")}, args...)...).Output()
	return strings.TrimSuffix(string(out), "\n")
}

// TestPane_IsDeadAfterEveryExit checks that the pane is dead after each exit, even where tmux has
// missed it, as versions before 3.6 sometimes do, and shows the complete last screen with the
// result below it.
func TestPane_IsDeadAfterEveryExit(t *testing.T) {
	d := startDaemon(t)
	const n = 24
	for i := range n {
		d.run(t, fmt.Sprint("s", i), "echo hello; exit 3")
	}
	for i := range n {
		id := fmt.Sprint("s", i)
		testbed.Poll(t, "the pane of "+id+" is dead", func() bool {
			return d.tmux(id, "list-panes", "-F", "#{pane_dead} #{pane_dead_status}") == "1 3"
		})
		assert.Equal(t, "hello\n[corral] sh exited with code 3. Restart or log: corralctl attach "+id,
			strings.TrimRight(d.tmux(id, "capture-pane", "-p"), "\n"))
	}
	var text string
	require.NoError(t, d.call(dbusapi.SessionPath("s0"), dbusapi.SessionInterface+".Capture",
		[]any{uint32(0), uint64(0)}, &text))
	assert.Equal(t, "hello\n", text, "the result line is not part of the agent's output")
}

// TestReload_ChangesTheDetachKeyOfRunningSessions checks a new DetachKey= in running sessions and
// in those started later.
func TestReload_ChangesTheDetachKeyOfRunningSessions(t *testing.T) {
	d := startDaemon(t)
	d.run(t, "shop", "exec sleep 1000")
	bound := func(id, key string) bool { return strings.Contains(d.tmux(id, "list-keys", "-T", "root"), " "+key+" ") }
	assert.True(t, bound("shop", "C-q"))
	assert.Equal(t, "sh", d.tmux("shop", "list-windows", "-F", "#{window_name}"))
	d.write("config/corral/corral.conf", "[Corral]\nDetachKey=F12\n")
	require.NoError(t, d.manager("Reload", nil))
	testbed.Poll(t, "the key has changed", func() bool { return bound("shop", "F12") && !bound("shop", "C-q") })
	assert.Equal(t, "F12", d.tmux("shop", "display-message", "-p", "#{@corral-detach}"))
	d.run(t, "site", "exec sleep 1000")
	assert.True(t, bound("site", "F12"))
	assert.False(t, bound("site", "C-q"))
}

// TestTmuxConfig_ReportsAnInvalidLine checks that an invalid line is a problem and is logged, and
// that all other lines are applied.
func TestTmuxConfig_ReportsAnInvalidLine(t *testing.T) {
	d := startDaemon(t, "TmuxConfig=user")
	d.write(".tmux.conf", "set -g prefix C-a\nbadcommand x\xff\nset -g history-limit 77\n")
	for i := range 2 {
		d.run(t, fmt.Sprint("shop", i), "exec sleep 1000")
	}
	file := filepath.Join(d.dir, ".tmux.conf")
	want := "invalid lines of a tmux configuration (TmuxConfig=) are ignored: " + file +
		":2: unknown command: badcommand; the next session that starts reads it again"
	problems := d.waitProblems(t, 1)
	assert.Equal(t, want, problems[0].Text)
	assert.Equal(t, 1, strings.Count(d.log.String(), "a line of a tmux configuration is invalid and ignored"), "once")
	assert.Contains(t, d.log.String(), file+":2: unknown command: badcommand")
	id := d.ids(t)[0]
	assert.Equal(t, "C-a", d.tmux(id, "show-options", "-gv", "prefix"))
	assert.Equal(t, "77", d.tmux(id, "display-message", "-p", "#{history_limit}"))

	d.write(".tmux.conf", "set -g prefix C-a\n")
	d.run(t, "site", "exec sleep 1000")
	d.waitProblems(t, 0)
}

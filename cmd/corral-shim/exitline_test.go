package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/shimwire"
)

// numbers returns the lines that seq(1) prints.
func numbers(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

func TestExitLine_AppearsBelowTheLastScreen(t *testing.T) {
	const kill = "; kill -KILL $$"
	for _, row := range []struct {
		name, script string
		how          string
		screen       string // above the line
		history      string // number of rows in the history
	}{
		{"two lines", "echo hello; echo there; exit 4", "exited with code 4", "hello\nthere\n", "0"},
		{"nothing", "true", "exited with code 0", "", "0"},
		{"no newline at the end", "printf hello", "exited with code 0", "hello\n", "0"},
		{"killed", "echo hello" + kill, "was killed by SIGKILL", "hello\n", "0"},
		{"a screen that is full but for the row of the cursor", "seq 19; exit 3", "exited with code 3", numbers(1, 19), "0"},
		{"a screen that is full", "seq 19; printf 20; exit 3", "exited with code 3", numbers(2, 20), "1"},
		{"more than a screen", "seq 1000; exit 3", "exited with code 3", numbers(982, 1000), "981"},
		{"a cursor above the text", `printf 'one\ntwo\nthree\033[1;2H'; exit 1`, "exited with code 1", "one\ntwo\nthree\n", "0"},
		{"a cursor above the text of a full screen", `seq 19; printf '20\033[5;1H'; exit 1`, "exited with code 1", numbers(2, 20), "1"},
		{"a scroll region and origin mode", `printf 'one\ntwo\nthree\033[1;2r\033[?6h\033[2;2H'` + kill, "was killed by SIGKILL", "one\ntwo\nthree\n", "0"},
		{"the alternate screen", `echo shell; printf '\033[?1049h\033[H\033[31mone\n\033[44mtwo'` + kill, "was killed by SIGKILL", "one\ntwo\n", "1"},
		{
			"an alternate screen that is full, with scroll region, mouse, graphics characters and a hidden cursor",
			`printf '\033[?1049h\033[?1000h\033[?1006h\033[?1h\033=\033[?25l\033[?2004h\033[2;9r\033[H\033[1;31m\033(0qx\033(B'; seq 2 19; printf '\033[r\033[20;1Hlast\033[?7l\033[3;3H'` + kill,
			"was killed by SIGKILL", "", "1",
		},
		{"a control string that was broken off", `printf 'one\n\033]0;title'` + kill, "was killed by SIGKILL", "one\n", "0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ts := newTestSession(t, "sh", "-c", row.script)
			m := ts.inTmux()
			screen := m.waitForExitLine(row.how)
			if strings.Contains(row.name, "graphics") {
				assert.True(t, strings.HasSuffix(screen, "\nlast\n"), screen)
				assert.Len(t, strings.Split(m.call("capture-pane", "-p", "-S", "-"), "\n"), 21)
				assert.Contains(t, m.call("capture-pane", "-p", "-S", "-", "-e"), "\x1b[1m\x1b[31m\x0eqx")
			} else {
				assert.Equal(t, row.screen, screen)
			}
			assert.Equal(t, row.history, m.call("display-message", "-p", "#{history_size}"))
			assert.Equal(t, "0 0 0 0 0", m.call("display-message", "-p",
				"#{alternate_on} #{mouse_any_flag} #{keypad_flag} #{keypad_cursor_flag} #{insert_flag}"))
			assert.NotContains(t, ts.log(), shimwire.ExitLinePrefix)
		})
	}
}

func TestExitLine_FitsThePane(t *testing.T) {
	exited := exitstatus.Status{Code: exitstatus.Exited, Value: 3}
	assert.Equal(t, "[corral] claude exited with code 3. Restart or log: corralctl attach shop",
		exitLine("shop", "claude", exited, 80))
	assert.Equal(t, "[corral] claude exit", exitLine("shop", "claude", exited, 21))
	assert.Len(t, exitLine(strings.Repeat("s", 64), "claude", exited, 200), 79)
	dumped := exitstatus.Status{Code: exitstatus.Dumped, Value: int(unix.SIGSEGV)}
	assert.Contains(t, exitLine("shop", "claude", dumped, 80), "was killed by SIGSEGV (core dumped).")
}

func TestTmuxServer_RunFailsWithoutItsExecutable(t *testing.T) {
	var unknown tmuxServer
	_, err := unknown.run(time.Now().Add(deadline), "list-panes")
	require.Error(t, err)
}

func TestPaneScreen_IgnoresAttributesOfBlankRows(t *testing.T) {
	p := paneScreen{height: 3, rows: []string{"one", "\x1b[1m \x1b[0m", ""}}
	assert.Equal(t, resetModes+resetMargins+"\x1b[2;1Hx", string(p.withLine("x")))
}

// TestExitLine_IsOmittedWhenTheScopeEnds: the daemon announces that it ends the scope.
func TestExitLine_IsOmittedWhenTheScopeEnds(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "stty -echo; echo hello; read x")
	m := ts.inTmux()
	daemon := ts.connect()
	defer daemon.cleanup()
	daemon.send(shimwire.Message{Kind: shimwire.ScopeEnds})
	daemon.sendText(1, "\n", 0)
	waitForExit(t, daemon.hello.ShimPID)
	assert.Equal(t, "hello", m.call("capture-pane", "-p"))
}

// TestExitLine_IsShownIfTheDaemonIsLost: it was killed after it had announced that the scope ends.
func TestExitLine_IsShownIfTheDaemonIsLost(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "stty -echo; echo hello; read x")
	m := ts.inTmux()
	daemon, next := ts.connect(), ts.connect()
	defer next.cleanup()
	daemon.send(shimwire.Message{Kind: shimwire.ScopeEnds})
	daemon.close()
	next.sendText(1, "\n", 0)
	assert.Equal(t, "hello\n", m.waitForExitLine("exited with code 0"))
}

func TestExitLine_RequiresASession(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", "stty -echo; echo hello; read x")
	ts.spec.Session = "" // older daemons do not set it
	m := ts.inTmux()
	d := ts.connect()
	defer d.cleanup()
	d.sendText(1, "\n", 0)
	waitForExit(t, d.hello.ShimPID)
	assert.Equal(t, "hello", m.call("capture-pane", "-p"))
}

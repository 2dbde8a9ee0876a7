package tmux

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/testbed"
)

// attachIn attaches a terminal of 80 columns to a session, and returns its server: the terminal is
// a pane of another tmux server.
func attachIn(t *testing.T, x *Tmux, s Session) Session {
	t.Helper()
	outer := serve(t, x)
	ask(t, x, outer, "unbind-key", "-n", "C-q")
	ask(t, x, outer, "set-option", "-g", "status", "off")
	ask(t, x, outer, "set-option", "-g", "mouse", "off")
	require.NoError(t,
		x.Run(t.Context(), outer, "/", append([]string{"env", "-u", "TMUX"}, x.AttachCommand(t.Context(), s)...)))
	ask(t, x, outer, "resize-window", "-x", "80", "-y", "24")
	testbed.Poll(t, "it is attached, with its size", func() bool {
		return ask(t, x, s, "list-clients", "-F", "#{client_width}x#{client_height}") == "80x24"
	})
	return outer
}

// statusLine waits until the last row of the terminal is as expected, and returns it.
func statusLine(t *testing.T, x *Tmux, outer Session, want func(line string) bool) string {
	t.Helper()
	var line string
	testbed.Poll(t, "the status line is as wanted", func() bool {
		screen, err := x.Capture(t.Context(), outer, 0, false)
		require.NoError(t, err)
		lines := strings.Split(strings.TrimSuffix(screen, "\n"), "\n")
		line = lines[len(lines)-1]
		return want(line)
	})
	return line
}

func TestDetachKey_DetachesAndIsShownInStatusLine(t *testing.T) {
	x := prepare(t)
	require.NoError(t, x.SetDetachKey("C-q"))
	s := serve(t, x)
	s.Window = "claude"
	require.NoError(t, x.Run(t.Context(), s, "/", []string{"sh", "-c", "stty -ixon; exec cat -v"}))
	outer := attachIn(t, x, s)
	line := statusLine(t, x, outer, func(line string) bool { return strings.HasPrefix(line, "[shop_1] claude ") })
	assert.Regexp(t, ` Ctrl-q leaves  \d\d:\d\d$`, line)
	assert.LessOrEqual(t, len(line), 80)
	require.NoError(t, x.SendKeys(t.Context(), outer, []string{"C-b", "C-q"}))
	shows(t, x, s, "^Q") // typed after the prefix key, it is sent to the program
	require.NoError(t, x.SendKeys(t.Context(), outer, []string{"C-q"}))
	testbed.Poll(t, "it is detached", func() bool { return ask(t, x, s, "list-clients") == "" })

	for _, row := range []struct{ key, shown string }{
		{"M-d", "Alt-d"}, {"F12", "F12"}, {"M-;", "Alt-;"}, {`M-'`, "Alt-'"}, {`C-\`, `Ctrl-\`},
		{"C-S-Up", "Ctrl-Shift-Up"}, {"M-#", "Alt-#"},
	} {
		t.Run(row.key, func(t *testing.T) {
			require.NoError(t, x.SetDetachKey(row.key))
			fresh := open(t, x, "exec cat")
			require.NoError(t, x.ChangeDetachKey(t.Context(), s, row.key)) // while the server is running
			for _, s := range []Session{fresh, s} {
				outer := attachIn(t, x, s)
				statusLine(t, x, outer, func(line string) bool { return strings.Contains(line, "  "+row.shown+" leaves  ") })
				ask(t, x, outer, "unbind-key", "-n", escapeArgument(row.key))
				require.NoError(t, x.SendKeys(t.Context(), outer, []string{row.key}))
				testbed.Poll(t, "it is detached", func() bool { return ask(t, x, s, "list-clients") == "" })
			}
		})
	}
	require.NoError(t, x.ChangeDetachKey(t.Context(), s, ""))
	assert.NotRegexp(t, "(?m) detach-client$", ask(t, x, s, "list-keys", "-T", "root"))
	outer = attachIn(t, x, s)
	line = statusLine(t, x, outer, func(line string) bool { return strings.HasPrefix(line, "[shop_1] claude ") })
	assert.NotContains(t, line, "leaves")
}

// TestRun_NamesTheWindowAfterTheProgram: neither the name nor the output of the program is
// interpreted.
func TestRun_NamesTheWindowAfterTheProgram(t *testing.T) {
	x := prepare(t)
	marker := filepath.Join(testbed.Dir(t), "pwned")
	for _, name := range []string{"claude", "#(touch " + marker + ")", "#{pid}", "#[fg=red]x", "%H", "a;", ";", "-d"} {
		s := serve(t, x)
		s.Window = name
		script := `printf '\033]2;#(touch ` + marker + `)#{pid}\033\\\033ktheirs #(touch ` + marker + `)\033\\ready'; read -r go`
		require.NoError(t, x.Run(t.Context(), s, "/", []string{"sh", "-c", script}))
		shows(t, x, s, "ready")
		shown := ask(t, x, s, "list-windows", "-F", "#{window_name}")
		assert.Equal(t, name, strings.ReplaceAll(shown, "##[", "#["), "tmux unescapes ##[ when it draws the name")
		if name == "claude" {
			outer := attachIn(t, x, s)
			statusLine(t, x, outer, func(line string) bool { return strings.HasPrefix(line, "[shop_1] claude ") })
			assert.Equal(t, "shop_1: claude", ask(t, x, outer, "list-panes", "-F", "#{pane_title}"))
			ask(t, x, s, "new-window", "-d", "-n", "bash", "exec sleep infinity")
			statusLine(t, x, outer, func(line string) bool { return strings.HasPrefix(line, "[shop_1] 0:claude 1:bash ") })
			ask(t, x, s, "set-option", "-g", "status-interval", "0")
			require.NoError(t, x.SendKeys(t.Context(), s, []string{"Enter"}))
			statusLine(t, x, outer, func(line string) bool {
				// tmux before 3.6 may miss the end of a program; corrald sends this signal, too.
				require.NoError(t, unix.Kill(s.ServerPID, unix.SIGCHLD))
				return strings.HasPrefix(line, "[shop_1] 0:claude (ended) 1:bash ")
			})
		}
	}
	assert.NoFileExists(t, marker)
}

// TestMouse_ScrollsSelectsAndReachesPrograms writes mouse reports, as a terminal does, to the
// terminal of a client.
func TestMouse_ScrollsSelectsAndReachesPrograms(t *testing.T) {
	const wheelUp, wheelDown = "\x1b[<64;10;5M", "\x1b[<65;10;5M"
	x := prepare(t)
	press := func(outer Session, text string) {
		t.Helper()
		ask(t, x, outer, "send-keys", "-l", "-t", outer.pane(), escapeArgument(text))
	}
	mode := func(s Session) string {
		return ask(t, x, s, "display-message", "-p", "-t", s.pane(), "#{pane_in_mode} #{scroll_position}")
	}
	t.Run("the wheel scrolls the output of a program", func(t *testing.T) {
		s := open(t, x, "seq 1000; exec cat")
		shows(t, x, s, "1000\n")
		outer := attachIn(t, x, s)
		press(outer, wheelUp)
		testbed.Poll(t, "it scrolls", func() bool { return mode(s) == "1 5" })
		press(outer, wheelDown+wheelDown)
		testbed.Poll(t, "it is back", func() bool { return strings.HasPrefix(mode(s), "0") })
	})
	t.Run("a program that enables the mouse receives its events", func(t *testing.T) {
		s := open(t, x, `stty -icanon -echo; printf '\033[?1000h\033[?1006hready'; exec cat -v`)
		shows(t, x, s, "ready")
		outer := attachIn(t, x, s)
		press(outer, wheelUp+wheelDown)
		shows(t, x, s, "^[[<64;10;5M^[[<65;10;5M")
		press(outer, "\x1b[<2;10;5M") // the right button
		shows(t, x, s, "^[[<2;10;5M")
	})
	t.Run("a program on the alternate screen receives arrow keys", func(t *testing.T) {
		s := open(t, x, `stty -icanon -echo; printf '\033[?1049h\033[Hready'; exec cat -v`)
		shows(t, x, s, "ready")
		outer := attachIn(t, x, s)
		press(outer, wheelUp+wheelDown)
		shows(t, x, s, "^[[A^[[A^[[A^[[B^[[B^[[B")
	})
	t.Run("dragging selects and copies to the clipboard of the terminal", func(t *testing.T) {
		s := open(t, x, "printf 'alpha beta\n'; exec cat")
		shows(t, x, s, "beta")
		outer := attachIn(t, x, s)
		ask(t, x, outer, "set-option", "-s", "set-clipboard", "on")
		press(outer, "\x1b[<0;7;1M\x1b[<32;9;1M")
		testbed.Poll(t, "it selects", func() bool { return strings.HasPrefix(mode(s), "1") })
		press(outer, "\x1b[<32;11;1M")
		selected := func() string { return ask(t, x, s, "display-message", "-p", "-t", s.pane(), "#{selection_end_x}") }
		testbed.Poll(t, "it has selected the word", func() bool { return selected() == "10" })
		press(outer, "\x1b[<0;11;1m")
		testbed.Poll(t, "the terminal has it", func() bool {
			out, err := x.command(t.Context(), outer, "-N", "show-buffer")
			return err == nil && string(out) == "beta"
		})
		assert.True(t, strings.HasPrefix(mode(s), "0"), "the screen is as before")
	})
	t.Run("the right button opens no menu", func(t *testing.T) {
		s := open(t, x, "echo ready; exec cat")
		shows(t, x, s, "ready")
		outer := attachIn(t, x, s)
		press(outer, "\x1b[<2;10;5M\x1b[<2;10;5m")
		press(outer, "typed\r")
		shows(t, x, s, "typed\ntyped")
		screen, err := x.Capture(t.Context(), outer, 0, false)
		require.NoError(t, err)
		assert.NotContains(t, screen, "Kill")
	})
}

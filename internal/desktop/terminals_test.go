package desktop

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func installed(names ...string) func(string) (string, error) {
	return func(name string) (string, error) {
		if slices.Contains(names, name) {
			return "/usr/bin/" + name, nil
		}
		return "", fmt.Errorf("%q is not installed", name)
	}
}

func TestTerminalCommand_ChoosesATerminal(t *testing.T) {
	x11, wayland := Environment{"DISPLAY=:0"}, Environment{"WAYLAND_DISPLAY=wayland-0"}
	both := append(slices.Clone(x11), wayland...)
	on := func(desktop string) Environment { return append(slices.Clone(both), "XDG_CURRENT_DESKTOP="+desktop) }
	prefers := func(name string) Environment { return append(slices.Clone(both), "TERMINAL="+name) }
	for name, c := range map[string]struct {
		configured  string
		environment Environment
		installed   string
		want        string // the arguments before the command, separated by |
	}{
		"the configured terminal comes first":    {"kitty", both, "xdg-terminal-exec kitty xterm", "kitty"},
		"the name of a known terminal is enough": {"konsole", both, "konsole", "konsole|-e"},
		"a known terminal with options":          {`xterm -fa "DejaVu Sans"`, x11, "xterm", "xterm|-fa|DejaVu Sans|-e"},
		"a complete command line":                {"xterm -fs 12 -e", x11, "xterm", "xterm|-fs|12|-e"},
		"options of a subcommand": {
			"wezterm start --class corral", both, "wezterm", "wezterm|start|--class|corral|--",
		},
		"an option that would be added anyway": {"ptyxis --new-window", both, "ptyxis", "ptyxis|--new-window|--"},
		"an unknown terminal":                  {"myterm --run", both, "myterm", "myterm|--run"},
		"the user's choice on the desktop":     {"", prefers("kitty"), "xdg-terminal-exec kitty", "xdg-terminal-exec"},
		"the user's $TERMINAL":                 {"", prefers("alacritty"), "gnome-terminal alacritty", "alacritty|-e"},
		"a $TERMINAL without a program":        {"", prefers(`""`), "gnome-terminal", "gnome-terminal|--"},
		"a $TERMINAL that is not installed":    {"", prefers("alacritty"), "gnome-terminal", "gnome-terminal|--"},
		"a desktop's terminal before others":   {"", both, "xterm kitty ptyxis", "ptyxis|--new-window|--"},
		"the terminal of the running desktop": {
			"", on("XFCE"), "konsole xfce4-terminal x-terminal-emulator", "xfce4-terminal|-x",
		},
		"the first of the desktop's names":         {"", on("ubuntu:KDE:GNOME"), "ptyxis konsole kitty", "konsole|-e"},
		"the administrator's choice before others": {"", on("XFCE"), "konsole x-terminal-emulator", "x-terminal-emulator|-e"},
		"the administrator's choice, configured": {
			"x-terminal-emulator", both, "x-terminal-emulator", "x-terminal-emulator|-e",
		},
		"foot on Wayland only": {"", x11, "foot xterm", "xterm|-e"},
		"xterm on X only":      {"", wayland, "xterm wezterm", "wezterm|start|--"},
	} {
		t.Run(name, func(t *testing.T) {
			lookup := installed(strings.Fields(c.installed)...)
			got, err := terminalCommand(c.configured, c.environment, lookup, []string{"CMD", "$a b"})
			require.NoError(t, err)
			assert.Equal(t, append(strings.Split("/usr/bin/"+c.want, "|"), "CMD", "$a b"), got)
		})
	}
}

func TestTerminalCommand_ReportsAMissingTerminal(t *testing.T) {
	_, err := terminalCommand("", Environment{"WAYLAND_DISPLAY=w"}, installed("xterm"), []string{"CMD"})
	var none *NoTerminalError
	require.ErrorAs(t, err, &none)
	assert.NotContains(t, none.Tried, "xterm")
	assert.Contains(t, none.Tried, "foot")

	_, err = terminalCommand("nonesuch", nil, installed("xterm"), []string{"CMD"})
	require.EqualError(t, err, `Terminal=: "nonesuch" is not installed`)
	_, err = terminalCommand(`a "b`, nil, installed(), []string{"CMD"})
	require.ErrorContains(t, err, "Terminal=: ")
}

// On a desktop without an X server, x-terminal-emulator may be a link to xterm.
func TestTerminalCommand_SkipsALinkToAnUnusableTerminal(t *testing.T) {
	dir := t.TempDir()
	xterm, link := filepath.Join(dir, "xterm"), filepath.Join(dir, "x-terminal-emulator")
	require.NoError(t, os.WriteFile(xterm, nil, 0o700))
	require.NoError(t, os.Symlink(xterm, link))
	lookup := func(name string) (string, error) {
		if name == xTerminalEmulator.name {
			return link, nil
		}
		return installed("kitty")(name)
	}
	for display, want := range map[string]string{"DISPLAY=:0": link, "WAYLAND_DISPLAY=wayland-0": "/usr/bin/kitty"} {
		argv, err := terminalCommand("", Environment{display}, lookup, []string{"CMD"})
		require.NoError(t, err)
		assert.Equal(t, want, argv[0])
	}
}

func TestTitle_SetsKonsolesTabTitle(t *testing.T) {
	assert.Equal(t, []string{"/usr/bin/konsole", "-p", "tabtitle=shop", "-e", "CMD"},
		withTitle([]string{"/usr/bin/konsole", "-e", "CMD"}, "shop"))
	assert.Equal(t, []string{"/usr/bin/kitty", "CMD"}, withTitle([]string{"/usr/bin/kitty", "CMD"}, "shop"))
}

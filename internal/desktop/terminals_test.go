package desktop

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	for name, c := range map[string]struct {
		configured  string
		environment Environment
		installed   []string
		want        []string
	}{
		"what is configured counts first":       {"kitty", both, []string{"xdg-terminal-exec", "kitty", "xterm"}, []string{"/usr/bin/kitty", "CMD", "$a b"}},
		"its name alone is enough":              {"konsole", both, []string{"konsole"}, []string{"/usr/bin/konsole", "-e", "CMD", "$a b"}},
		"with options of its own":               {`xterm -fa "DejaVu Sans"`, x11, []string{"xterm"}, []string{"/usr/bin/xterm", "-fa", "DejaVu Sans", "-e", "CMD", "$a b"}},
		"with all that it takes":                {"xterm -fs 12 -e", x11, []string{"xterm"}, []string{"/usr/bin/xterm", "-fs", "12", "-e", "CMD", "$a b"}},
		"options of its subcommand":             {"wezterm start --class corral", both, []string{"wezterm"}, []string{"/usr/bin/wezterm", "start", "--class", "corral", "--", "CMD", "$a b"}},
		"an option that is put in anyway":       {"ptyxis --new-window", both, []string{"ptyxis"}, []string{"/usr/bin/ptyxis", "--new-window", "--", "CMD", "$a b"}},
		"one that nobody here knows":            {"myterm --run", both, []string{"myterm"}, []string{"/usr/bin/myterm", "--run", "CMD", "$a b"}},
		"what the desktop prefers":              {"", append(both, "TERMINAL=kitty"), []string{"xdg-terminal-exec", "kitty"}, []string{"/usr/bin/xdg-terminal-exec", "CMD", "$a b"}},
		"what the user prefers":                 {"", append(both, "TERMINAL=alacritty"), []string{"gnome-terminal", "alacritty"}, []string{"/usr/bin/alacritty", "-e", "CMD", "$a b"}},
		"a preference that is not installed":    {"", append(both, "TERMINAL=alacritty"), []string{"gnome-terminal"}, []string{"/usr/bin/gnome-terminal", "--", "CMD", "$a b"}},
		"the desktop's own before others":       {"", both, []string{"xterm", "kitty", "ptyxis"}, []string{"/usr/bin/ptyxis", "--new-window", "--", "CMD", "$a b"}},
		"the terminal of the desktop that runs": {"", append(both, "XDG_CURRENT_DESKTOP=XFCE"), []string{"konsole", "xfce4-terminal", "x-terminal-emulator"}, []string{"/usr/bin/xfce4-terminal", "-x", "CMD", "$a b"}},
		"of the first of its names":             {"", append(both, "XDG_CURRENT_DESKTOP=ubuntu:KDE:GNOME"), []string{"ptyxis", "konsole", "kitty"}, []string{"/usr/bin/konsole", "-e", "CMD", "$a b"}},
		"the administrator's choice before any": {"", append(both, "XDG_CURRENT_DESKTOP=XFCE"), []string{"konsole", "x-terminal-emulator"}, []string{"/usr/bin/x-terminal-emulator", "-e", "CMD", "$a b"}},
		"the administrator's, configured":       {"x-terminal-emulator", both, []string{"x-terminal-emulator"}, []string{"/usr/bin/x-terminal-emulator", "-e", "CMD", "$a b"}},
		"foot only on Wayland":                  {"", x11, []string{"foot", "xterm"}, []string{"/usr/bin/xterm", "-e", "CMD", "$a b"}},
		"xterm only on X":                       {"", wayland, []string{"xterm", "wezterm"}, []string{"/usr/bin/wezterm", "start", "--", "CMD", "$a b"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Command(c.configured, c.environment, installed(c.installed...), []string{"CMD", "$a b"})
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}

func TestTerminalCommand_ReportsAMissingTerminal(t *testing.T) {
	_, err := Command("", Environment{"WAYLAND_DISPLAY=w"}, installed("xterm"), []string{"CMD"})
	var none *NoTerminalError
	require.ErrorAs(t, err, &none)
	assert.NotContains(t, none.Tried, "xterm")
	assert.Contains(t, none.Tried, "foot")

	_, err = Command("nonesuch", nil, installed("xterm"), []string{"CMD"})
	require.EqualError(t, err, `Terminal=: "nonesuch" is not installed`)
	_, err = Command(`a "b`, nil, installed(), []string{"CMD"})
	require.ErrorContains(t, err, "Terminal=: ")
}

// TestTerminalCommand_SkipsALinkToAnUnusableTerminal: x-terminal-emulator may be an xterm, on a
// desktop without an X server.
func TestTerminalCommand_SkipsALinkToAnUnusableTerminal(t *testing.T) {
	dir := t.TempDir()
	xterm, link := filepath.Join(dir, "xterm"), filepath.Join(dir, "x-terminal-emulator")
	require.NoError(t, os.WriteFile(xterm, nil, 0o700))
	require.NoError(t, os.Symlink(xterm, link))
	lookup := func(name string) (string, error) {
		if name == alternative.name {
			return link, nil
		}
		return installed("kitty")(name)
	}
	for display, want := range map[string]string{"DISPLAY=:0": link, "WAYLAND_DISPLAY=wayland-0": "/usr/bin/kitty"} {
		argv, err := Command("", Environment{display}, lookup, []string{"CMD"})
		require.NoError(t, err)
		assert.Equal(t, want, argv[0])
	}
}

func TestWithTitle_SetsKonsolesTabTitle(t *testing.T) {
	assert.Equal(t, []string{"/usr/bin/konsole", "-p", "tabtitle=shop", "-e", "CMD"}, titled([]string{"/usr/bin/konsole", "-e", "CMD"}, "shop"))
	assert.Equal(t, []string{"/usr/bin/kitty", "CMD"}, titled([]string{"/usr/bin/kitty", "CMD"}, "shop"))
}

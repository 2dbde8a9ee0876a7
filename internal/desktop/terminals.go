package desktop

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/corrald/corral/internal/config"
)

// terminal is a known terminal emulator.
type terminal struct {
	name         string
	execArgs     []string // arguments before the command; the last one ends the terminal's options
	needsX11     bool     // it shows windows on an X server only
	needsWayland bool     // it shows windows on a Wayland compositor only
	desktops     []string // desktops that ship it, by their names in XDG_CURRENT_DESKTOP
}

// xdgTerminalExec runs a command in the terminal that the user has selected on the desktop.
const xdgTerminalExec = "xdg-terminal-exec"

// xTerminalEmulator is the terminal that the administrator has selected on Debian and its
// derivatives. Debian Policy 11.8.3 defines its options.
var xTerminalEmulator = terminal{name: "x-terminal-emulator", execArgs: []string{"-e"}}

// terminals are the known terminal emulators, in order of preference: those that come with a
// desktop precede those that are installed everywhere.
var terminals = []terminal{
	{name: "ptyxis", execArgs: []string{"--new-window", "--"}, desktops: []string{"GNOME"}},
	{name: "kgx", execArgs: []string{"--"}, desktops: []string{"GNOME"}},
	{name: "gnome-terminal", execArgs: []string{"--"}, desktops: []string{"GNOME", "X-Cinnamon", "Budgie", "Unity"}},
	{name: "konsole", execArgs: []string{"-e"}, desktops: []string{"KDE"}},
	{name: "xfce4-terminal", execArgs: []string{"-x"}, desktops: []string{"XFCE"}},
	{name: "mate-terminal", execArgs: []string{"-x"}, desktops: []string{"MATE"}},
	{name: "qterminal", execArgs: []string{"-e"}, desktops: []string{"LXQt"}},
	{name: "cosmic-term", execArgs: []string{"--"}, desktops: []string{"COSMIC"}},
	{name: "foot", needsWayland: true},
	{name: "kitty"},
	{name: "alacritty", execArgs: []string{"-e"}},
	{name: "wezterm", execArgs: []string{"start", "--"}},
	{name: "ghostty", execArgs: []string{"-e"}},
	{name: "terminator", execArgs: []string{"-x"}},
	{name: "urxvt", execArgs: []string{"-e"}, needsX11: true},
	{name: "st", execArgs: []string{"-e"}, needsX11: true},
	{name: "xterm", execArgs: []string{"-e"}, needsX11: true},
	{name: "uxterm", execArgs: []string{"-e"}, needsX11: true},
}

// candidates returns the terminals in the order in which to look for them: those of the running
// desktop, the administrator's choice, all others.
func (e Environment) candidates() []terminal {
	var own, others []terminal
	for name := range strings.SplitSeq(e.Get("XDG_CURRENT_DESKTOP"), ":") {
		for _, t := range terminals {
			if slices.Contains(t.desktops, name) {
				own = append(own, t)
			}
		}
	}
	for _, t := range terminals {
		if !slices.ContainsFunc(own, func(o terminal) bool { return o.name == t.name }) {
			others = append(others, t)
		}
	}
	return slices.Concat(own, []terminal{xTerminalEmulator}, others)
}

// NoTerminalError means that none of the tried programs is installed and able to show a window.
type NoTerminalError struct{ Tried []string }

func (e *NoTerminalError) Error() string {
	return "no terminal emulator was found; tried: " + strings.Join(e.Tried, " ")
}

// TerminalCommand returns the argument vector that runs command in a new terminal window. It looks
// for the terminal in the directories of LookPath. Errors: those of Open.
func (e Environment) TerminalCommand(configured string, command []string) ([]string, error) {
	if !e.HasDisplay() {
		return nil, ErrNoDisplay
	}
	return terminalCommand(configured, e, e.LookPath, command)
}

// terminalCommand returns the argument vector that runs command in a new terminal window. The
// terminal is the configured one (Terminal=), else xdg-terminal-exec, else $TERMINAL, else that of
// the running desktop, else x-terminal-emulator, else any known one. lookup returns the path of a
// program, as exec.LookPath does. Errors: *NoTerminalError, or one that names the configured
// terminal.
func terminalCommand(
	configured string, environment Environment, lookup func(string) (string, error), command []string,
) ([]string, error) {
	if configured != "" {
		return configuredCommand("Terminal=", configured, lookup, command)
	}
	if path, err := lookup(xdgTerminalExec); err == nil {
		return append([]string{path}, command...), nil
	}
	// Many profiles set TERMINAL to a program that is not installed on every machine.
	if preferred := environment.Get("TERMINAL"); preferred != "" {
		if argv, err := configuredCommand("$TERMINAL", preferred, lookup, command); err == nil {
			return argv, nil
		}
	}
	tried := []string{xdgTerminalExec}
	for _, t := range environment.candidates() {
		if !t.canShowIn(environment) {
			continue
		}
		tried = append(tried, t.name)
		if path, err := lookup(t.name); err == nil && linkedTerminal(path).canShowIn(environment) {
			return slices.Concat([]string{path}, t.execArgs, command), nil
		}
	}
	return nil, &NoTerminalError{tried}
}

// linkedTerminal returns the terminal that a symbolic link such as x-terminal-emulator points to,
// the zero value if it is not a known one.
func linkedTerminal(path string) terminal {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		if i := slices.IndexFunc(terminals, func(t terminal) bool { return t.name == filepath.Base(target) }); i >= 0 {
			return terminals[i]
		}
	}
	return terminal{}
}

// canShowIn reports whether the terminal can show a window in this environment.
func (t terminal) canShowIn(environment Environment) bool {
	if t.needsX11 && environment.Get("DISPLAY") == "" {
		return false
	}
	return !t.needsWayland || environment.Get("WAYLAND_DISPLAY") != ""
}

// withTitle adds the title to the arguments of konsole, whose windows ignore the title that the
// program in them sets.
func withTitle(argv []string, title string) []string {
	if filepath.Base(argv[0]) == "konsole" {
		return slices.Concat(argv[:1], []string{"-p", "tabtitle=" + title}, argv[1:])
	}
	return argv
}

// configuredCommand returns the argument vector for a terminal that the user has configured, with
// or without options; source names the setting. If the terminal is a known one and the text does
// not end with the argument that introduces the command, it appends those of the terminal's
// execArgs that the text lacks: "wezterm start --class corral" gets "--", "konsole" gets "-e".
func configuredCommand(
	source, text string, lookup func(string) (string, error), command []string,
) ([]string, error) {
	words, err := config.SplitCommand(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	path, err := lookup(words[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	argv := append([]string{path}, words[1:]...)
	known := append([]terminal{xTerminalEmulator}, terminals...)
	i := slices.IndexFunc(known, func(t terminal) bool { return t.name == filepath.Base(words[0]) })
	if i >= 0 {
		execArgs := known[i].execArgs
		if len(execArgs) > 0 && words[len(words)-1] != execArgs[len(execArgs)-1] {
			for _, arg := range execArgs {
				if !slices.Contains(words, arg) {
					argv = append(argv, arg)
				}
			}
		}
	}
	return append(argv, command...), nil
}

package desktop

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/corrald/corral/internal/config"
)

// terminal is a terminal emulator that is known.
type terminal struct {
	name    string
	before  []string // what stands between its name and the command, as arguments
	x11     bool     // it shows windows on an X server only
	wayland bool     // on a Wayland compositor only
}

// terminals are the known ones, in the order in which they are looked for: xdg-terminal-exec, which asks the desktop what its user prefers, those that
// come with a desktop, those that one installs by choice, and what is always there. The last of before ends the terminal's own options.
var terminals = []terminal{
	{name: "xdg-terminal-exec"},
	{name: "ptyxis", before: []string{"--new-window", "--"}},
	{name: "kgx", before: []string{"--"}},
	{name: "gnome-terminal", before: []string{"--"}},
	{name: "konsole", before: []string{"-e"}},
	{name: "xfce4-terminal", before: []string{"-x"}},
	{name: "mate-terminal", before: []string{"-x"}},
	{name: "qterminal", before: []string{"-e"}},
	{name: "cosmic-term", before: []string{"--"}},
	{name: "foot", wayland: true},
	{name: "kitty"},
	{name: "alacritty", before: []string{"-e"}},
	{name: "wezterm", before: []string{"start", "--"}},
	{name: "ghostty", before: []string{"-e"}},
	{name: "terminator", before: []string{"-x"}},
	{name: "x-terminal-emulator", before: []string{"-e"}}, // Debian's choice; its policy, 11.8.3, says what it takes
	{name: "urxvt", before: []string{"-e"}, x11: true},
	{name: "st", before: []string{"-e"}, x11: true},
	{name: "xterm", before: []string{"-e"}, x11: true},
	{name: "uxterm", before: []string{"-e"}, x11: true},
}

// NoTerminalError says that nothing was found that could show a window.
type NoTerminalError struct{ Looked []string }

func (e *NoTerminalError) Error() string {
	return "no terminal was found, of: " + strings.Join(e.Looked, " ")
}

// Environment is a list of NAME=VALUE, the user manager's: what a service of it is started with.
type Environment []string

// Get returns the value of a variable, "" if it is not set.
func (e Environment) Get(name string) string {
	for _, entry := range slices.Backward(e) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// Command returns the argument vector that has a terminal run command in a window of its own. What is configured (Terminal=) counts first, then
// xdg-terminal-exec, then $TERMINAL, then the known ones that can show a window here. Lookup is exec.LookPath in the PATH that is meant.
// Errors: *NoTerminalError; one that names what was configured.
func Command(configured string, environment Environment, lookup func(string) (string, error), command []string) ([]string, error) {
	if configured != "" {
		argv, err := chosen("Terminal=", configured, lookup, command)
		if err != nil {
			return nil, err
		}
		return argv, nil
	}
	if path, err := lookup(terminals[0].name); err == nil {
		return append([]string{path}, command...), nil
	}
	if favourite := environment.Get("TERMINAL"); favourite != "" {
		if argv, err := chosen("$TERMINAL", favourite, lookup, command); err == nil { // many a profile names one that is not everywhere
			return argv, nil
		}
	}
	var looked []string
	for _, t := range terminals {
		if !t.shows(environment) {
			continue
		}
		looked = append(looked, t.name)
		if path, err := lookup(t.name); err == nil {
			return slices.Concat([]string{path}, t.before, command), nil
		}
	}
	return nil, &NoTerminalError{looked}
}

// shows tells whether the terminal can show a window where the environment leads.
func (t terminal) shows(environment Environment) bool {
	return (!t.x11 || environment.Get("DISPLAY") != "") && (!t.wayland || environment.Get("WAYLAND_DISPLAY") != "")
}

// chosen is a terminal as somebody wrote it, with options perhaps. What is known of it is put in, so that its name is enough: where the last of its
// words is not what ends its options already, and without what is there: `wezterm start --class corral`.
func chosen(where, text string, lookup func(string) (string, error), command []string) ([]string, error) {
	words, err := config.SplitWords(text)
	if err == nil && len(words) == 0 {
		err = fmt.Errorf("%q names no program", text)
	}
	if err != nil {
		return nil, fmt.Errorf("%s has a bad value: %w", where, err)
	}
	path, err := lookup(words[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	argv := append([]string{path}, words[1:]...)
	i := slices.IndexFunc(terminals, func(t terminal) bool { return t.name == filepath.Base(words[0]) })
	if i >= 0 && len(terminals[i].before) > 0 && words[len(words)-1] != last(terminals[i].before) {
		argv = append(argv, slices.DeleteFunc(slices.Clone(terminals[i].before), func(word string) bool { return slices.Contains(words, word) })...)
	}
	return append(argv, command...), nil
}

func last(words []string) string { return words[len(words)-1] }

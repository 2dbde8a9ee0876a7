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
	name     string
	before   []string // arguments between its name and the command; the last one ends the terminal's own options
	x11      bool     // it shows windows on an X server only
	wayland  bool     // on a Wayland compositor only
	desktops []string // whose own terminal it is, by their names in XDG_CURRENT_DESKTOP
}

// preferred asks the desktop which terminal its user prefers.
const preferred = "xdg-terminal-exec"

// alternative is the administrator's choice on Debian and its derivatives: Debian Policy 11.8.3
// defines its options.
var alternative = terminal{name: "x-terminal-emulator", before: []string{"-e"}}

// terminals are the known ones. Of those that are nobody's choice, the ones that come with a
// desktop precede the ones that are always there.
var terminals = []terminal{
	{name: "ptyxis", before: []string{"--new-window", "--"}, desktops: []string{"GNOME"}},
	{name: "kgx", before: []string{"--"}, desktops: []string{"GNOME"}},
	{name: "gnome-terminal", before: []string{"--"}, desktops: []string{"GNOME", "X-Cinnamon", "Budgie", "Unity"}},
	{name: "konsole", before: []string{"-e"}, desktops: []string{"KDE"}},
	{name: "xfce4-terminal", before: []string{"-x"}, desktops: []string{"XFCE"}},
	{name: "mate-terminal", before: []string{"-x"}, desktops: []string{"MATE"}},
	{name: "qterminal", before: []string{"-e"}, desktops: []string{"LXQt"}},
	{name: "cosmic-term", before: []string{"--"}, desktops: []string{"COSMIC"}},
	{name: "foot", wayland: true},
	{name: "kitty"},
	{name: "alacritty", before: []string{"-e"}},
	{name: "wezterm", before: []string{"start", "--"}},
	{name: "ghostty", before: []string{"-e"}},
	{name: "terminator", before: []string{"-x"}},
	{name: "urxvt", before: []string{"-e"}, x11: true},
	{name: "st", before: []string{"-e"}, x11: true},
	{name: "xterm", before: []string{"-e"}, x11: true},
	{name: "uxterm", before: []string{"-e"}, x11: true},
}

// inOrder returns the terminals in the order in which they are looked for: those of the desktop
// that runs, the administrator's choice, all others.
func (e Environment) inOrder() []terminal {
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
	return slices.Concat(own, []terminal{alternative}, others)
}

// NoTerminalError says that nothing was found that could show a window.
type NoTerminalError struct{ Tried []string }

func (e *NoTerminalError) Error() string {
	return "no terminal emulator was found; tried: " + strings.Join(e.Tried, " ")
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

// Command returns the argument vector that has a terminal run command in a window of its own. The
// terminal is what is configured (Terminal=), else xdg-terminal-exec, else $TERMINAL, else the
// desktop's own, else x-terminal-emulator, else any known one. Lookup is exec.LookPath in the PATH
// that is meant. Errors: *NoTerminalError; one that names what was configured.
func Command(configured string, environment Environment, lookup func(string) (string, error), command []string) ([]string, error) {
	if configured != "" {
		return chosen("Terminal=", configured, lookup, command)
	}
	looked := []string{preferred}
	if path, err := lookup(preferred); err == nil {
		return append([]string{path}, command...), nil
	}
	if favourite := environment.Get("TERMINAL"); favourite != "" {
		if argv, err := chosen("$TERMINAL", favourite, lookup, command); err == nil { // many a profile names one that is not everywhere
			return argv, nil
		}
	}
	for _, t := range environment.inOrder() {
		if !t.shows(environment) {
			continue
		}
		looked = append(looked, t.name)
		if path, err := lookup(t.name); err == nil && behind(path).shows(environment) {
			return slices.Concat([]string{path}, t.before, command), nil
		}
	}
	return nil, &NoTerminalError{looked}
}

// behind returns the terminal that a link such as x-terminal-emulator leads to, the zero terminal
// if it is not known.
func behind(path string) terminal {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		if i := slices.IndexFunc(terminals, func(t terminal) bool { return t.name == filepath.Base(target) }); i >= 0 {
			return terminals[i]
		}
	}
	return terminal{}
}

// shows reports whether the terminal can show a window in this environment.
func (t terminal) shows(environment Environment) bool {
	return (!t.x11 || environment.Get("DISPLAY") != "") && (!t.wayland || environment.Get("WAYLAND_DISPLAY") != "")
}

// titled adds the title to the arguments of a terminal whose windows do not take it from the
// program that runs in them.
func titled(argv []string, title string) []string {
	if filepath.Base(argv[0]) == "konsole" {
		return slices.Concat(argv[:1], []string{"-p", "tabtitle=" + title}, argv[1:])
	}
	return argv
}

// chosen is a terminal as somebody wrote it, with options perhaps. What is known of it is put in,
// so that its name is enough: where the last of its words is not what ends its options already, and
// without what is there: `wezterm start --class corral`.
func chosen(where, text string, lookup func(string) (string, error), command []string) ([]string, error) {
	words, err := config.SplitWords(text)
	if err == nil && len(words) == 0 {
		err = fmt.Errorf("invalid command %q: expected a program", text)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	path, err := lookup(words[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	argv := append([]string{path}, words[1:]...)
	known := append([]terminal{alternative}, terminals...)
	i := slices.IndexFunc(known, func(t terminal) bool { return t.name == filepath.Base(words[0]) })
	if i >= 0 && len(known[i].before) > 0 && words[len(words)-1] != last(known[i].before) {
		argv = append(argv, slices.DeleteFunc(slices.Clone(known[i].before), func(word string) bool { return slices.Contains(words, word) })...)
	}
	return append(argv, command...), nil
}

func last(words []string) string { return words[len(words)-1] }

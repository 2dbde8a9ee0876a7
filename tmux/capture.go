package tmux

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/corrald/corral/internal/shimwire"
)

// Capture returns the last lines of the agent's pane, including its history; lines 0 selects the
// screen. With escapes, it keeps colours and attributes. If the agent has exited, Capture omits the
// line that reports the exit in the pane, because it is not output of the agent.
func (t *Tmux) Capture(ctx context.Context, s Session, lines int, escapes bool) (string, error) {
	pane := t.targets(ctx, s).pane
	args := []string{"-N", "display-message", "-p", "-t", pane, "#{pane_dead} #{history_size} #{pane_height}", ";"}
	args = append(args, "capture-pane", "-p", "-t", pane, "-S", "-"+strconv.Itoa(lines+1))
	if escapes {
		args = append(args, "-e")
	}
	out, err := t.command(ctx, s, args...)
	if err != nil {
		return "", fmt.Errorf("cannot read the screen of %q: %w", s.Name, err)
	}
	state, text, _ := strings.Cut(string(out), "\n")
	var dead, history, height int
	if _, err := fmt.Sscan(state, &dead, &history, &height); err != nil {
		return "", fmt.Errorf("cannot read the screen of %q: tmux answered %q", s.Name, state)
	}
	return lastLines(text, lines, history > lines, dead != 0 || s.AgentExited, height), nil
}

// lastLines returns the last lines of a captured text without blank lines at the end; lines 0
// selects the screen, which has the given number of rows. If above is set, the text begins with one
// more line of history than requested, which is used if the line that reports the exit has scrolled
// the screen.
func lastLines(text string, lines int, above, ended bool, rows int) string {
	all := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	shown := trimBlank(all)
	scrolled := false
	if last := len(shown) - 1; ended && last >= 0 && isExitLine(shown[last]) {
		scrolled = last == len(all)-1
		shown = trimBlank(shown[:last])
	}
	switch {
	case lines == 0 && above && !scrolled:
		shown = shown[min(1, len(shown)):]
	case lines == 0:
		lines = rows
	}
	if lines > 0 && len(shown) > lines {
		shown = shown[len(shown)-lines:]
	}
	if len(shown) == 0 {
		return ""
	}
	return strings.Join(shown, "\n") + "\n"
}

// trimBlank removes blank lines at the end.
func trimBlank(lines []string) []string {
	for len(lines) > 0 && strings.TrimSpace(attributePattern.ReplaceAllString(lines[len(lines)-1], "")) == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// attributePattern matches the escape sequences that capture-pane -e inserts.
var attributePattern = regexp.MustCompile(`\x1b\[[0-9;:]*m|[\x0e\x0f]`)

// isExitLine reports whether a line is the one that corral-shim prints about the exit, or the one
// that tmux prints if an older version of Corral started the server.
func isExitLine(line string) bool {
	line = attributePattern.ReplaceAllString(line, "")
	return strings.HasPrefix(line, shimwire.ExitLinePrefix) || deadPanePattern.MatchString(line)
}

// deadPanePattern matches the default of remain-on-exit-format.
var deadPanePattern = regexp.MustCompile(`^Pane is dead \(.*\)\s*$`)

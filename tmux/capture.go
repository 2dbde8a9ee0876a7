package tmux

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/corrald/corral/internal/shimwire"
)

// Capture returns the last lines of the agent's pane, history included; lines 0 means its screen.
// Escapes keeps colours. If the agent has ended, the line that reports this in the pane is not part
// of the result: it is no output of the agent.
func (t *Tmux) Capture(ctx context.Context, s Session, lines int, escapes bool) (string, error) {
	pane := t.places(ctx, s).pane
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

// lastLines returns the last lines of what tmux has captured, without blank ones at the end; lines
// 0 means the screen, which has so many rows. With above, the capture begins with one line of
// history more than was asked for: it is used where the line about the end has scrolled the screen.
func lastLines(text string, lines int, above, ended bool, rows int) string {
	all := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	shown := trimBlank(all)
	scrolled := false
	if last := len(shown) - 1; ended && last >= 0 && isEndLine(shown[last]) {
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

// trimBlank returns lines without the blank ones at the end.
func trimBlank(lines []string) []string {
	for len(lines) > 0 && strings.TrimSpace(attributes.ReplaceAllString(lines[len(lines)-1], "")) == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// attributes matches what capture-pane -e adds to text.
var attributes = regexp.MustCompile(`\x1b\[[0-9;:]*m|[\x0e\x0f]`)

// isEndLine tells whether a line is that of the shim, or that of tmux in a pane of a server that an
// older Corral has started.
func isEndLine(line string) bool {
	line = attributes.ReplaceAllString(line, "")
	return strings.HasPrefix(line, shimwire.ExitLinePrefix) || deadPane.MatchString(line)
}

// deadPane is the default of remain-on-exit-format.
var deadPane = regexp.MustCompile(`^Pane is dead \(.*\)\s*$`)

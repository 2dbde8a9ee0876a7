package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/keys"
)

// A userTmux is the tmux that a person works in, and that has the terminal of this process as one
// of its panes.
type userTmux struct {
	program string
	pane    string // id of the pane that this is
}

// userTmux finds the user's tmux, nil if this is not one of its panes: TMUX is inherited by
// terminals that were opened from one. The tmux of a session, in which an agent or a person may
// call corralctl, is not the user's.
func (c *ctl) userTmux(ctx context.Context, bus *client.Client) *userTmux {
	socket, _, _ := strings.Cut(os.Getenv("TMUX"), ",")
	pane := os.Getenv("TMUX_PANE")
	if socket == "" || pane == "" || strings.HasPrefix(socket, filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "corral")+"/") || c.ownSession(ctx, bus) != "" {
		return nil
	}
	program, err := exec.LookPath("tmux")
	if err != nil {
		return nil
	}
	t := &userTmux{program, pane}
	here, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", c.in.Fd()))
	if err != nil {
		return nil
	}
	if tty, err := t.run(ctx, "display-message", "-p", "-t", pane, "#{pane_tty}"); err != nil || tty != here {
		return nil
	}
	return t
}

// run runs a command of tmux and returns what it prints.
func (t *userTmux) run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, t.program, args...).Output()
	return string(bytes.TrimRight(out, "\n")), err
}

// windowOption is the option of a window of the user's tmux that names the session which is
// attached to in it.
const windowOption = "@corral-session"

// showInTmux shows the session in a window of the user's tmux: one that shows it already, or a new
// one. A tmux inside of another one would take away the keys and the lines of both. It returns
// whether it has; where it cannot, the session is attached to here.
func (c *ctl) showInTmux(ctx context.Context, bus *client.Client, s client.Session) bool {
	t := c.userTmux(ctx, bus)
	if t == nil {
		return false
	}
	windows, err := t.run(ctx, "list-windows", "-t", t.pane, "-F", "#{?pane_dead,,#{"+windowOption+"}} #{window_id}")
	if err != nil {
		return false
	}
	for window := range strings.Lines(windows) {
		shown, id, _ := strings.Cut(strings.TrimSuffix(window, "\n"), " ")
		if shown != s.Id {
			continue
		}
		if _, err := t.run(ctx, "select-window", "-t", id); err == nil {
			return true
		}
	}
	self, err := ownPath()
	if err != nil {
		return false
	}
	args := []string{"new-window", "-P", "-F", "#{window_id}", "-n", windowName(s)}
	for _, name := range []string{"XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"} { // those of the tmux server may be another login's
		if value := os.Getenv(name); value != "" {
			args = append(args, "-e", name+"="+value)
		}
	}
	id, err := t.run(ctx, append(args, "--", self, "attach", "--here", "--", s.Id)...)
	if err != nil {
		return false
	}
	_, _ = t.run(ctx, "set-option", "-w", "-t", id, windowOption, s.Id) // without it, the next attach opens another window
	if !c.quiet {
		leave := ""
		if configured, _, err := config.Load(configDirs()); err == nil && configured.DetachKey != "" {
			leave = ", and " + keys.Label(configured.DetachKey) + " detaches"
		}
		c.print("%s is in a window of this tmux%s; corralctl attach --here %s attaches in this pane.\n", s.Id, leave, s.Id)
	}
	return true
}

// windowName is the name of a window that shows a session: its id and the program that it runs. Of
// that nothing is left that tmux takes for a format.
func windowName(s client.Session) string {
	program := strings.ReplaceAll(programOf(s), "#", "_")
	if program == s.Id {
		return s.Id
	}
	return s.Id + " (" + program + ")"
}

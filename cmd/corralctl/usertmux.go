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

// A userTmux is the tmux that the user works in, with the terminal of this process as one of its
// panes.
type userTmux struct {
	program string
	pane    string // id of this process's pane
}

// userTmux finds the user's tmux. It returns nil if this terminal is not one of its panes, because
// TMUX is inherited by terminals that were opened from a pane. The tmux of a session, in which an
// agent or a user may run corralctl, is not the user's.
func (c *ctl) userTmux(ctx context.Context, bus *client.Client) *userTmux {
	socket, _, _ := strings.Cut(os.Getenv("TMUX"), ",")
	pane := os.Getenv("TMUX_PANE")
	ours := filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "corral") + "/"
	if socket == "" || pane == "" || strings.HasPrefix(socket, ours) || c.ownSession(ctx, bus) != "" {
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

// run runs a command of tmux and returns its output.
func (t *userTmux) run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, t.program, args...).Output()
	return string(bytes.TrimRight(out, "\n")), err
}

// windowOption is the option of a tmux window that names the session which is shown in it.
const windowOption = "@corral-session"

// showInTmux shows the session in a window of the user's tmux: in one that shows it already, or in
// a new one. A tmux that is nested in another one would compete with it for keys, and both would
// take lines of the terminal. It returns false if it cannot; the session is then attached in this
// terminal.
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
	// the tmux server may have been started in another login
	for _, name := range []string{"XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"} {
		if value := os.Getenv(name); value != "" {
			args = append(args, "-e", name+"="+value)
		}
	}
	id, err := t.run(ctx, append(args, "--", self, "attach", "--here", "--", s.Id)...)
	if err != nil {
		return false
	}
	// without the option, the next attach opens another window
	_, _ = t.run(ctx, "set-option", "-w", "-t", id, windowOption, s.Id)
	if !c.quiet {
		leave := ""
		if configured, _, err := config.Load(configDirs()); err == nil && configured.DetachKey != "" {
			leave = ", and " + keys.Label(configured.DetachKey) + " detaches"
		}
		c.print("%s is in a window of this tmux%s; corralctl attach --here %s attaches in this pane.\n", s.Id, leave, s.Id)
	}
	return true
}

// windowName returns the name of the window for a session: its id and its program. Characters are
// replaced that tmux would interpret as a format.
func windowName(s client.Session) string {
	program := strings.ReplaceAll(programOf(s), "#", "_")
	if program == s.Id {
		return s.Id
	}
	return s.Id + " (" + program + ")"
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/desktop"
)

// openTimeout bounds how long the user manager may take to start a terminal.
const openTimeout = 20 * time.Second

var openVerb = verb{
	name: "open", args: "ID…", summary: "Attach to sessions, each in its own terminal window",
	options: plainVerb(func(ctx context.Context, c *ctl, args []string) error {
		return c.forEach(ctx, args, "", c.open)
	}),
}

// open opens a window on this machine, also for a session of another machine.
func (c *ctl) open(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	self, err := ownPath()
	if err != nil {
		return fmt.Errorf("cannot find the path of this program: %w", err)
	}
	address, err := client.BusAddress()
	if err != nil {
		return err
	}
	configured, _, err := config.Load(configDirs())
	if err != nil {
		return err
	}
	command := append([]string{self}, c.reach(id, "attach")...)
	unit, err := desktop.Open(ctx, address, desktop.Window{
		Terminal: configured.Terminal, Name: id, Description: "Terminal of session " + id, Command: command,
	})
	return c.openError(id, unit, err)
}

// openError returns the error of a window that could not be opened, with what to do about it.
func (c *ctl) openError(id, unit string, err error) error {
	if err == nil {
		return nil
	}
	var none *desktop.NoTerminalError
	switch f := c.cannot("open", id, err); {
	case errors.Is(err, desktop.ErrNoDisplay):
		f.hint = "corralctl attach " + id
		if os.Getenv("WAYLAND_DISPLAY") != "" {
			f.hint = "systemctl --user import-environment WAYLAND_DISPLAY DISPLAY XAUTHORITY"
		} else if os.Getenv("DISPLAY") != "" {
			f.hint = "systemctl --user import-environment DISPLAY XAUTHORITY"
		}
		return f
	case errors.As(err, &none):
		f.message = fmt.Sprintf("cannot open %q: no terminal emulator was found; name one with Terminal= in corral.conf", id)
		f.hint = "corralctl attach " + id
		return f
	default:
		if unit != "" {
			f.hint = "journalctl --user -u " + unit
		}
		return f
	}
}

// Package desktop reaches the user's graphical desktop from a place that need not be in it: it
// opens terminal windows.
//
// A window is a transient service of the user's manager. So it is shown where the user is now, by
// the manager's DISPLAY and WAYLAND_DISPLAY, whatever the caller was started with; and it outlives
// the caller.
package desktop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/transient"
)

const (
	systemd      = "org.freedesktop.systemd1"
	systemdPath  = dbus.ObjectPath("/org/freedesktop/systemd1")
	managerIface = systemd + ".Manager"
)

// ErrNoDisplay says that the user manager knows of no graphical session. Desktops tell it of theirs
// with `systemctl --user import-environment WAYLAND_DISPLAY DISPLAY XAUTHORITY`.
var ErrNoDisplay = errors.New("the user manager has neither WAYLAND_DISPLAY nor DISPLAY")

// Window is a terminal window.
type Window struct {
	Terminal    string   // Terminal= of corral.conf, "" to look for one
	Name        string   // its title, and a part of its unit's name
	Description string   // of its unit
	Command     []string // what runs in it, by an absolute path
}

// Open opens the window, by the user manager on the bus at address. It returns the name of its unit
// once the terminal's program has run for a second, or has exited with success, as those do that
// hand the window to a server; also if it has failed: why is in the unit's journal. Errors:
// ErrNoDisplay, *NoTerminalError, *transient.Failure.
func Open(ctx context.Context, address string, w Window) (string, error) {
	conn, err := bus.Dial(ctx, address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	environment, err := ManagerEnvironment(ctx, conn)
	if err != nil {
		return "", err
	}
	argv, err := environment.Terminal(w.Terminal, append([]string{"/bin/sh", "-c", setTitle, w.Name}, w.Command...))
	if err != nil {
		return "", err
	}
	unit, err := transient.Start(ctx, conn, transient.Service{
		Kind: "window", Name: w.Name, Description: w.Description, Slice: "app.slice", Argv: titled(argv, w.Name),
		Properties: []transient.Property{{Name: "AddRef", Value: dbus.MakeVariant(true)}}, // how it ends can be read for as long as the connection lives
	})
	if err == nil {
		err = transient.Outlives(ctx, conn, unit, showTime)
	}
	return unit, err
}

// setTitle gives the window a title before it executes the command, which may replace it: terminals
// show their own name or that of the command otherwise.
const setTitle = `printf '\033]2;%s\007' "$0"; exec "$@"`

// showTime is how long a terminal has to run to count as one that can show its window: one without
// a usable display fails at once.
const showTime = time.Second

// Terminal returns the argument vector that has a terminal run command in a window, where the
// environment leads. Errors as of Open.
func (e Environment) Terminal(configured string, command []string) ([]string, error) {
	if !e.HasDisplay() {
		return nil, ErrNoDisplay
	}
	return Command(configured, e, e.LookPath, command)
}

// HasDisplay tells whether there is a display.
func (e Environment) HasDisplay() bool {
	return e.Get("WAYLAND_DISPLAY") != "" || e.Get("DISPLAY") != ""
}

// ManagerEnvironment reads the environment of the user manager on this bus.
func ManagerEnvironment(ctx context.Context, conn *dbus.Conn) (Environment, error) {
	var value dbus.Variant
	err := conn.Object(systemd, systemdPath).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, managerIface, "Environment").Store(&value)
	if err != nil {
		return nil, fmt.Errorf("cannot read the user manager's environment: %w", err)
	}
	environment, ok := value.Value().([]string)
	if !ok {
		return nil, errors.New("cannot read the user manager's environment: it is not a list")
	}
	return environment, nil
}

// LookPath finds a program where the manager's services would, and where people install their own.
func (e Environment) LookPath(name string) (string, error) {
	if filepath.IsAbs(name) {
		return name, unix.Access(name, unix.X_OK)
	}
	path := e.Get("PATH")
	if home := e.Get("HOME"); home != "" {
		path += ":" + filepath.Join(home, ".local/bin")
	}
	for _, dir := range filepath.SplitList(path + ":/usr/local/bin:/usr/bin:/bin") {
		candidate := filepath.Join(dir, name)
		info, err := os.Stat(candidate)
		if filepath.IsAbs(candidate) && err == nil && info.Mode().IsRegular() && unix.Access(candidate, unix.X_OK) == nil {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("%q is not installed", name)
}

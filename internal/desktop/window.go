// Package desktop opens terminal windows on the user's graphical desktop. The caller need not run
// in that desktop session.
//
// A window is a transient service of the user manager. It therefore appears on the display that the
// manager's DISPLAY and WAYLAND_DISPLAY name, whatever the environment of the caller, and it
// outlives the caller.
package desktop

import (
	"context"
	"errors"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/transient"
)

// ErrNoDisplay means that the user manager does not know of a graphical session. Desktops announce
// theirs with `systemctl --user import-environment WAYLAND_DISPLAY DISPLAY XAUTHORITY`.
var ErrNoDisplay = errors.New("the user manager has neither WAYLAND_DISPLAY nor DISPLAY")

// Window describes a terminal window.
type Window struct {
	Terminal    string   // Terminal= of corral.conf, "" to look for a terminal emulator
	Name        string   // title of the window, and part of the name of its unit
	Description string   // of the unit
	Command     []string // program that runs in the window, by an absolute path, and its arguments
}

// Open makes the user manager on the bus at address open the window. It returns the name of the
// window's unit once the terminal's program has run for a second or has exited successfully, as
// terminals do that hand the window to a server process. If the program fails, Open returns the
// name of the unit as well as the error; the reason is in the journal of the unit. Errors:
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
	command := append([]string{"/bin/sh", "-c", titleScript, w.Name}, w.Command...)
	argv, err := environment.TerminalCommand(w.Terminal, command)
	if err != nil {
		return "", err
	}
	// With AddRef the exit status of the unit can be read for as long as the connection lives.
	addRef := transient.Property{Name: "AddRef", Value: dbus.MakeVariant(true)}
	unit, err := transient.Start(ctx, conn, transient.Service{
		Kind: "window", Name: w.Name, Description: w.Description, Slice: "app.slice", Argv: withTitle(argv, w.Name),
		Properties: []transient.Property{addRef},
	})
	if err == nil {
		err = transient.Outlives(ctx, conn, unit, startupTime)
	}
	return unit, err
}

// titleScript sets the title of the window and then executes the command, which may change the
// title. Without it terminals show their own name or that of the command.
const titleScript = `printf '\033]2;%s\007' "$0"; exec "$@"`

// startupTime is how long Open watches whether the terminal fails: one without a usable display
// fails at once.
const startupTime = time.Second

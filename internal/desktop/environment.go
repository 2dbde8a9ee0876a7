package desktop

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/program"
)

// Environment is the environment of the user manager, which its services inherit, as a list of
// NAME=VALUE.
type Environment []string

// ManagerEnvironment reads the environment of the user manager on this bus.
func ManagerEnvironment(ctx context.Context, conn *dbus.Conn) (Environment, error) {
	list, err := bus.SystemdProperty[[]string](ctx, conn, "Environment")
	if err != nil {
		return nil, fmt.Errorf("cannot read the user manager's environment: %w", err)
	}
	return list, nil
}

// Get returns the value of a variable, "" if it is not set.
func (e Environment) Get(name string) string {
	value, _ := environment.Lookup(e, name)
	return value
}

// HasDisplay reports whether the environment names an X or Wayland display.
func (e Environment) HasDisplay() bool {
	return e.Get("WAYLAND_DISPLAY") != "" || e.Get("DISPLAY") != ""
}

// LookPath returns the path of a program. It searches the PATH of the user manager, the directory
// ~/.local/bin, in which people install their own programs, and the usual system directories.
func (e Environment) LookPath(name string) (string, error) {
	path := e.Get("PATH")
	if home := e.Get("HOME"); home != "" {
		path += ":" + filepath.Join(home, ".local/bin")
	}
	found, err := program.Find(name, []string{"PATH=" + path + ":/usr/local/bin:/usr/bin:/bin"}, "")
	if err != nil {
		return "", fmt.Errorf("%q is not installed", name)
	}
	return found, nil
}

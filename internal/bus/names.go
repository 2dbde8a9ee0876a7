package bus

import (
	"context"
	"errors"
	"slices"

	"github.com/godbus/dbus/v5"
)

// The names of the user's systemd on the bus, see org.freedesktop.systemd1(5).
const (
	SystemdName       = "org.freedesktop.systemd1"
	SystemdPath       = dbus.ObjectPath("/org/freedesktop/systemd1")
	SystemdManager    = SystemdName + ".Manager"
	SystemdUnit       = SystemdName + ".Unit"
	SystemdNoSuchUnit = SystemdName + ".NoSuchUnit" // an error
	SystemStopping    = "stopping"                  // a value of the manager's SystemState
)

// The names of the bus itself, see the D-Bus Specification.
const (
	Name        = "org.freedesktop.DBus"
	Path        = dbus.ObjectPath("/org/freedesktop/DBus")
	Properties  = Name + ".Properties"
	ErrorPrefix = Name + ".Error."
)

// Systemd returns the user's systemd, for calls of SystemdManager.
func Systemd(conn *dbus.Conn) dbus.BusObject { return conn.Object(SystemdName, SystemdPath) }

// SystemdProperty returns a property of SystemdManager.
func SystemdProperty[T any](ctx context.Context, conn *dbus.Conn, name string) (value T, err error) {
	err = Systemd(conn).CallWithContext(ctx, Properties+".Get", 0, SystemdManager, name).Store(&value)
	return value, err
}

// HasErrorName reports whether the error is an error reply with one of the names.
func HasErrorName(err error, names ...string) bool {
	var reply dbus.Error
	return errors.As(err, &reply) && slices.Contains(names, reply.Name)
}

// FirstArg returns the first argument of a message, if it is of this type.
func FirstArg[T any](body []any) (value T, ok bool) {
	if len(body) > 0 {
		value, ok = body[0].(T)
	}
	return value, ok
}

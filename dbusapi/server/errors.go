package server

import (
	"errors"
	"strings"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/supervisor"
)

// errorNames are the D-Bus names of the supervisor's errors.
var errorNames = map[supervisor.Kind]string{
	supervisor.NoSuchSession:     dbusapi.NoSuchSession,
	supervisor.SessionExists:     dbusapi.SessionExists,
	supervisor.NoSessionForPID:   dbusapi.NoSessionForPID,
	supervisor.NoSessionForUnit:  dbusapi.NoSessionForUnit,
	supervisor.NoSuchAgent:       dbusapi.NoSuchAgent,
	supervisor.AgentNotInstalled: dbusapi.AgentNotInstalled,
	supervisor.InvalidState:      dbusapi.InvalidState,
	supervisor.NotResumable:      dbusapi.NotResumable,
	supervisor.NotWaiting:        dbusapi.NotWaiting,
	supervisor.Unsupported:       dbusapi.NotSupported,
	supervisor.WorkspaceMissing:  dbusapi.WorkspaceMissing,
	supervisor.WorkspaceBusy:     dbusapi.WorkspaceBusy,
	supervisor.ConversationBusy:  dbusapi.ConversationBusy,
	supervisor.StartFailed:       dbusapi.StartFailed,
	supervisor.TmuxFailed:        dbusapi.TmuxFailed,
	supervisor.TooManySessions:   dbusapi.TooManySessions,
	supervisor.ShuttingDown:      dbusapi.ShuttingDown,
	supervisor.ConfigError:       dbusapi.ConfigError,
	supervisor.NotTrusted:        dbusapi.NotTrusted,
	supervisor.NotPermitted:      dbusapi.AccessDenied,
	supervisor.Invalid:           dbusapi.InvalidArgs,
	supervisor.OverLimit:         dbusapi.LimitsExceeded,
	supervisor.TimedOut:          dbusapi.Timeout,
}

// toDBusError converts an error of the supervisor to the D-Bus error that a caller receives.
func toDBusError(err error) *dbus.Error {
	var e *supervisor.Error
	var onBus *dbus.Error
	switch {
	case errors.As(err, &onBus):
		return onBus
	case errors.As(err, &e):
		return newError(errorNames[e.Kind], e.Text)
	case errors.Is(err, supervisor.ErrClosed):
		return newError(dbusapi.ShuttingDown, "corrald is shutting down")
	}
	return newError(dbusapi.Internal, err.Error())
}

// newError returns a D-Bus error. name is the short name, one of the constants of package dbusapi.
// The bus accepts neither NUL bytes nor invalid UTF-8, so these are replaced in text.
func newError(name, text string) *dbus.Error {
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", `\0`), "�")
	return dbus.NewError(dbusapi.ErrorName(name), []any{text})
}

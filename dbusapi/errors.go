package dbusapi

import (
	"errors"
	"strings"

	"github.com/godbus/dbus/v5"
)

// The names of the errors that Corral answers calls with, without their prefix; ErrorName puts it
// on.
const (
	NoSuchSession     = "NoSuchSession"
	SessionExists     = "SessionExists"
	NoSessionForPID   = "NoSessionForPID"
	NoSessionForUnit  = "NoSessionForUnit"
	NoSuchAgent       = "NoSuchAgent"
	AgentNotInstalled = "AgentNotInstalled"
	InvalidState      = "InvalidState"
	NotResumable      = "NotResumable"
	NotWaiting        = "NotWaiting"
	WorkspaceMissing  = "WorkspaceMissing"
	WorkspaceBusy     = "WorkspaceBusy"
	ConversationBusy  = "ConversationBusy"
	StartFailed       = "StartFailed"
	TmuxFailed        = "TmuxFailed"
	TooManySessions   = "TooManySessions"
	ShuttingDown      = "ShuttingDown"
	ConfigError       = "ConfigError"
	Internal          = "Internal"
)

// The names of the standard errors, without their prefix.
const (
	UnknownObject    = "UnknownObject"
	UnknownInterface = "UnknownInterface"
	UnknownMethod    = "UnknownMethod"
	UnknownProperty  = "UnknownProperty"
	PropertyReadOnly = "PropertyReadOnly"
	InvalidArgs      = "InvalidArgs"
	LimitsExceeded   = "LimitsExceeded"
	Timeout          = "Timeout"
	NotSupported     = "NotSupported"
	AccessDenied     = "AccessDenied"
)

const (
	errorPrefix         = "io.github.corrald.Corral1.Error."
	standardErrorPrefix = "org.freedesktop.DBus.Error."
)

// ErrorName returns the full D-Bus name of the error that is called short, one of the constants
// above.
func ErrorName(short string) string {
	switch short {
	case UnknownObject, UnknownInterface, UnknownMethod, UnknownProperty, PropertyReadOnly, InvalidArgs, LimitsExceeded, Timeout,
		NotSupported, AccessDenied:
		return standardErrorPrefix + short
	}
	return errorPrefix + short
}

// ShortErrorName returns what ErrorName was given, if err is an answer of Corral's or of the bus;
// else "".
func ShortErrorName(err error) string {
	var e dbus.Error
	if !errors.As(err, &e) {
		return ""
	}
	for _, prefix := range []string{errorPrefix, standardErrorPrefix} {
		if short, ok := strings.CutPrefix(e.Name, prefix); ok {
			return short
		}
	}
	return ""
}

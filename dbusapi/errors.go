package dbusapi

import (
	"errors"
	"strings"

	"github.com/godbus/dbus/v5"
)

// The names of Corral's own D-Bus errors, without their prefix. ErrorName adds the prefix.
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
	NotTrusted        = "NotTrusted"
	Internal          = "Internal"
)

// The names of the standard D-Bus errors that Corral returns, without their prefix.
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

// ErrorName returns the full D-Bus error name of short, which is one of the constants above.
func ErrorName(short string) string {
	switch short {
	case UnknownObject, UnknownInterface, UnknownMethod, UnknownProperty, PropertyReadOnly,
		InvalidArgs, LimitsExceeded, Timeout, NotSupported, AccessDenied:
		return standardErrorPrefix + short
	}
	return errorPrefix + short
}

// ShortErrorName is the inverse of ErrorName: it returns the short name of an error that Corral or
// the bus returned, and "" for any other error.
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

package server

import (
	"fmt"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
)

// The object that "systemctl service-log-level" and "systemctl service-log-target" call:
// org.freedesktop.LogControl1(5).
const (
	logControlPath      = dbus.ObjectPath("/org/freedesktop/LogControl1")
	logControlInterface = "org.freedesktop.LogControl1"
)

const logControlXML = `
  <interface name="org.freedesktop.LogControl1">
    <property name="LogLevel" type="s" access="readwrite"><annotation name="org.freedesktop.DBus.Property.EmitsChangedSignal" value="false"/></property>
    <property name="LogTarget" type="s" access="readwrite"><annotation name="org.freedesktop.DBus.Property.EmitsChangedSignal" value="false"/></property>
    <property name="SyslogIdentifier" type="s" access="read"><annotation name="org.freedesktop.DBus.Property.EmitsChangedSignal" value="const"/></property>
  </interface>`

func (s *Server) logProperties() properties {
	return properties{
		"LogLevel":         s.info.Log.Level(),
		"LogTarget":        s.info.Log.Target(),
		"SyslogIdentifier": s.info.Log.Identifier(),
	}
}

// setLogProperty sets a property of LogControl1. writable is false if the property name is
// read-only or unknown.
func (s *Server) setLogProperty(name string, value dbus.Variant) (writable bool, err error) {
	set, values := s.info.Log.SetLevel, "debug, info, notice, warning, err, crit, alert, emerg"
	switch name {
	case "LogLevel":
	case "LogTarget":
		set, values = s.info.Log.SetTarget, "auto, journal, console, null"
	default:
		return false, nil
	}
	var text string
	if err := store(value, &text); err != nil {
		return true, newError(dbusapi.InvalidArgs, name+" "+err.Error())
	}
	if !set(text) {
		return true, newError(dbusapi.InvalidArgs, fmt.Sprintf("invalid %s %.64q: expected one of %s", name, text, values))
	}
	return true, nil
}

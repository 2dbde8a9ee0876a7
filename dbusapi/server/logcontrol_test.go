package server

import (
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
)

func TestLogControl_SetsLevelAndTarget(t *testing.T) {
	s := serve(t)
	set := func(name string, value any) error {
		return s.call(logControlPath, propertiesInterface+".Set", logControlInterface, name, dbus.MakeVariant(value)).Err
	}
	all := func() map[string]dbus.Variant {
		var p map[string]dbus.Variant
		require.NoError(t, s.call(logControlPath, propertiesInterface+".GetAll", logControlInterface).Store(&p))
		return p
	}
	v := dbus.MakeVariant
	want := func(level, target string) map[string]dbus.Variant {
		return map[string]dbus.Variant{
			"LogLevel": v(level), "LogTarget": v(target), "SyslogIdentifier": v(s.info.Log.Identifier()),
		}
	}
	assert.Equal(t, want("info", "auto"), all())
	require.NoError(t, set("LogLevel", "debug"))
	require.NoError(t, set("LogTarget", "null"))
	assert.Equal(t, want("debug", "null"), all())
	for _, row := range []struct {
		name  string
		value any
		want  string
		text  string
	}{
		{"LogLevel", "chatty", dbusapi.InvalidArgs, `invalid LogLevel "chatty": expected one of debug`},
		{"LogTarget", "kmsg", dbusapi.InvalidArgs, `invalid LogTarget "kmsg": expected one of auto`},
		{"LogLevel", uint32(7), dbusapi.InvalidArgs, `"u"`},
		{"SyslogIdentifier", "other", dbusapi.PropertyReadOnly, "SyslogIdentifier"},
		{"LogColour", "red", dbusapi.UnknownProperty, "LogColour"},
	} {
		err := set(row.name, row.value)
		assert.Equal(t, dbusapi.ErrorName(row.want), errorName(err), "%v", err)
		require.ErrorContains(t, err, row.text)
	}
	assert.Equal(t, "debug", s.info.Log.Level())
}

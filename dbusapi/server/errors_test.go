package server

import (
	"errors"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/supervisor"
)

func TestErrorNames_CoverEverySupervisorError(t *testing.T) {
	for kind := supervisor.NoSuchSession; kind <= supervisor.TimedOut; kind++ {
		require.Contains(t, errorNames, kind)
		err := toDBusError(&supervisor.Error{Kind: kind, Text: "a\x00b\xff"})
		var e *dbus.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, dbusapi.ErrorName(errorNames[kind]), e.Name)
		assert.Equal(t, []any{`a\0b` + "\uFFFD"}, e.Body, "the bus accepts neither NUL bytes nor invalid UTF-8")
	}
	var e *dbus.Error
	require.ErrorAs(t, toDBusError(supervisor.ErrClosed), &e)
	assert.Equal(t, dbusapi.ErrorName(dbusapi.ShuttingDown), e.Name)
	require.ErrorAs(t, toDBusError(errors.New("something else")), &e)
	assert.Equal(t, dbusapi.ErrorName(dbusapi.Internal), e.Name)
}

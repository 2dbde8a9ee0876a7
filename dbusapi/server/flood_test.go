package server

import (
	"os"
	"runtime"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

func stranger(t *testing.T) *dbus.Conn {
	t.Helper()
	conn, err := dbus.Connect(os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestAClientHasSoManyCallsUnderWay: more are refused at once, and only to that client. What is under way goes on.
func TestAClientHasSoManyCallsUnderWay(t *testing.T) {
	s := serve(t)
	path := s.create(t, "stubborn", true) // nothing ever ends in this world: each stop waits
	other := s.create(t, "other", false)
	flood := stranger(t)
	const more = 100
	done := make(chan *dbus.Call, maxCalls+more)
	for range maxCalls + more {
		flood.Object(dbusapi.BusName, path).Go(dbusapi.SessionInterface+".Stop", 0, done, uint64(0))
	}
	for range more {
		err := testbed.Receive(t, done, "refusal").Err
		assert.Equal(t, dbusapi.ErrorName(dbusapi.LimitsExceeded), errorName(err), "%v", err)
	}
	require.NoError(t, s.call(other, dbusapi.SessionInterface+".SetDescription", "served").Err)
	before := runtime.NumGoroutine()
	for range more {
		flood.Object(dbusapi.BusName, path).Go(dbusapi.SessionInterface+".Stop", dbus.FlagNoReplyExpected, nil, uint64(0))
		flood.Object(dbusapi.BusName, path).Go(dbusapi.SessionInterface+".Stop", 0, done, uint64(0))
	}
	for range more {
		assert.Equal(t, dbusapi.ErrorName(dbusapi.LimitsExceeded), errorName(testbed.Receive(t, done, "refusal").Err))
	}
	testbed.Poll(t, "what was refused leaves nothing", func() bool { return runtime.NumGoroutine() <= before+more/10 })
	s.end(t, "stubborn")
	for range maxCalls {
		require.NoError(t, testbed.Receive(t, done, "answer").Err, "what was taken is done")
	}
	testbed.Poll(t, "it is let in again", func() bool {
		return flood.Object(dbusapi.BusName, other).Call(dbusapi.SessionInterface+".SetDescription", 0, "again").Err == nil
	})
	left := 0
	s.tickets.Range(func(any, any) bool { left++; return true })
	assert.Zero(t, left, "no ticket is left over")
}

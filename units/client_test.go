package units

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// TestNewClient_UsesOneConnection: go-systemd's connection for signals reaches neither the bus nor
// the kernel, and its goroutines end.
func TestNewClient_UsesOneConnection(t *testing.T) {
	conn := testbed.Bus(t)
	count := func() (goroutines, descriptors, connections int) {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		var names []string
		require.NoError(t, conn.BusObject().Call("org.freedesktop.DBus.ListNames", 0).Store(&names))
		return runtime.NumGoroutine(), len(entries), len(names)
	}
	goroutines, descriptors, connections := count()
	var c *client
	for range 10 { // more than the goroutines of a call that may still be ending
		var err error
		c, err = newClient(conn)
		require.NoError(t, err)
	}
	testbed.Poll(t, "the goroutines of the second connection have ended", func() bool {
		now, _, _ := count()
		return now <= goroutines
	})
	_, descriptorsNow, connectionsNow := count()
	assert.Equal(t, descriptors, descriptorsNow)
	assert.Equal(t, connections, connectionsNow)
	state, err := c.SystemStateContext(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "running", state.Value.Value())
}

// TestRead_RetriesAfterLossOnly: only a lost connection is replaced by the private socket.
func TestRead_RetriesAfterLossOnly(t *testing.T) {
	m := connect(t)
	calls := 0
	call := func(f func(c *client) error) error {
		calls = 0
		_, err := read(t.Context(), m, func(_ context.Context, c *client) (any, error) {
			calls++
			return nil, f(c)
		})
		return err
	}
	for _, failed := range []error{errors.New("a reply of another type"), dbus.Error{Name: "a.b"}, context.Canceled} {
		require.Equal(t, failed, call(func(*client) error { return failed }))
		assert.Equal(t, 1, calls)
		assert.True(t, m.conn.Connected())
	}
	require.NoError(t, call(func(c *client) error {
		if c.conn == m.conn {
			_ = m.conn.Close()
			return errors.New("the reply was lost")
		}
		return nil
	}))
	assert.Equal(t, 2, calls, "the call is repeated on the private socket")
}

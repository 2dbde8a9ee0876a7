package bus_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }

func TestDial(t *testing.T) {
	conn, err := bus.Dial(t.Context(), "unix:path="+filepath.Join(t.TempDir(), "none"))
	require.ErrorContains(t, err, "cannot connect to the bus")
	assert.Nil(t, conn)

	address := os.Getenv("DBUS_SESSION_BUS_ADDRESS")
	ctx, cancel := context.WithCancel(t.Context())
	conn, err = bus.Dial(ctx, address)
	require.NoError(t, err)
	cancel()
	assert.True(t, conn.Connected(), "the context limits only the time for connecting")
	assert.NotEmpty(t, conn.Names())
	require.NoError(t, conn.Close())
}

func TestDial_TimesOutOnASilentBus(t *testing.T) {
	path := filepath.Join(testbed.Dir(t), "bus")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = bus.Dial(ctx, "unix:path="+path)
	require.ErrorContains(t, err, "does not answer")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

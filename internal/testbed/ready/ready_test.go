package ready

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestListen_ClosesTheSocketWhenReady expects that a systemd that continues to send does not fill
// the socket.
func TestListen_ClosesTheSocketWhenReady(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	for range 2 { // boots
		ready, err := Listen(path)
		require.NoError(t, err)
		systemd, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
		require.NoError(t, err)
		send := func(message string) error {
			_, err := systemd.Write([]byte(message))
			return err
		}
		require.NoError(t, send("STATUS=READY=1"))
		assert.Empty(t, ready)
		require.NoError(t, send("STATUS=Startup finished\nREADY=1"))
		require.NoError(t, <-ready)
		require.ErrorIs(t, send("STATUS=Job running"), unix.ECONNREFUSED)
		require.NoError(t, systemd.Close())
	}
}

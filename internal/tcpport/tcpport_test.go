package tcpport

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIsFree_FindsListenersOnEveryAddress(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0", "127.0.0.9:0"} {
		t.Run(address, func(t *testing.T) {
			l, err := net.Listen("tcp", address)
			require.NoError(t, err)
			port := uint16(l.Addr().(*net.TCPAddr).Port)
			assert.False(t, IsFree(port))
			require.NoError(t, l.Close())
			assert.True(t, IsFree(port))
		})
	}
}

// TestIsFree_IgnoresClosedConnections: the side of a connection that closes it first remains in
// TIME_WAIT for a minute.
func TestIsFree_IgnoresClosedConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	client, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	server, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, server.Close())
	_, err = client.Read(make([]byte, 1))
	require.Error(t, err)
	require.NoError(t, client.Close())
	require.NoError(t, l.Close())
	assert.True(t, IsFree(uint16(l.Addr().(*net.TCPAddr).Port)))
}

package shimwire

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The check whether a session's directory path is too long for sockets considers tmux's socket, and
// the shim's socket has a longer name than that.
func TestDial_AcceptsLongPaths(t *testing.T) {
	for _, deep := range []int{0, 90} {
		dir := filepath.Join(t.TempDir(), strings.Repeat("d", deep))
		require.NoError(t, os.MkdirAll(dir, 0o700))
		t.Chdir(dir)
		listener, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Bind(listener, &unix.SockaddrUnix{Name: "shim.sock"}))
		require.NoError(t, unix.Listen(listener, 2))
		for _, dial := range []func(string) (int, error){Dial, DialWait} {
			fd, err := dial(filepath.Join(dir, "shim.sock"))
			require.NoError(t, err, "%d", deep)
			require.NoError(t, unix.Close(fd))
		}
		require.NoError(t, unix.Close(listener))
		_, err = Dial(filepath.Join(dir, "shim.sock"))
		require.ErrorIs(t, err, unix.ECONNREFUSED)
		_, err = Dial(filepath.Join(dir, "gone", "shim.sock"))
		assert.ErrorIs(t, err, unix.ENOENT)
	}
}

func TestDial_DoesNotWaitForAFullQueue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shim.sock")
	listener, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { _ = unix.Close(listener) }()
	require.NoError(t, unix.Bind(listener, &unix.SockaddrUnix{Name: path}))
	require.NoError(t, unix.Listen(listener, 0)) // the queue takes one connection
	_, err = Dial(path)
	require.NoError(t, err)
	_, err = Dial(path)
	require.ErrorIs(t, err, unix.EAGAIN)
	waited := make(chan error)
	go func() {
		_, err := DialWait(path)
		waited <- err
	}()
	_, _, err = unix.Accept(listener)
	require.NoError(t, err)
	require.NoError(t, <-waited)
}

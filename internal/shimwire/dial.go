package shimwire

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Dial connects to the shim that listens at path and returns the socket, close-on-exec and blocking; the caller owns it. It never waits: a
// shim whose queue of connections is full is an error.
func Dial(path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("cannot connect to a shim: %w", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("cannot connect to a shim: %w", err)
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("cannot connect to a shim: %w", err)
	}
	return fd, nil
}

package shimwire

import (
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxAddress is how many bytes the path of a socket's address may have: unix(7).
const maxAddress = 107

// Dial connects to the shim that listens at path and returns the socket, close-on-exec and
// blocking; the caller owns it. It never waits: a shim whose queue of connections is full is an
// error. The path may be longer than a socket's address.
func Dial(path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("cannot connect to a shim: %w", err)
	}
	if err = connect(fd, path); err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("cannot connect to a shim: %w", err)
	}
	return fd, nil
}

// connect connects the socket to path, by way of its directory where it is too long, as the shim
// itself does.
func connect(fd int, path string) error {
	if len(path) > maxAddress {
		dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(dir) }()
		path = "/proc/self/fd/" + strconv.Itoa(dir) + "/" + filepath.Base(path)
	}
	return unix.Connect(fd, &unix.SockaddrUnix{Name: path})
}

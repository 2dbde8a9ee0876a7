package shimwire

import (
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxAddress is the maximum length of a socket address's path, in bytes (unix(7)).
const maxAddress = 107

// Dial connects to the shim that listens at path and returns the socket, which is close-on-exec and
// blocking and belongs to the caller. Dial never waits: it returns an error if the shim's queue of
// connections is full. The path may be longer than a socket address permits.
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

// connect connects the socket to path. A path that is too long for an address is given relative to
// its directory, through /proc/self/fd.
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

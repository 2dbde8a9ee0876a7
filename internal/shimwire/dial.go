package shimwire

import (
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxAddress is the maximum length of a socket address's path, in bytes (unix(7)).
const maxAddress = 107

// Dial connects to the shim that listens at path and returns the socket, which is close-on-exec and
// blocking and belongs to the caller. Dial never waits: it returns an error if the shim's queue of
// connections is full. The path may be longer than a socket address permits.
func Dial(path string) (int, error) { return dial(path, unix.SOCK_NONBLOCK) }

// DialWait is Dial, except that it waits while the shim's queue of connections is full.
func DialWait(path string) (int, error) { return dial(path, 0) }

func dial(path string, flags int) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|flags, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err = connect(fd, path); err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, os.NewSyscallError("connect", err)
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

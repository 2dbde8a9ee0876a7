package proc

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// ReadFile reads a file of the kernel's, below /proc or /sys, whole. os.ReadFile takes twice as
// long: it also asks for the size, which these files do not have, and has epoll wait for them.
func ReadFile(path string) ([]byte, error) {
	fd, err := retried(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	b := make([]byte, 0, 512) // most have less
	for {
		n, err := retried(func() (int, error) { return unix.Read(fd, b[len(b):cap(b)]) })
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return b, nil
		}
		if b = b[:len(b)+n]; len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
	}
}

// retried makes a system call again that a signal has interrupted.
func retried(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

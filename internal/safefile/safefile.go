// Package safefile opens regular files at paths where another process of the same user may have put
// something else: a FIFO, on which open(2) waits for a writer; a symbolic link to a file that must
// not be disclosed; a device, a directory, a socket, or a file larger than memory. No function of
// this package waits for another process. The error of a rejected file contains the path and what
// is there, and is ErrNotRegular, ErrOwner, ErrNotPrivate or ErrTooLarge.
package safefile

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// The reasons for which a file is rejected. A missing file is fs.ErrNotExist.
var (
	ErrNotRegular = errors.New("expected a regular file")
	ErrOwner      = errors.New("expected a file of this user or of root")
	ErrTooLarge   = errors.New("expected a smaller file")
	ErrNotPrivate = errors.New("expected a file that only this user can access")
)

// rejection is one of the errors above, with what is at the path.
type rejection struct {
	path, is string
	err      error
}

func (r *rejection) Error() string { return r.path + " is " + r.is + ", " + r.err.Error() }
func (r *rejection) Unwrap() error { return r.err }

// Open opens the regular file at path for reading. It rejects a symbolic link in the last component
// of path, and a file that belongs to neither this user nor root, unless this user is root. It is
// for the files in Corral's own directories.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY, 0) }

// OpenFile is like Open, with the flags and permissions of open(2).
func OpenFile(path string, flags int, perm os.FileMode) (*os.File, error) {
	fd, _, err := open(path, flags|unix.O_NOFOLLOW, perm)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// OpenLinked opens the regular file at path for reading. It follows symbolic links and accepts
// every owner. It is for configuration and for the files of agents, which users may keep anywhere.
func OpenLinked(path string) (*os.File, error) {
	fd, _, err := openLinked(path)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Read returns the content of the regular file at path, opened as with Open. If the file has more
// than maxSize bytes, it is not read and the error is ErrTooLarge.
func Read(path string, maxSize int64) ([]byte, error) {
	fd, size, err := open(path, unix.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return read(fd, path, size, maxSize)
}

// ReadLinked is like Read, for a file opened as with OpenLinked. /dev/null has no content: users
// link to it to disable a file.
func ReadLinked(path string, maxSize int64) ([]byte, error) {
	fd, size, err := openLinked(path)
	if isNull(path, err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return read(fd, path, size, maxSize)
}

// ReadPrivate is like ReadLinked, for a file that contains secrets. It rejects a file of another
// user, and one of a mode that permits others to access it: the error is ErrOwner or ErrNotPrivate.
// A symbolic link may refer to such a file.
func ReadPrivate(path string, maxSize int64) ([]byte, error) {
	fd, size, err := openLinked(path)
	if isNull(path, err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err != nil {
		err = &fs.PathError{Op: "stat", Path: path, Err: err}
	} else {
		err = checkPrivate(path, &st, uint32(os.Geteuid()))
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return read(fd, path, size, maxSize)
}

// checkPrivate returns the reason for which a file with secrets of user is rejected, nil if it is
// accepted.
func checkPrivate(path string, st *unix.Stat_t, user uint32) error {
	switch {
	case st.Uid != user:
		return &rejection{path, "a file of the user with the id " + strconv.Itoa(int(st.Uid)), ErrOwner}
	case st.Mode&0o077 != 0:
		return &rejection{path, fmt.Sprintf("a file of mode %04o", st.Mode&0o7777), ErrNotPrivate}
	}
	return nil
}

// openLinked checks the type of the file before it opens it: opening a device may have side
// effects.
func openLinked(path string) (fd int, size int64, err error) {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Stat(path, &st) }); err != nil {
		return -1, 0, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return -1, 0, &rejection{path, kindName(st.Mode), ErrNotRegular}
	}
	return open(path, unix.O_RDONLY, 0)
}

func isNull(path string, err error) bool {
	var st unix.Stat_t
	return errors.Is(err, ErrNotRegular) && unix.Stat(path, &st) == nil &&
		st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}

// open opens the regular file at path and returns its descriptor, in blocking mode, and its size.
func open(path string, flags int, perm os.FileMode) (fd int, size int64, err error) {
	var st unix.Stat_t
	err = retry(func() (err error) {
		fd, err = unix.Open(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, uint32(perm.Perm()))
		return err
	})
	if err != nil {
		// With O_NOFOLLOW, a link fails with ELOOP; a socket fails with ENXIO, and a directory that is
		// opened for writing with EISDIR.
		if (errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EISDIR)) &&
			unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
			return -1, 0, &rejection{path, kindName(st.Mode), ErrNotRegular}
		}
		return -1, 0, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if err = unix.Fstat(fd, &st); err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		err = &fs.PathError{Op: "open", Path: path, Err: err}
	} else {
		err = checkFile(path, &st, flags&unix.O_NOFOLLOW != 0, uint32(os.Geteuid()))
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, 0, err
	}
	return fd, st.Size, nil
}

// checkFile returns the reason for which a file that user has opened is rejected, nil if it is
// accepted. With own, the file has to belong to user or to root; root may read every file.
func checkFile(path string, st *unix.Stat_t, own bool, user uint32) error {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return &rejection{path, kindName(st.Mode), ErrNotRegular}
	case own && user != 0 && st.Uid != 0 && st.Uid != user:
		return &rejection{path, "a file of the user with the id " + strconv.Itoa(int(st.Uid)), ErrOwner}
	}
	return nil
}

// read reads the open file to its end and closes it.
func read(fd int, path string, size, maxSize int64) ([]byte, error) {
	defer func() { _ = unix.Close(fd) }()
	var text []byte
	if size <= maxSize {
		text = make([]byte, 0, min(size, math.MaxInt32)+1)
	}
	for size <= maxSize {
		if len(text) == cap(text) {
			text = append(text, 0)[:len(text)]
		}
		n := 0
		err := retry(func() (err error) {
			n, err = unix.Read(fd, text[len(text):cap(text)])
			return err
		})
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return text, nil
		}
		text = text[:len(text)+n]
		size = int64(len(text))
	}
	return nil, &rejection{path, "larger than " + strconv.FormatInt(maxSize, 10) + " bytes", ErrTooLarge}
}

// retry repeats a system call that a signal has interrupted.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func kindName(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "a regular file"
	case unix.S_IFIFO:
		return "a FIFO"
	case unix.S_IFDIR:
		return "a directory"
	case unix.S_IFSOCK:
		return "a socket"
	case unix.S_IFLNK:
		return "a symbolic link"
	}
	return "a device"
}

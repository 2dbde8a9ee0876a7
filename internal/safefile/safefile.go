// Package safefile opens regular files at paths where another process of the same user may have put
// something else: a FIFO, on which open(2) waits for a writer; a symbolic link to a file that is
// not its owner's to show; a device, a directory, a socket, or a file that is larger than memory.
// No function of this package waits for another process. The error of a refusal names the path and
// what is there, and is ErrNotRegular, ErrOwner or ErrTooLarge.
package safefile

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// What is wrong with a file that is not opened or read. A missing file is fs.ErrNotExist, as
// everywhere.
var (
	ErrNotRegular = errors.New("expected a regular file")
	ErrOwner      = errors.New("expected a file of this user or of root")
	ErrTooLarge   = errors.New("expected a smaller file")
)

// refusal is one of the errors above, with what is at the path.
type refusal struct {
	path, is string
	err      error
}

func (r *refusal) Error() string { return r.path + " is " + r.is + ", " + r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// Open opens the regular file at path for reading. It refuses a symbolic link in the last component
// of path, and a file of a user who is neither this one nor root, unless this one is root. It is
// for the files of Corral's own directories.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY, 0) }

// OpenFile is Open with the flags and permissions of open(2).
func OpenFile(path string, flags int, perm os.FileMode) (*os.File, error) {
	fd, _, err := open(path, flags|unix.O_NOFOLLOW, perm)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// OpenLinked opens the regular file at path for reading, also through symbolic links and whoever
// owns it. It is for configuration and for the files of agents, which people keep where they like.
func OpenLinked(path string) (*os.File, error) {
	fd, _, err := openLinked(path)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Read returns the content of the regular file at path, which Open opens. A file of more than most
// bytes is ErrTooLarge, and is not read.
func Read(path string, most int64) ([]byte, error) {
	fd, size, err := open(path, unix.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return read(fd, path, size, most)
}

// ReadLinked is Read for what OpenLinked opens. /dev/null, to which people link what is to count as
// empty, has no content.
func ReadLinked(path string, most int64) ([]byte, error) {
	fd, size, err := openLinked(path)
	if isNull(path, err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return read(fd, path, size, most)
}

// openLinked looks at what is there before it opens it: a device may do something when it is
// opened.
func openLinked(path string) (fd int, size int64, err error) {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Stat(path, &st) }); err != nil {
		return -1, 0, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return -1, 0, &refusal{path, kind(st.Mode), ErrNotRegular}
	}
	return open(path, unix.O_RDONLY, 0)
}

func isNull(path string, err error) bool {
	var st unix.Stat_t
	return errors.Is(err, ErrNotRegular) && unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}

// open opens the regular file at path and returns its descriptor, which blocks as any other does,
// and its size.
func open(path string, flags int, perm os.FileMode) (fd int, size int64, err error) {
	var st unix.Stat_t
	err = retry(func() (err error) {
		fd, err = unix.Open(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, uint32(perm.Perm()))
		return err
	})
	if err != nil {
		// ELOOP is what O_NOFOLLOW makes of a link, ENXIO what a socket answers, EISDIR what a directory
		// answers to a writer.
		if (errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EISDIR)) && unix.Lstat(path, &st) == nil &&
			st.Mode&unix.S_IFMT != unix.S_IFREG {
			return -1, 0, &refusal{path, kind(st.Mode), ErrNotRegular}
		}
		return -1, 0, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if err = unix.Fstat(fd, &st); err == nil {
		err = unix.SetNonblock(fd, false)
	}
	if err != nil {
		err = &fs.PathError{Op: "open", Path: path, Err: err}
	} else {
		err = refuse(path, &st, flags&unix.O_NOFOLLOW != 0, uint32(os.Geteuid()))
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, 0, err
	}
	return fd, st.Size, nil
}

// refuse tells why a file that user has opened is not taken, nil if it is. Root may look at what is
// anybody's.
func refuse(path string, st *unix.Stat_t, own bool, user uint32) error {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return &refusal{path, kind(st.Mode), ErrNotRegular}
	case own && user != 0 && st.Uid != 0 && st.Uid != user:
		return &refusal{path, "a file of the user with the id " + strconv.Itoa(int(st.Uid)), ErrOwner}
	}
	return nil
}

// read reads the open file to its end, and closes it.
func read(fd int, path string, size, most int64) ([]byte, error) {
	defer func() { _ = unix.Close(fd) }()
	var text []byte
	if size <= most {
		text = make([]byte, 0, min(size, math.MaxInt32)+1)
	}
	for size <= most {
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
	return nil, &refusal{path, "larger than " + strconv.FormatInt(most, 10) + " bytes", ErrTooLarge}
}

// retry makes a system call again that a signal has interrupted.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func kind(mode uint32) string {
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

// Package atomicfile replaces a file so that a reader finds either the complete old content or the
// complete new content, also after a power cut.
//
// The order is that of fsync(2) and rename(2): a new inode in the same directory, write, fsync,
// rename, fsync of the directory. A failed fsync is final: the kernel may have dropped the dirty
// pages, so that a later fsync that succeeds proves nothing.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/failpoint"
)

// File is an unfinished replacement of a file: its inode exists under a hidden name, so that
// finishing it does not need to create anything. It holds two descriptors until Commit, Sync or
// Abort.
type File struct {
	on   Calls
	dir  int
	fd   int
	name string
	temp string // "" once the file has its final name
}

// Create starts to replace the file name in directory dir, with permissions perm regardless of the
// umask. The directory has to exist. The temporary name is always the same, so that what a crash
// leaves is replaced later and does not accumulate; there must be only one writer.
func Create(dir, name string, perm os.FileMode) (*File, error) {
	return realDisk.Create(dir, name, perm)
}

// Create is the function Create, on this disk.
func (on Disk) Create(dir, name string, perm os.FileMode) (*File, error) {
	path := filepath.Join(dir, name)
	d, err := on.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	temp := "." + name + ".new"
	err = on.Unlinkat(d, temp, 0)
	if errors.Is(err, unix.EISDIR) {
		_, err = on.setAside(d, temp)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		_ = on.Close(d)
		return nil, &os.PathError{Op: "unlink", Path: filepath.Join(dir, temp), Err: err}
	}
	fd, err := on.Openat(d, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, uint32(perm.Perm()))
	if err == nil {
		err = on.Fchmod(fd, uint32(perm.Perm()))
	}
	if err != nil {
		if fd >= 0 {
			_ = on.Close(fd)
		}
		_ = on.Close(d)
		return nil, &os.PathError{Op: "create", Path: path, Err: err}
	}
	return &File{on: on.Calls, dir: d, fd: fd, name: name, temp: temp}, nil
}

// Reserve reserves size bytes on the disk, so that Commit does not fail if the disk becomes full
// meanwhile. If the file system does not support that, nothing is reserved.
func (f *File) Reserve(size int64) error {
	err := f.on.Fallocate(f.fd, unix.FALLOC_FL_KEEP_SIZE, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

// Commit writes content and replaces the file durably. It may be called once; the File cannot be
// used afterwards, whatever Commit returns. After an error the old content is still in place,
// unless the last step failed: then the new content is in place but may not survive a power cut.
func (f *File) Commit(content []byte) error {
	err := f.writeAll(content)
	if err == nil {
		err = f.on.Fsync(f.fd)
	}
	if err != nil {
		f.Abort()
		return &os.PathError{Op: "write", Path: f.name, Err: err}
	}
	err = f.on.Close(f.fd)
	f.fd = -1
	failpoint.Hit("file.written")
	if err == nil {
		err = f.rename()
	}
	if err != nil {
		f.Abort()
		return &os.PathError{Op: "rename", Path: f.name, Err: err}
	}
	err = f.on.Fsync(f.dir)
	_ = f.on.Close(f.dir)
	f.dir = -1
	if err != nil {
		return &os.PathError{Op: "fsync", Path: f.name, Err: err}
	}
	return nil
}

// Replace writes content and replaces the file, but not durably: a power cut may leave the old
// content, or an incomplete file. It may be called once. The caller then calls Sync or Abort.
func (f *File) Replace(content []byte) error {
	if err := f.writeAll(content); err != nil {
		return &os.PathError{Op: "write", Path: f.name, Err: err}
	}
	failpoint.Hit("file.written")
	if err := f.rename(); err != nil {
		return &os.PathError{Op: "rename", Path: f.name, Err: err}
	}
	return nil
}

// Sync makes what Replace has written durable. The File cannot be used afterwards.
func (f *File) Sync() error {
	defer f.Abort()
	err := f.on.Fsync(f.fd)
	if e := f.on.Fsync(f.dir); err == nil {
		err = e
	}
	if err != nil {
		return &os.PathError{Op: "fsync", Path: f.name, Err: err}
	}
	return nil
}

// Sync makes the file at path and its name durable, regardless of who wrote it.
func Sync(path string) error { return realDisk.Sync(path) }

// Sync is the function Sync, on this disk. It opens whatever is at path, and waits for no other
// process: fsync(2) fails for a FIFO.
func (on Disk) Sync(path string) error {
	for _, p := range []string{path, filepath.Dir(path)} {
		fd, err := on.Open(p, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err == nil {
			err = on.Fsync(fd)
			_ = on.Close(fd)
		}
		if err != nil {
			return &os.PathError{Op: "fsync", Path: p, Err: err}
		}
	}
	return nil
}

// Abort cancels the replacement and leaves the old content in place. After Replace, it only closes
// the descriptors; after Commit and Sync, it does nothing.
func (f *File) Abort() {
	if f.dir < 0 {
		return
	}
	if f.fd >= 0 {
		_ = f.on.Close(f.fd)
	}
	if f.temp != "" {
		_ = f.on.Unlinkat(f.dir, f.temp, 0)
	}
	_ = f.on.Close(f.dir)
	f.fd, f.dir = -1, -1
}

// AsideSuffix is appended to the name of a file or directory that is set aside.
const AsideSuffix = ".damaged"

// maxAside limits how many files or directories with the same name are kept aside.
const maxAside = 100

// SetAside renames what is at path: it cannot be used, and a file is needed in its place. The new
// name is path with AsideSuffix. If rename(2) cannot replace what was set aside before, that is
// renamed first: a number is appended to its name.
func SetAside(path string) (aside string, err error) { return realDisk.SetAside(path) }

// SetAside is like the function SetAside, but uses the calls of this Disk.
func (on Disk) SetAside(path string) (aside string, err error) {
	return on.setAside(unix.AT_FDCWD, path)
}

func (on Disk) setAside(dir int, name string) (aside string, err error) {
	aside = name + AsideSuffix
	err = on.Renameat(dir, name, dir, aside)
	for n := 2; isTaken(err) && n <= maxAside; n++ {
		if err = on.Renameat(dir, aside, dir, aside+"."+strconv.Itoa(n)); err == nil {
			err = on.Renameat(dir, name, dir, aside)
		}
	}
	return aside, err
}

// isTaken reports whether this is an error of rename(2) because of what has the new name: both are
// directories, or one of them is.
func isTaken(err error) bool {
	return errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) ||
		errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENOTDIR)
}

// Rename is rename(2) for a file, except that a directory at newpath is set aside. That is the only
// thing that rename(2) does not replace by a file.
func (on Disk) Rename(oldpath, newpath string) error {
	if err := on.rename(unix.AT_FDCWD, oldpath, newpath); err != nil {
		return &os.LinkError{Op: "rename", Old: oldpath, New: newpath, Err: err}
	}
	return nil
}

func (on Disk) rename(dir int, oldname, newname string) error {
	err := on.Renameat(dir, oldname, dir, newname)
	if !errors.Is(err, unix.EISDIR) {
		return err
	}
	if _, aside := on.setAside(dir, newname); aside != nil {
		return err
	}
	return on.Renameat(dir, oldname, dir, newname)
}

// rename gives the replacement its final name.
func (f *File) rename() error {
	err := Disk{f.on}.rename(f.dir, f.temp, f.name)
	if err == nil {
		f.temp = ""
	}
	return err
}

func (f *File) writeAll(content []byte) error {
	for len(content) > 0 {
		n, err := f.on.Write(f.fd, content)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		content = content[n:]
	}
	return nil
}

// Write replaces the file at path with content, durably. See Create and Commit.
func Write(path string, content []byte, perm os.FileMode) error {
	return realDisk.Write(path, content, perm)
}

// Write is the function Write, on this disk.
func (on Disk) Write(path string, content []byte, perm os.FileMode) error {
	f, err := on.Create(filepath.Dir(path), filepath.Base(path), perm)
	if err != nil {
		return err
	}
	return f.Commit(content)
}

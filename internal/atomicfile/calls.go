package atomicfile

import "golang.org/x/sys/unix"

// Calls are the system calls that this package makes, by their names in section 2 of the manual.
type Calls interface {
	Open(path string, flags int, perm uint32) (fd int, err error)
	Openat(dir int, name string, flags int, perm uint32) (fd int, err error)
	Fchmod(fd int, perm uint32) error
	Fallocate(fd int, mode uint32, offset, size int64) error
	Write(fd int, content []byte) (n int, err error)
	Fsync(fd int) error
	Renameat(olddir int, oldname string, newdir int, newname string) error
	Unlinkat(dir int, name string, flags int) error
	Close(fd int) error
}

// Kernel makes the calls for real.
type Kernel struct{}

// Open is open(2), and so on.
func (Kernel) Open(path string, flags int, perm uint32) (int, error) {
	return unix.Open(path, flags, perm)
}

// Openat is openat(2).
func (Kernel) Openat(dir int, name string, flags int, perm uint32) (int, error) {
	return unix.Openat(dir, name, flags, perm)
}

// Fchmod is fchmod(2).
func (Kernel) Fchmod(fd int, perm uint32) error { return unix.Fchmod(fd, perm) }

// Fallocate is fallocate(2).
func (Kernel) Fallocate(fd int, mode uint32, offset, size int64) error {
	return unix.Fallocate(fd, mode, offset, size)
}

// Write is write(2).
func (Kernel) Write(fd int, content []byte) (int, error) { return unix.Write(fd, content) }

// Fsync is fsync(2).
func (Kernel) Fsync(fd int) error { return unix.Fsync(fd) }

// Renameat is renameat(2).
func (Kernel) Renameat(olddir int, oldname string, newdir int, newname string) error {
	return unix.Renameat(olddir, oldname, newdir, newname)
}

// Unlinkat is unlinkat(2).
func (Kernel) Unlinkat(dir int, name string, flags int) error { return unix.Unlinkat(dir, name, flags) }

// Close is close(2).
func (Kernel) Close(fd int) error { return unix.Close(fd) }

// Disk is where files are replaced: the one behind Kernel, or, for a test of what a power cut
// leaves, one that forgets what was not synced.
type Disk struct{ Calls }

// disk is the one that the package's functions are of.
var disk = Disk{Kernel{}}

package atomicfile

import "golang.org/x/sys/unix"

// Calls are the system calls of this package, by their names in section 2 of the manual.
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

// Kernel makes the system calls.
type Kernel struct{}

// Open is open(2).
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

// Disk replaces files through Calls: those of the Kernel or, in tests of power cuts, those of a
// disk that loses unsynced data.
type Disk struct{ Calls }

// realDisk is the Disk of the package's functions.
var realDisk = Disk{Kernel{}}

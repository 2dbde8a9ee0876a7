package store

import (
	"os"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/safefile"
)

// disk is the file system as the store uses it. Tests of power cuts replace the real one by one
// that loses what was not synced.
type disk interface {
	atomicfile.Calls
	Mkdir(path string, perm uint32) error
	Link(oldpath, newpath string) error
	Rename(oldpath, newpath string) error
	Unlink(path string) error
	RemoveAll(path string) error
	Exists(path string) bool
	// Directories returns the names of the directories in a directory, sorted.
	Directories(path string) ([]string, error)
	// Read returns the content of a regular file of at most so many bytes. It follows no symbolic
	// links and never blocks, not even on a FIFO.
	Read(path string, most int64) (data []byte, err error)
}

// realDisk is the file system of the kernel.
type realDisk struct{ atomicfile.Kernel }

// Mkdir creates a directory.
func (realDisk) Mkdir(path string, perm uint32) error { return os.Mkdir(path, os.FileMode(perm)) }

// Link creates a hard link.
func (realDisk) Link(oldpath, newpath string) error { return os.Link(oldpath, newpath) }

// Rename renames a file or directory, and replaces what has the new name.
func (realDisk) Rename(oldpath, newpath string) error { return os.Rename(oldpath, newpath) }

// Unlink removes a file, or an empty directory.
func (realDisk) Unlink(path string) error { return os.Remove(path) }

// RemoveAll removes a file, or a directory with its content. It succeeds if there is none.
func (realDisk) RemoveAll(path string) error { return os.RemoveAll(path) }

// Exists reports whether there is a file of any kind. It follows no symbolic links.
func (realDisk) Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Directories lists the directories in a directory.
func (realDisk) Directories(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// Read reads a regular file.
func (realDisk) Read(path string, most int64) ([]byte, error) {
	return safefile.Read(path, most)
}

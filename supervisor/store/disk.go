package store

import (
	"os"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/safefile"
)

// disk is what the store asks of a file system: the real one, or, in a test of what a power cut leaves, one that forgets what was not synced.
type disk interface {
	atomicfile.Calls
	Mkdir(path string, perm uint32) error
	Link(oldpath, newpath string) error
	Rename(oldpath, newpath string) error
	Unlink(path string) error
	RemoveAll(path string) error
	Exists(path string) bool
	Directories(path string) ([]string, error)             // the names of the directories in a directory, sorted
	Read(path string, most int64) (data []byte, err error) // a regular file of at most so many bytes; it follows no link and waits for nobody
}

// realDisk is the kernel's.
type realDisk struct{ atomicfile.Kernel }

// Mkdir makes a directory.
func (realDisk) Mkdir(path string, perm uint32) error { return os.Mkdir(path, os.FileMode(perm)) }

// Link gives a file one more name.
func (realDisk) Link(oldpath, newpath string) error { return os.Link(oldpath, newpath) }

// Rename moves a file or directory, over the one that is there.
func (realDisk) Rename(oldpath, newpath string) error { return os.Rename(oldpath, newpath) }

// Unlink removes a file, or an empty directory.
func (realDisk) Unlink(path string) error { return os.Remove(path) }

// RemoveAll removes a file or directory with all that is in it. That there is none is no error.
func (realDisk) RemoveAll(path string) error { return os.RemoveAll(path) }

// Exists tells whether there is a file of any kind. It follows no link.
func (realDisk) Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Directories lists them.
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

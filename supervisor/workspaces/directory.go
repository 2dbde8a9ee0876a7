package workspaces

import (
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/supervisor/session"
)

// Directory is the directory to which the path of a workspace resolves.
type Directory struct {
	Path  string        // without symbolic links
	Inode session.Inode // identifies the directory, also after it was renamed; zero if unknown
}

// IsSame reports whether both are the same directory, or have the same path: a directory that was
// moved away is expected to come back to it.
func (a Directory) IsSame(b Directory) bool {
	return a.Path == b.Path || a.Inode != session.Inode{} && a.Inode == b.Inode
}

// LastDirectory returns the directory of the session's last run, as it was last observed.
func LastDirectory(rec *session.Session) Directory {
	if rec.Workspace == "" { // a record of a version that did not store it
		return Directory{rec.WorkingDirectory, rec.WorkspaceInode}
	}
	return Directory{rec.Workspace, rec.WorkspaceInode}
}

// NextDirectory returns the directory of a run of the session that is about to begin, as the path
// of the workspace resolves. If r is nil or failed, the directory has only a path, that of the last
// run.
func NextDirectory(rec *session.Session, r *Resolution) Directory {
	if dir, ok := r.Directory(); ok {
		return dir
	}
	return Directory{Path: LastDirectory(rec).Path}
}

// Resolve returns the resolved path of a workspace: two paths to one directory are one workspace.
// If the path cannot be resolved, Resolve returns the path itself, cleaned. It may block.
func Resolve(path string) string {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	return filepath.Clean(path)
}

// InodeOf returns the inode of the directory at path, zero if there is none. It may block.
func InodeOf(path string) session.Inode {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return session.Inode{}
	}
	return session.Inode{Device: st.Dev, Number: st.Ino}
}

package supervisor

import (
	"path/filepath"
	"strings"

	"github.com/corrald/corral/supervisor/session"
)

// resolve returns the resolved path of a workspace: two paths to one directory are one workspace.
// If the path cannot be resolved, resolve returns the path itself, cleaned.
func resolve(dir string) string {
	if path, err := filepath.EvalSymlinks(dir); err == nil {
		return path
	}
	return filepath.Clean(dir)
}

// resolvedDir identifies the directory to which the path of a workspace resolves.
type resolvedDir struct {
	path  string        // without symbolic links
	inode session.Inode // identifies the directory, also after it was renamed; zero if unknown
}

// isSame reports whether both are the same directory, or have the same path: a directory that was
// moved away is expected to come back to it.
func (a resolvedDir) isSame(b resolvedDir) bool {
	return a.path == b.path || a.inode != session.Inode{} && a.inode == b.inode
}

// workspaceDir returns the directory of the session's last run, as it was last observed.
func workspaceDir(rec *session.Session) resolvedDir {
	if rec.Workspace == "" { // a record of a version that did not store it
		return resolvedDir{rec.WorkingDirectory, rec.WorkspaceInode}
	}
	return resolvedDir{rec.Workspace, rec.WorkspaceInode}
}

// startDir returns the directory of a run that is about to begin, as the path of the workspace
// resolves. If r is nil or failed, the directory has only a path, that of the last run.
func startDir(rec *session.Session, r *resolution) resolvedDir {
	if r == nil || r.err != nil {
		return resolvedDir{path: workspaceDir(rec).path}
	}
	return resolvedDir{r.path, r.inode}
}

// occupiesDir reports whether matches returns true for the directory of the session's current run,
// or for that of a run that is about to begin.
func (e *entry) occupiesDir(matches func(resolvedDir) bool) bool {
	return !e.rec.Run.Ended() && matches(workspaceDir(e.rec)) || e.pending.WaitsToBegin() && matches(e.claim.dir)
}

// checkWorkspaceFree returns an error if the session must not start in dir: because dir is in a
// worktree that is being removed, or because the session is exclusive and another exclusive session
// occupies dir. A session occupies its workspace from the start of a run until that run is known to
// have ended, in whatever way. Errors: InvalidState, WorkspaceBusy.
func (s *Supervisor) checkWorkspaceFree(rec *session.Session, dir resolvedDir) error {
	for _, e := range s.sessions {
		if e.removal.dir != "" && strings.HasPrefix(dir.path+"/", e.removal.dir) {
			return refuse(InvalidState, "workspace %q is being removed with session %q", rec.WorkingDirectory, e.rec.ID)
		}
		if rec.Exclusive && e.rec != rec && e.rec.Exclusive && e.occupiesDir(dir.isSame) {
			return refuse(WorkspaceBusy, "workspace %q is in use by session %q", rec.WorkingDirectory, e.rec.ID)
		}
	}
	return nil
}

package supervisor

import (
	"path/filepath"
	"strings"

	"github.com/corrald/corral/supervisor/session"
)

// resolve returns the place that a workspace's path leads to: two paths to one directory are one workspace.
func resolve(dir string) string {
	if path, err := filepath.EvalSymlinks(dir); err == nil {
		return path
	}
	return filepath.Clean(dir)
}

// spot is the directory that a session's path leads to.
type spot struct {
	path  string        // with every symbolic link on the way followed
	inode session.Inode // which directory that is, also once it was renamed; zero if that is not known
}

// is tells whether both are one directory, or one is where the other was and is to come back.
func (a spot) is(b spot) bool {
	return a.path == b.path || a.inode != session.Inode{} && a.inode == b.inode
}

// spotOf is where the session's last run was when it was last looked at.
func spotOf(rec *session.Session) spot {
	if rec.Workspace == "" { // a record from before this was kept
		return spot{rec.WorkingDirectory, rec.WorkspaceInode}
	}
	return spot{rec.Workspace, rec.WorkspaceInode}
}

// goalOf is where a run of the session's that begins would be, as was found out.
func goalOf(rec *session.Session, w *way) spot {
	if w == nil || w.err != nil {
		return spot{path: spotOf(rec).path}
	}
	return spot{w.target, w.inode}
}

// occupies tells whether f holds for the directory that the session's run is in, or for the one in which it is about to begin another.
func (e *entry) occupies(f func(spot) bool) bool {
	return !e.rec.Run.Ended() && f(spotOf(e.rec)) || e.starts && f(e.goal)
}

// free refuses to start a session in a worktree that is being removed, and an exclusive one whose workspace is held by another one. That is held from the start of a run to its end, however it comes,
// and for as long as nobody knows that it has ended.
func (s *Supervisor) free(rec *session.Session, goal spot) error {
	for _, e := range s.sessions {
		if e.taking != "" && strings.HasPrefix(goal.path+"/", e.taking) {
			return refuse(InvalidState, "workspace %q is being removed with session %q", rec.WorkingDirectory, e.rec.ID)
		}
		if rec.Exclusive && e.rec != rec && e.rec.Exclusive && e.occupies(goal.is) {
			return refuse(WorkspaceBusy, "workspace %q is in use by session %q", rec.WorkingDirectory, e.rec.ID)
		}
	}
	return nil
}

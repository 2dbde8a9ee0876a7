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

func held(rec *session.Session) string {
	if rec.Workspace != "" {
		return rec.Workspace
	}
	return rec.WorkingDirectory // a record from before this was kept
}

// free refuses to start a session in a worktree that is being removed, and an exclusive one whose workspace is held by another one. That is held from the start of a run to its end, however it comes,
// and for as long as nobody knows that it has ended.
func (s *Supervisor) free(rec *session.Session) error {
	for _, e := range s.sessions {
		if e.taking != "" && strings.HasPrefix(held(rec)+"/", e.taking) {
			return refuse(InvalidState, "workspace %q is being removed with session %q", rec.WorkingDirectory, e.rec.ID)
		}
		if !rec.Exclusive {
			continue
		}
		if other := e.rec; other != rec && other.Exclusive && held(other) == held(rec) && (!other.Run.Ended() || e.starts) {
			return refuse(WorkspaceBusy, "workspace %q is held by session %q", rec.WorkingDirectory, other.ID)
		}
	}
	return nil
}

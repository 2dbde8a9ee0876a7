package supervisor

import (
	"context"
	"strings"

	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/workspaces"
)

func workspaceKeyOf(e *entry) workspaces.Key {
	return workspaces.Key{Path: e.rec.WorkingDirectory, Resolved: e.rec.Workspace}
}

// watchWorkspace begins to watch whether the workspace of the session's run is in place.
func (s *Supervisor) watchWorkspace(e *entry) {
	s.workspaces.Watch(workspaceKeyOf(e), e.rec.ID, e.rec.WorkspaceInode)
}

// unwatchWorkspace ends this, and returns whether the workspace was watched: it does not matter to
// a session without a run there.
func (s *Supervisor) unwatchWorkspace(e *entry) bool {
	if !s.workspaces.Unwatch(workspaceKeyOf(e), e.rec.ID) {
		return false
	}
	if e.rec.WorkspaceGone {
		s.apply(e, session.WorkspaceObserved{Inode: e.rec.WorkspaceInode})
	}
	return true
}

// workspaceObserved applies the state of the session's workspace, if it has changed.
func (s *Supervisor) workspaceObserved(id string, gone bool, inode session.Inode) {
	e := s.sessions[id]
	if e.rec.WorkspaceGone != gone || !gone && e.rec.Run.Live() && e.rec.WorkspaceInode != inode {
		s.apply(e, session.WorkspaceObserved{Gone: gone, Inode: inode})
	}
}

// MountsChanged is called after a file system was mounted or unmounted. It probes all workspaces:
// inotify does not report an unmount while a process uses the file system.
func (s *Supervisor) MountsChanged() { s.post(s.workspaces.ProbeAll) }

// awaitResolution waits until the path of a workspace is resolved. It is not called on the event
// loop. Errors: WorkspaceMissing.
func awaitResolution(ctx context.Context, r *workspaces.Resolution, path string) error {
	if r.Wait(ctx) != nil {
		return refuse(WorkspaceMissing, "workspace %q does not answer", path)
	}
	return nil
}

// resolveExclusive resolves the path of an exclusive session that is about to begin a run, so that
// the event loop can decide whether another exclusive session uses the same directory. It waits for
// the result, and so it is not called on the event loop. It returns nil if the session is not
// exclusive, or if canBegin returns an error.
func (s *Supervisor) resolveExclusive(
	ctx context.Context, id string, canBegin func(*entry) error,
) (r *workspaces.Resolution, err error) {
	var path string
	if err := s.do(func() {
		if e, err := s.find(id); err == nil && e.rec.Exclusive && canBegin(e) == nil {
			path = e.rec.WorkingDirectory
			r = s.resolver.Resolve(path)
		}
	}); err != nil || r == nil {
		return nil, err
	}
	return r, awaitResolution(ctx, r, path)
}

// setResolvedPath records the path to which the session's workspace has resolved. A nil or failed
// resolution changes nothing.
func (s *Supervisor) setResolvedPath(e *entry, r *workspaces.Resolution) {
	dir, ok := r.Directory()
	if !ok || dir.Path == e.rec.Workspace && dir.Inode == e.rec.WorkspaceInode {
		return
	}
	wasWatched := s.unwatchWorkspace(e)
	e.rec.Workspace, e.rec.WorkspaceInode = dir.Path, dir.Inode
	e.unsaved, e.onlyExitUnsaved = true, false
	s.markDirty(e)
	if wasWatched {
		s.watchWorkspace(e)
	}
}

// workspaceResolved records the resolved path of the workspace in which a run begins, and begins to
// watch the workspace, unless the run has ended meanwhile.
func (s *Supervisor) workspaceResolved(e *entry, run string, r *workspaces.Resolution) {
	if !e.removed && e.rec.Run.ID == run && e.rec.Run.Live() {
		s.setResolvedPath(e, r)
		s.watchWorkspace(e)
	}
}

// occupiesDir reports whether matches returns true for the directory of the session's current run,
// or for that of a run that is about to begin.
func (e *entry) occupiesDir(matches func(workspaces.Directory) bool) bool {
	return !e.rec.Run.Ended() && matches(workspaces.LastDirectory(e.rec)) ||
		e.pending.WaitsToBegin() && matches(e.claim.dir)
}

// checkWorkspaceFree returns an error if the session must not start in dir: because dir is in a
// worktree that is being removed, or because the session is exclusive and another exclusive session
// occupies dir. A session occupies its workspace from the start of a run until that run is known to
// have ended, in whatever way. Errors: InvalidState, WorkspaceBusy.
func (s *Supervisor) checkWorkspaceFree(rec *session.Session, dir workspaces.Directory) error {
	for _, e := range s.sessions {
		if e.removal.dir != "" && strings.HasPrefix(dir.Path+"/", e.removal.dir) {
			return refuse(InvalidState, "workspace %q is being removed with session %q", rec.WorkingDirectory, e.rec.ID)
		}
		if rec.Exclusive && e.rec != rec && e.rec.Exclusive && e.occupiesDir(dir.IsSame) {
			return refuse(WorkspaceBusy, "workspace %q is in use by session %q", rec.WorkingDirectory, e.rec.ID)
		}
	}
	return nil
}

package supervisor

import (
	"context"
	"strings"

	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/workspaces"
)

// resolveExclusive resolves the path of an exclusive session that is about to begin a run, so that
// the event loop can decide whether another exclusive session uses the same directory. It returns
// nil if the session is not exclusive, or if canBegin returns an error. Errors: WorkspaceMissing.
func (o *operations) resolveExclusive(
	ctx context.Context, id string, canBegin func(*entry) error,
) (r *workspaces.Resolution, err error) {
	var path string
	if err := o.loop.do(func() {
		if e, err := o.loop.sessions.find(id); err == nil && e.rec.Exclusive && canBegin(e) == nil {
			path = e.rec.WorkingDirectory
			r = o.loop.resolver.Resolve(path)
		}
	}); err != nil || r == nil {
		return nil, err
	}
	return r, awaitResolution(ctx, r, path)
}

// awaitResolution waits until the path of a workspace is resolved. It is not called on the event
// loop. Errors: WorkspaceMissing.
func awaitResolution(ctx context.Context, r *workspaces.Resolution, path string) error {
	if !r.Wait(ctx) {
		return refuse(WorkspaceMissing, "workspace %q does not answer", path)
	}
	return nil
}

// checkWorkspaceFree returns an error if the session must not start in dir: because dir is in a
// worktree that is being removed, or because the session is exclusive and another exclusive session
// occupies dir. A session occupies its workspace from the start of a run until that run is known to
// have ended, in whatever way. Errors: InvalidState, WorkspaceBusy.
func (l *loop) checkWorkspaceFree(rec *session.Session, dir workspaces.Directory) error {
	for _, e := range l.sessions.byID {
		if e.removal.dir != "" && strings.HasPrefix(dir.Path+"/", e.removal.dir) {
			return refuse(InvalidState, "workspace %q is being removed with session %q", rec.WorkingDirectory, e.rec.ID)
		}
		if rec.Exclusive && e.rec != rec && e.rec.Exclusive && e.occupiesDir(dir.IsSame) {
			return refuse(WorkspaceBusy, "workspace %q is in use by session %q", rec.WorkingDirectory, e.rec.ID)
		}
	}
	return nil
}

// occupiesDir reports whether matches returns true for the directory of the session's current run,
// or for that of a run that is about to begin.
func (e *entry) occupiesDir(matches func(workspaces.Directory) bool) bool {
	return !e.rec.Run.Ended() && matches(workspaces.LastDirectory(e.rec)) ||
		e.pending.WaitsToBegin() && matches(e.claim.dir)
}

// setResolvedPath records the path to which the session's workspace has resolved. A nil or failed
// resolution changes nothing.
func (e *entry) setResolvedPath(r *workspaces.Resolution) {
	dir, ok := r.Directory()
	if !ok || dir.Path == e.rec.Workspace && dir.Inode == e.rec.WorkspaceInode {
		return
	}
	wasWatched := e.unwatchWorkspace()
	e.rec.Workspace, e.rec.WorkspaceInode = dir.Path, dir.Inode
	e.recordChanged()
	if wasWatched {
		e.watchWorkspace()
	}
}

// watchWorkspace begins to watch whether the workspace of the session's run is in place.
func (e *entry) watchWorkspace() {
	e.loop.workspaces.Watch(workspaceKeyOf(e), e.rec.ID, e.rec.WorkspaceInode)
}

// unwatchWorkspace ends this, and returns whether the workspace was watched. Whether it is in place
// does not matter to a session without a run.
func (e *entry) unwatchWorkspace() bool {
	if !e.loop.workspaces.Unwatch(workspaceKeyOf(e), e.rec.ID) {
		return false
	}
	if e.rec.WorkspaceGone {
		e.apply(session.WorkspaceObserved{Inode: e.rec.WorkspaceInode})
	}
	return true
}

// workspaceKeyOf returns the paths by which the session's workspace is watched.
func workspaceKeyOf(e *entry) workspaces.Key {
	return workspaces.Key{Path: e.rec.WorkingDirectory, Resolved: e.rec.Workspace}
}

// workspaceObserved applies the state of a session's workspace, if that has changed.
func (l *loop) workspaceObserved(id string, gone bool, inode session.Inode) {
	e := l.sessions.byID[id]
	if e == nil {
		return
	}
	if e.rec.WorkspaceGone != gone || !gone && e.rec.Run.Live() && e.rec.WorkspaceInode != inode {
		e.apply(session.WorkspaceObserved{Gone: gone, Inode: inode})
	}
}

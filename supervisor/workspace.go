package supervisor

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/inotify"
	"github.com/corrald/corral/supervisor/session"
)

// workspaceKey identifies a workspace: the path that the user gave, and the path to which it
// resolved when the run began. They differ if the path contains a symbolic link.
type workspaceKey struct{ path, resolved string }

// watchedWorkspace is a workspace that is watched for all sessions that have a run there. One
// goroutine at a time probes it, and the event loop applies the result: if a file system does not
// answer, only that goroutine is blocked.
type watchedWorkspace struct {
	workspaceKey
	sessions map[*entry]bool
	inode    session.Inode // the directory that was last found there, zero if there was none
	err      error         // see workspaceProbe
	watches  []int32       // of the components of the path

	probing        bool   // a probe is in progress
	activityBefore uint64 // Supervisor.activity when it began
	probeAgain     bool   // its result may be outdated: another one has to follow
}

func workspaceKeyOf(e *entry) workspaceKey {
	return workspaceKey{e.rec.WorkingDirectory, e.rec.Workspace}
}

// watchWorkspace begins to watch whether the workspace of the session's run is in place.
func (s *Supervisor) watchWorkspace(e *entry) {
	key := workspaceKeyOf(e)
	w := s.workspaces[key]
	if w == nil {
		w = &watchedWorkspace{workspaceKey: key, sessions: map[*entry]bool{}}
		s.workspaces[key] = w
	}
	w.sessions[e] = true
	if w.inode == (session.Inode{}) {
		w.inode = e.rec.WorkspaceInode // which an earlier daemon found
	}
	s.probeWorkspace(w)
}

// unwatchWorkspace ends this: the workspace does not matter to a session without a run there.
func (s *Supervisor) unwatchWorkspace(e *entry) {
	w := s.workspaces[workspaceKeyOf(e)]
	if w == nil || !w.sessions[e] {
		return
	}
	delete(w.sessions, e)
	if e.rec.WorkspaceGone {
		s.apply(e, session.WorkspaceObserved{Inode: e.rec.WorkspaceInode})
	}
	if len(w.sessions) == 0 {
		s.unwatchUnused(w)
	}
}

// unwatchUnused ends the watching of a workspace that no session uses. If a probe of it is in
// progress, the workspace is kept until that has finished, so that there is never more than one
// probe.
func (s *Supervisor) unwatchUnused(w *watchedWorkspace) {
	watches := w.watches
	w.inode, w.watches = session.Inode{}, nil
	if !w.probing {
		delete(s.workspaces, w.workspaceKey)
	}
	s.unwatchPaths(watches)
}

func (s *Supervisor) unwatchPaths(numbers []int32) {
	for i := range numbers {
		s.unwatchPath(&numbers[i])
	}
}

// checkWorkspace probes the workspace of the session's run again.
func (s *Supervisor) checkWorkspace(e *entry) {
	if w := s.workspaces[workspaceKeyOf(e)]; w != nil && w.sessions[e] {
		s.probeWorkspace(w)
	}
}

// MountsChanged is called after a file system was mounted or unmounted. It probes all workspaces:
// inotify does not report an unmount while a process uses the file system.
func (s *Supervisor) MountsChanged() {
	s.post(func() {
		for _, w := range s.workspaces {
			s.probeWorkspace(w)
		}
	})
}

// probeWorkspace determines, on another goroutine, whether the workspace is in place, and watches
// for the next change. If a probe is in progress, another one follows it.
func (s *Supervisor) probeWorkspace(w *watchedWorkspace) {
	if w.probing || len(w.sessions) == 0 {
		w.probeAgain = true
		return
	}
	w.probing, w.probeAgain, w.activityBefore = true, false, s.activity
	s.probes++
	probe := &workspaceProbe{files: s.Files, workspaceKey: w.workspaceKey, inode: w.inode}
	go func() {
		probe.run()
		s.post(func() { s.applyProbe(w, probe) })
	}()
}

// applyProbe applies the result of a probe, and replaces the previous watches by its own.
func (s *Supervisor) applyProbe(w *watchedWorkspace, probe *workspaceProbe) {
	before, earlier := w.watches, s.shareWatches(w, probe.earlierWatches)
	w.watches = s.shareWatches(w, probe.watches)
	w.probing = false
	w.probeAgain = w.probeAgain || s.hadActivitySince(w.activityBefore, probe)
	if s.probes--; s.probes == 0 {
		clear(s.lastActivity)
	}
	if len(w.sessions) == 0 {
		s.unwatchUnused(w)
	}
	s.unwatchPaths(before)
	s.unwatchPaths(earlier)
	if len(w.sessions) == 0 {
		return
	}
	s.recordWatchError(w.anySession(), &w.err, probe.err)
	if probe.present {
		w.inode = probe.inode
	}
	for e := range w.sessions {
		s.applyWorkspace(e, w, !probe.present)
	}
	if w.probeAgain {
		s.probeWorkspace(w)
	}
}

// shareWatches calls shareWatch for the watches that a probe has added.
func (s *Supervisor) shareWatches(w *watchedWorkspace, all []addedWatch) []int32 {
	numbers := make([]int32, 0, len(all))
	for _, added := range all {
		numbers = append(numbers, s.shareWatch(added.watch, added.mask, func(ev inotify.Event) {
			if added.name == "" || ev.Name == "" || ev.Name == added.name {
				s.probeWorkspace(w)
			}
		}, func() { s.probeWorkspace(w) }))
	}
	return numbers
}

// hadActivitySince reports whether an inotify watch of the probe has reported an event, or was
// removed, before the event loop knew that the probe uses it. Before is the value of activity when
// the probe began.
func (s *Supervisor) hadActivitySince(before uint64, probe *workspaceProbe) bool {
	for _, added := range probe.watches {
		if s.lastActivity[added.watch] > before {
			return true
		}
	}
	return false
}

// applyWorkspace applies the state of the session's workspace, if it has changed.
func (s *Supervisor) applyWorkspace(e *entry, w *watchedWorkspace, gone bool) {
	if e.rec.WorkspaceGone != gone || !gone && e.rec.Run.Live() && e.rec.WorkspaceInode != w.inode {
		s.apply(e, session.WorkspaceObserved{Gone: gone, Inode: w.inode})
	}
}

// anySession returns the id of one of the sessions that use the workspace.
func (w *watchedWorkspace) anySession() string {
	for e := range w.sessions {
		return e.rec.ID
	}
	return ""
}

// resolution is the result of resolving a path, which is done by another goroutine, at most one at
// a time for each path.
type resolution struct {
	done chan struct{} // closed when the other fields are set

	path  string        // the resolved path
	inode session.Inode // of the directory there, zero if there is none
	err   error
}

// resolveTimeout is how long a caller waits until the path of a workspace is resolved.
const resolveTimeout = 5 * time.Second

// resolvePath begins to resolve a path. It is called on the event loop.
func (s *Supervisor) resolvePath(path string) *resolution {
	if r := s.resolutions[path]; r != nil {
		return r
	}
	r := &resolution{done: make(chan struct{})}
	s.resolutions[path] = r
	go func() {
		if r.path, r.err = s.Programs.ResolvePath(path); r.err == nil {
			r.inode = inodeOf(r.path)
		}
		close(r.done)
		s.post(func() { delete(s.resolutions, path) })
	}()
	return r
}

// wait waits for the result. It is not called on the event loop.
func (r *resolution) wait(ctx context.Context, s *Supervisor, path string) error {
	ctx, cancel := s.AfterFunc.Context(ctx, resolveTimeout)
	defer cancel()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return refuse(WorkspaceMissing, "workspace %q does not answer", path)
	}
}

// resolveExclusive resolves the path of an exclusive session that is about to begin a run, so that
// the event loop can decide whether another exclusive session uses the same directory. It waits for
// the result, and so it is not called on the event loop. It returns nil if the session is not
// exclusive, or if canBegin returns an error.
func (s *Supervisor) resolveExclusive(
	ctx context.Context, id string, canBegin func(*entry) error,
) (r *resolution, err error) {
	var path string
	if err := s.do(func() {
		if e, err := s.find(id); err == nil && e.rec.Exclusive && canBegin(e) == nil {
			path = e.rec.WorkingDirectory
			r = s.resolvePath(path)
		}
	}); err != nil || r == nil {
		return nil, err
	}
	return r, r.wait(ctx, s, path)
}

// setResolvedPath records the path to which the session's workspace has resolved. A nil or failed
// resolution changes nothing.
func (s *Supervisor) setResolvedPath(e *entry, r *resolution) {
	if r == nil || r.err != nil || r.path == e.rec.Workspace && r.inode == e.rec.WorkspaceInode {
		return
	}
	w := s.workspaces[workspaceKeyOf(e)]
	isWatched := w != nil && w.sessions[e]
	s.unwatchWorkspace(e)
	e.rec.Workspace, e.rec.WorkspaceInode = r.path, r.inode
	e.unsaved, e.onlyExitUnsaved = true, false
	s.markDirty(e)
	if isWatched {
		s.watchWorkspace(e)
	}
}

// workspaceResolved records the resolved path of the workspace in which a run begins, and begins to
// watch the workspace, unless the run has ended meanwhile.
func (s *Supervisor) workspaceResolved(e *entry, run string, r *resolution) {
	if !e.removed && e.rec.Run.ID == run && e.rec.Run.Live() {
		s.setResolvedPath(e, r)
		s.watchWorkspace(e)
	}
}

// inodeOf returns the inode of the directory at path, zero if there is none.
func inodeOf(path string) session.Inode {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return session.Inode{}
	}
	return session.Inode{Device: st.Dev, Number: st.Ino}
}

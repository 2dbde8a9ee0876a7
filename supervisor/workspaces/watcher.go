// Package workspaces watches whether the workspaces of sessions are in place, and resolves their
// paths. An access to a file system that does not answer blocks without a time limit. The event
// loop therefore never accesses a workspace.
package workspaces

import (
	"slices"

	"github.com/corrald/corral/internal/inotify"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/sources"
)

// Key identifies a workspace: the path that the user gave, and the path to which it resolved when
// the run began ("" if that is unknown). They differ if the path contains a symbolic link.
type Key struct{ Path, Resolved string }

// Watcher watches workspaces, each of them for any number of sessions. One goroutine at a time
// probes a workspace, and the event loop applies the result: if a file system does not answer, only
// that goroutine is blocked. All methods are called on the event loop.
type Watcher struct {
	files      *sources.Files
	post       func(func())
	observed   func(id string, gone bool, inode session.Inode)
	recordErr  func(id string, before *error, err error)
	workspaces map[Key]*workspace
}

// workspace is a watched workspace.
type workspace struct {
	Key
	sessions map[string]bool // by id
	inode    session.Inode   // the directory that was last found there, zero if there was none
	err      error           // see probe
	added    []addedWatch    // of the components of the path, by the last probe
	watches  []int32         // the numbers of Files for these

	probing    bool // a probe is in progress
	probeAgain bool // its result may be outdated: another one has to follow
}

// NewWatcher returns a Watcher without workspaces. Post has a function called on the event loop; it
// may block, and is called by other goroutines only. The other functions are called on the event
// loop after each probe, for each session that uses the workspace: first recordErr, then observed.
//
// RecordErr stores in *before, which is the result of the previous call for this workspace, why
// that cannot be watched: err, nil if it can. The inode that observed gets is the directory that
// was last found at the workspace's path, also if the workspace is gone; it is zero if there was
// none.
func NewWatcher(
	files *sources.Files, post func(func()),
	observed func(id string, gone bool, inode session.Inode), recordErr func(id string, before *error, err error),
) *Watcher {
	return &Watcher{files, post, observed, recordErr, map[Key]*workspace{}}
}

// Watch begins to watch a workspace for a session, and probes it. Inode is the directory that an
// earlier daemon found there, zero if that is unknown.
func (w *Watcher) Watch(key Key, id string, inode session.Inode) {
	ws := w.workspaces[key]
	if ws == nil {
		ws = &workspace{Key: key, sessions: map[string]bool{}}
		w.workspaces[key] = ws
	}
	ws.sessions[id] = true
	if ws.inode == (session.Inode{}) {
		ws.inode = inode
	}
	w.probe(ws)
}

// Unwatch ends what Watch began, and returns whether the session's workspace was watched.
func (w *Watcher) Unwatch(key Key, id string) bool {
	ws := w.workspaces[key]
	if ws == nil || !ws.sessions[id] {
		return false
	}
	delete(ws.sessions, id)
	if len(ws.sessions) == 0 {
		w.unwatchUnused(ws)
	}
	return true
}

// Probe probes a workspace that is watched for the session again.
func (w *Watcher) Probe(key Key, id string) {
	if ws := w.workspaces[key]; ws != nil && ws.sessions[id] {
		w.probe(ws)
	}
}

// ProbeAll probes all workspaces again.
func (w *Watcher) ProbeAll() {
	for _, ws := range w.workspaces {
		w.probe(ws)
	}
}

// Retry probes the workspaces that could not be watched again.
func (w *Watcher) Retry() {
	for _, ws := range w.workspaces {
		if ws.err != nil {
			w.probe(ws)
		}
	}
}

// Err returns the error that was recorded for a workspace, nil if there is none.
func (w *Watcher) Err(key Key) error {
	if ws := w.workspaces[key]; ws != nil {
		return ws.err
	}
	return nil
}

// IsProbing reports whether a probe is in progress.
func (w *Watcher) IsProbing() bool {
	for _, ws := range w.workspaces {
		if ws.probing {
			return true
		}
	}
	return false
}

// probe determines, on another goroutine, whether the workspace is in place, and watches for the
// next change. If a probe is in progress, another one follows it.
func (w *Watcher) probe(ws *workspace) {
	if ws.probing || len(ws.sessions) == 0 {
		ws.probeAgain = true
		return
	}
	ws.probing, ws.probeAgain = true, false
	p := &probe{inotify: w.files.Inotify(), Key: ws.Key, inode: ws.inode}
	go func() {
		p.run()
		w.post(func() { w.apply(ws, p) })
	}()
}

// apply applies the result of a probe, and replaces the previous watches by its own. The event loop
// does not handle events of watches that it does not know yet: a probe that has added others than
// the one before it may have missed a change, and another probe follows.
func (w *Watcher) apply(ws *workspace, p *probe) {
	before, earlier := ws.watches, w.share(ws, p.earlierWatches)
	ws.watches = w.share(ws, p.watches)
	ws.probing, ws.probeAgain = false, ws.probeAgain || !slices.Equal(ws.added, p.watches)
	ws.added = p.watches
	w.unwatchFiles(before)
	w.unwatchFiles(earlier)
	if len(ws.sessions) == 0 {
		w.unwatchUnused(ws)
		return
	}
	if p.present {
		ws.inode = p.inode
	}
	for id := range ws.sessions {
		w.recordErr(id, &ws.err, p.err)
		w.observed(id, !p.present, ws.inode)
	}
	if ws.probeAgain {
		w.probe(ws)
	}
}

// share calls Files.Share for the watches that a probe has added.
func (w *Watcher) share(ws *workspace, all []addedWatch) []int32 {
	numbers := make([]int32, 0, len(all))
	for _, added := range all {
		numbers = append(numbers, w.files.Share(added.inode, added.mask, func(ev inotify.Event) {
			if added.name == "" || ev.Name == "" || ev.Name == added.name {
				w.probe(ws)
			}
		}, func() { w.probe(ws) }))
	}
	return numbers
}

// unwatchUnused ends the watching of a workspace that no session uses. If a probe of it is in
// progress, the workspace is kept until that has finished, so that there is never more than one
// probe.
func (w *Watcher) unwatchUnused(ws *workspace) {
	watches := ws.watches
	ws.inode, ws.added, ws.watches = session.Inode{}, nil, nil
	if !ws.probing {
		delete(w.workspaces, ws.Key)
	}
	w.unwatchFiles(watches)
}

func (w *Watcher) unwatchFiles(numbers []int32) {
	for i := range numbers {
		w.files.Unwatch(&numbers[i])
	}
}

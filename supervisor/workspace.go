package supervisor

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/inotify"
	"github.com/corrald/corral/supervisor/session"
)

// where names a workspace: the path that its user gave, and what that led to when the run began. They differ where a symbolic link is on the way.
type where struct{ path, target string }

// place is a workspace that is watched, for all the sessions that have a run there. It is looked at by one goroutine at a time, and only the loop knows what
// was seen: where a file system does not answer, nobody else waits.
type place struct {
	where
	sessions map[*entry]bool
	seen     session.Inode // the directory as it was when it was last at its place, zero if it never was
	err      error         // why not all of the way there is watched, for lack of watches; nil if it is
	watches  []int32       // on everything on the way there

	looking bool   // a look is under way
	since   uint64 // what had stirred when it began
	again   bool   // it may come to see what is old by then: there has to be another
}

func placeOf(e *entry) where { return where{e.rec.WorkingDirectory, e.rec.Workspace} }

// watchWorkspace begins to tell whether the workspace of the session's run is at its place.
func (s *Supervisor) watchWorkspace(e *entry) {
	key := placeOf(e)
	p := s.places[key]
	if p == nil {
		p = &place{where: key, sessions: map[*entry]bool{}}
		s.places[key] = p
	}
	p.sessions[e] = true
	if p.seen == (session.Inode{}) {
		p.seen = e.rec.WorkspaceInode // by the daemon before us
	}
	s.look(p)
}

// unwatchWorkspace ends that: what becomes of the workspace is nothing to a session without a run there.
func (s *Supervisor) unwatchWorkspace(e *entry) {
	p := s.places[placeOf(e)]
	if p == nil || !p.sessions[e] {
		return
	}
	delete(p.sessions, e)
	if e.rec.WorkspaceGone {
		s.apply(e, session.WorkspaceSeen{Inode: e.rec.WorkspaceInode})
	}
	if len(p.sessions) == 0 {
		s.unwatchPlace(p)
	}
}

// unwatchPlace ends the watching of a place that no session has. One that is being looked at stays until that has come to its end: there is never
// more than one look.
func (s *Supervisor) unwatchPlace(p *place) {
	watches := p.watches
	p.seen, p.watches = session.Inode{}, nil
	if !p.looking {
		delete(s.places, p.where)
	}
	s.unwatchPaths(watches)
}

func (s *Supervisor) unwatchPaths(numbers []int32) {
	for i := range numbers {
		s.unwatchPath(&numbers[i])
	}
}

// checkWorkspace looks at the workspace of the session's run again.
func (s *Supervisor) checkWorkspace(e *entry) {
	if p := s.places[placeOf(e)]; p != nil && p.sessions[e] {
		s.look(p)
	}
}

// MountsChanged is told that a file system was mounted or unmounted: of that inotify tells nothing while somebody is in it.
func (s *Supervisor) MountsChanged() {
	s.post(func() {
		for _, p := range s.places {
			s.look(p)
		}
	})
}

// look finds out, off the loop, whether the workspace is there, and sees to it that the next change is told.
func (s *Supervisor) look(p *place) {
	if p.looking || len(p.sessions) == 0 {
		p.again = true
		return
	}
	p.looking, p.again, p.since = true, false, s.stirs
	s.looks++
	v := &sight{files: s.Files, where: p.where, inode: p.seen}
	go func() {
		v.see()
		s.post(func() { s.saw(p, v) })
	}()
}

// saw takes what a look has seen.
func (s *Supervisor) saw(p *place, v *sight) {
	before, past := p.watches, s.shareAll(p, v.past)
	p.watches = s.shareAll(p, v.watched)
	p.looking = false
	p.again = p.again || s.stirredSince(p.since, v)
	if s.looks--; s.looks == 0 {
		clear(s.stirred)
	}
	if len(p.sessions) == 0 {
		s.unwatchPlace(p)
	}
	s.unwatchPaths(before)
	s.unwatchPaths(past)
	if len(p.sessions) == 0 {
		return
	}
	s.noteWatched(p.anyone(), &p.err, v.err)
	if v.there {
		p.seen = v.inode
	}
	for e := range p.sessions {
		s.tellWorkspace(e, p, !v.there)
	}
	if p.again {
		s.look(p)
	}
}

// shareAll takes part in the watches that a look has asked for.
func (s *Supervisor) shareAll(p *place, all []watched) []int32 {
	numbers := make([]int32, 0, len(all))
	for _, w := range all {
		numbers = append(numbers, s.share(w.inode, w.mask, func(ev inotify.Event) {
			if w.name == "" || ev.Name == "" || ev.Name == w.name {
				s.look(p)
			}
		}, func() { s.look(p) }))
	}
	return numbers
}

// stirredSince tells whether anything was told by, or became of, the watches of a look before the loop knew of them.
func (s *Supervisor) stirredSince(since uint64, v *sight) bool {
	for _, w := range v.watched {
		if s.stirred[w.inode] > since {
			return true
		}
	}
	return false
}

// tellWorkspace applies what is known of the session's workspace, if that is new.
func (s *Supervisor) tellWorkspace(e *entry, p *place, gone bool) {
	if e.rec.WorkspaceGone != gone || !gone && e.rec.Run.Live() && e.rec.WorkspaceInode != p.seen {
		s.apply(e, session.WorkspaceSeen{Gone: gone, Inode: p.seen})
	}
}

// anyone is one of the sessions that have the place.
func (p *place) anyone() string {
	for e := range p.sessions {
		return e.rec.ID
	}
	return ""
}

// way is where a path leads, which is found out off the loop, by one goroutine at a time for each path.
type way struct {
	found  chan struct{} // closed when it was found out
	target string
	inode  session.Inode // of that, zero if there is no directory
	err    error
}

// followTime is how long a workspace may take to be found, before it is not waited for any longer.
const followTime = 5 * time.Second

// follow begins to find out where a path leads, on the loop.
func (s *Supervisor) follow(path string) *way {
	if w := s.ways[path]; w != nil {
		return w
	}
	w := &way{found: make(chan struct{})}
	s.ways[path] = w
	go func() {
		if w.target, w.err = s.World.Follow(path); w.err == nil {
			w.inode = inodeOf(w.target)
		}
		close(w.found)
		s.post(func() { delete(s.ways, path) })
	}()
	return w
}

// await waits for it, off the loop.
func (w *way) await(ctx context.Context, s *Supervisor, path string) error {
	ctx, cancel := s.AfterFunc.Context(ctx, followTime)
	defer cancel()
	select {
	case <-w.found:
		return nil
	case <-ctx.Done():
		return refuse(WorkspaceMissing, "workspace %q does not answer", path)
	}
}

// wayIn finds out where the path of an exclusive session leads to by now, before anybody decides whether another one is there already, if the session may
// begin a run at all. It does so off the loop. It returns nil where nobody wants to know.
func (s *Supervisor) wayIn(ctx context.Context, id string, may func(*entry) error) (w *way, err error) {
	var path string
	if err := s.do(func() {
		if e, err := s.find(id); err == nil && e.rec.Exclusive && may(e) == nil {
			path = e.rec.WorkingDirectory
			w = s.follow(path)
		}
	}); err != nil || w == nil {
		return nil, err
	}
	return w, w.await(ctx, s, path)
}

// lead notes where the session's path leads to.
func (s *Supervisor) lead(e *entry, w *way) {
	if w == nil || w.err != nil || w.target == e.rec.Workspace && w.inode == e.rec.WorkspaceInode {
		return
	}
	p := s.places[placeOf(e)]
	watched := p != nil && p.sessions[e]
	s.unwatchWorkspace(e)
	e.rec.Workspace, e.rec.WorkspaceInode = w.target, w.inode
	e.unsaved, e.exited = true, false
	s.touch(e)
	if watched {
		s.watchWorkspace(e)
	}
}

// arrive notes where the path of a session leads to, for the run that begins there, and begins to tell what becomes of it.
func (s *Supervisor) arrive(e *entry, run string, w *way) {
	if !e.removed && e.rec.Run.ID == run && e.rec.Run.Live() {
		s.lead(e, w)
		s.watchWorkspace(e)
	}
}

// inodeOf returns which directory is at a path, zero if there is none.
func inodeOf(path string) session.Inode {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return session.Inode{}
	}
	return session.Inode{Device: st.Dev, Number: st.Ino}
}

package supervisor

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/inotify"
	"github.com/corrald/corral/supervisor/session"
)

// place is a workspace that is watched, for all the sessions that have it. Its moving is told by a watch on itself, its removing by one on the
// directory above (the inode lives on for as long as an agent is in it, and tells nothing), its return by one on the nearest directory above that
// is there.
type place struct {
	path     string
	sessions map[*entry]bool
	self     int32 // watch on the workspace, 0 if it is gone
	above    int32 // watch on the directory where its removing, or its return, is seen
}

// watchWorkspace begins to tell whether the session's workspace is at its place.
func (s *Supervisor) watchWorkspace(e *entry) {
	path := e.rec.WorkingDirectory
	p := s.places[path]
	if p == nil {
		p = &place{path: path, sessions: map[*entry]bool{}}
		s.places[path] = p
	}
	p.sessions[e] = true
	s.look(p)
}

func (s *Supervisor) unwatchWorkspace(e *entry) {
	p := s.places[e.rec.WorkingDirectory]
	if p == nil {
		return
	}
	delete(p.sessions, e)
	if len(p.sessions) == 0 {
		s.unwatchPath(&p.self)
		s.unwatchPath(&p.above)
		delete(s.places, p.path)
	}
}

// checkWorkspace looks at the session's workspace again.
func (s *Supervisor) checkWorkspace(e *entry) {
	if p := s.places[e.rec.WorkingDirectory]; p != nil {
		s.look(p)
	}
}

// look finds out whether the workspace is there, and sees to it that the next change is told. Watches come first: what changes between a look
// and a watch would be missed.
func (s *Supervisor) look(p *place) {
	again := func(inotify.Event) { s.look(p) }
	s.unwatchPath(&p.self)
	s.unwatchPath(&p.above)
	// A failed watch leaves the number at 0: a directory above may be one that we cannot read.
	p.self, _ = s.watchPath(p.path, unix.IN_MOVE_SELF|unix.IN_DELETE_SELF|unix.IN_ONLYDIR, again)
	p.above, _ = s.watchPath(filepath.Dir(p.path), unix.IN_DELETE|unix.IN_ONLYDIR, func(ev inotify.Event) {
		if ev.Name == filepath.Base(p.path) {
			s.look(p)
		}
	})
	gone := !isDir(p.path)
	if gone {
		s.unwatchPath(&p.above)
		for dir := filepath.Dir(p.path); ; dir = filepath.Dir(dir) {
			const appear = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVE_SELF | unix.IN_DELETE_SELF | unix.IN_ATTRIB | unix.IN_ONLYDIR
			var err error
			if p.above, err = s.watchPath(dir, appear, again); err == nil || dir == "/" || dir == "." {
				break
			}
		}
		if isDir(p.path) { // it came back before the watch was there
			s.look(p)
			return
		}
	}
	for e := range p.sessions {
		if e.rec.WorkspaceGone != gone {
			s.apply(e, session.WorkspaceSeen{Gone: gone})
		}
	}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

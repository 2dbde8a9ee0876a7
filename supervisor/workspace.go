package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/inotify"
	"github.com/corrald/corral/supervisor/session"
)

// where names a workspace: the path that its user gave, and what that led to when the run began. They differ where a symbolic link is on the way.
type where struct{ path, target string }

// place is a workspace that is watched, for all the sessions that have it.
type place struct {
	where
	sessions map[*entry]bool
	seen     session.Inode // the directory as it was when it was last at its place, zero if it never was
	err      error         // why not all of the way there is watched, for lack of watches; nil if it is
	watches  []int32       // on everything on the way there
}

func placeOf(e *entry) where { return where{e.rec.WorkingDirectory, e.rec.Workspace} }

// watchWorkspace begins to tell whether the session's workspace is at its place.
func (s *Supervisor) watchWorkspace(e *entry) {
	key := placeOf(e)
	p := s.places[key]
	if p == nil {
		p = &place{where: key, sessions: map[*entry]bool{}}
		s.places[key] = p
	}
	p.sessions[e] = true
	if r := e.rec.Run; p.seen == (session.Inode{}) && r.Live() && r.BootID == s.BootID {
		p.seen = e.rec.WorkspaceInode // by the daemon before us
	}
	s.look(p)
}

func (s *Supervisor) unwatchWorkspace(e *entry) {
	p := s.places[placeOf(e)]
	if p == nil {
		return
	}
	delete(p.sessions, e)
	if len(p.sessions) == 0 {
		s.unwatchPaths(p.watches)
		delete(s.places, p.where)
	}
}

// moveIn notes where the session's path leads to now, for the run that is about to begin there.
func (s *Supervisor) moveIn(e *entry) {
	target, err := filepath.EvalSymlinks(e.rec.WorkingDirectory)
	if err != nil || target == e.rec.Workspace {
		return
	}
	s.unwatchWorkspace(e)
	e.rec.Workspace = target
	s.watchWorkspace(e)
}

// checkWorkspace looks at the session's workspace again.
func (s *Supervisor) checkWorkspace(e *entry) {
	if p := s.places[placeOf(e)]; p != nil {
		s.look(p)
	}
}

// MountsChanged is told that a file system was mounted or unmounted: of that inotify tells nothing while somebody is in it.
func (s *Supervisor) MountsChanged() {
	s.post(func() {
		for _, p := range s.places {
			for e := range p.sessions {
				if e.rec.Run.Live() {
					s.look(p)
					break
				}
			}
		}
	})
}

// look finds out whether the workspace is there, and sees to it that the next change is told. Watches come first: what changes between a look
// and a watch would be missed.
func (s *Supervisor) look(p *place) {
	before := p.err
	p.err = nil
	s.watchAll(p)
	if now := p.err; !sameCause(before, now) {
		p.err = before
		s.noteWatched(p.anyone(), &p.err, now)
	}
	gone := !p.there()
	for e := range p.sessions {
		s.tellWorkspace(e, p, gone)
	}
}

// tellWorkspace applies what is known of the session's workspace, if that is new.
func (s *Supervisor) tellWorkspace(e *entry, p *place, gone bool) {
	if e.rec.WorkspaceGone != gone || !gone && e.rec.Run.Live() && e.rec.WorkspaceInode != p.seen {
		s.apply(e, session.WorkspaceSeen{Gone: gone, Inode: p.seen})
	}
}

func (s *Supervisor) watchAll(p *place) {
	const attempts = 8 // it changes while we look; then there are events under way that have us look again
	for range attempts {
		before := p.watches
		p.watches = nil
		whole := s.watchWay(p)
		s.unwatchPaths(before)
		if whole == isDir(p.path) {
			break
		}
	}
}

// anyone is one of the sessions that have the place.
func (p *place) anyone() string {
	for e := range p.sessions {
		return e.rec.ID
	}
	return ""
}

// there tells whether the workspace is at its place: its path leads where it led, or to that same directory by another way, as after a move for
// which its user has left a link behind.
func (p *place) there() bool {
	var st unix.Stat_t
	if err := unix.Stat(p.path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false
	}
	inode := session.Inode{Device: st.Dev, Number: st.Ino}
	if p.target != "" && p.seen != inode && resolve(p.path) != p.target {
		return false
	}
	p.seen = inode
	return true
}

const maxLinks = 40 // symbolic links on one way, as the kernel has it (path_resolution(7)), and looks that have to be repeated

// watchWay watches every directory and link on the way to the workspace, as far as there is one, and tells whether it got there. That a directory or
// link is moved or removed is told by a watch on itself, which costs nothing until then. A directory that somebody is in tells nothing of its
// removal, and so for the last one the directory above is asked, too; what is above cannot be removed before what is in it. Where the way
// ends early, the directory there tells what appears in it. A watch that fails leaves one thing untold: a directory above may be one that we cannot read.
func (s *Supervisor) watchWay(p *place) bool {
	const moved = unix.IN_MOVE_SELF | unix.IN_DELETE_SELF | unix.IN_DONT_FOLLOW
	again := func(inotify.Event) { s.look(p) }
	dir, names, links := "/", elements(p.path), 0
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if name == ".." {
			dir = filepath.Dir(dir)
			continue
		}
		at := filepath.Join(dir, name)
		_ = s.watchFor(p, at, moved, again)
		info, err := os.Lstat(at)
		switch {
		case err == nil && info.IsDir():
			if len(names) == 0 {
				_ = s.watchFor(p, dir, unix.IN_DELETE|unix.IN_ONLYDIR, func(ev inotify.Event) {
					if ev.Name == name {
						s.look(p)
					}
				})
			}
			dir = at
		case err == nil && info.Mode()&os.ModeSymlink != 0 && links < maxLinks:
			links++
			target, err := os.Readlink(at)
			if err == nil && filepath.IsAbs(target) {
				dir = "/"
			}
			names = append(elements(target), names...)
		default:
			s.watchForReturn(p, dir)
			if !isDir(dir) && links < maxLinks { // it went before its end was watched: from the beginning
				links++
				dir, names = "/", elements(p.path)
				continue
			}
			if now, e := os.Lstat(at); (e == nil) == (err == nil) && (e != nil || now.Mode().Type() == info.Mode().Type()) || links >= maxLinks {
				return false
			}
			links++
			names = append([]string{name}, names...) // it came between the look and the watch: go on from here
		}
	}
	return true
}

// watchForReturn watches the directory in which the rest of the way has to appear, or the nearest one above it that can be watched. That the directory
// itself is removed, or one above it, is told by the one above: an agent that is in a directory that was removed keeps all of these alive.
func (s *Supervisor) watchForReturn(p *place, dir string) {
	const appear = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVE_SELF | unix.IN_DELETE_SELF | unix.IN_ATTRIB | unix.IN_ONLYDIR
	for up := dir; up != "/"; up = filepath.Dir(up) {
		name := filepath.Base(up)
		_ = s.watchFor(p, filepath.Dir(up), unix.IN_DELETE|unix.IN_ONLYDIR, func(ev inotify.Event) {
			if ev.Name == name {
				s.look(p)
			}
		})
	}
	for s.watchFor(p, dir, appear, func(inotify.Event) { s.look(p) }) != nil && dir != "/" {
		dir = filepath.Dir(dir)
	}
}

func (s *Supervisor) watchFor(p *place, path string, mask uint32, f func(inotify.Event)) error {
	number, err := s.watchPath(path, mask, f)
	if err == nil {
		p.watches = append(p.watches, number)
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, errNoWatcher) { // any other says something of the path
		p.err = err
	}
	return err
}

func (s *Supervisor) unwatchPaths(numbers []int32) {
	for i := range numbers {
		s.unwatchPath(&numbers[i])
	}
}

// elements splits a path into what is to be walked through.
func elements(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "" || name == "." })
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

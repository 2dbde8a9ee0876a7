package supervisor

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/inotify"
)

// pathWatch is the interest of one part of the supervisor in events at a path. inotify has one
// watch for each inode, which all pathWatches of that inode share.
type pathWatch struct {
	number  int32 // identifies this pathWatch, never 0
	watch   int32 // inotify's number of its watch
	mask    uint32
	onEvent func(inotify.Event)
	rewatch func() // called when the inotify watch was removed: watches the path again
}

// inodeWatch is inotify's watch of an inode, with the pathWatches that share it.
type inodeWatch struct {
	mask  uint32 // the requested events
	paths []*pathWatch
}

// fileEvent passes an event of inotify to the pathWatches that it is for.
func (s *Supervisor) fileEvent(ev inotify.Event) {
	if ev.IsOverflow() {
		s.checkAll()
		return
	}
	s.noteActivity(ev.Watch)
	shared := s.inodes[ev.Watch]
	if shared == nil {
		return
	}
	if ev.Mask&unix.IN_IGNORED != 0 { // the inode was deleted, and the kernel has removed its watch
		delete(s.inodes, ev.Watch)
	}
	for _, w := range slices.Clone(shared.paths) {
		if ev.Mask&w.mask != 0 && s.paths[w.number] == w { // an earlier onEvent may have ended this watch
			w.onEvent(ev)
		}
	}
}

// watchPath calls onEvent on the event loop for each event of mask at path. It returns a number for
// unwatchPath. Path has to be one of the daemon's own: any other may be in a file system that does
// not answer. Rewatch is called when this watch has ended because another one of the same inode
// has.
func (s *Supervisor) watchPath(
	path string, mask uint32, onEvent func(inotify.Event), rewatch func(),
) (int32, error) {
	if s.Files == nil {
		return 0, errNoWatcher
	}
	watch, err := s.Files.Add(path, mask|unix.IN_MASK_ADD)
	if err != nil {
		return 0, err
	}
	return s.shareWatch(watch, mask, onEvent, rewatch), nil
}

// shareWatch is watchPath for an inode that inotify watches already, with mask among the requested
// events.
func (s *Supervisor) shareWatch(watch int32, mask uint32, onEvent func(inotify.Event), rewatch func()) int32 {
	s.lastWatch++
	w := &pathWatch{s.lastWatch, watch, mask & unix.IN_ALL_EVENTS, onEvent, rewatch}
	s.paths[w.number] = w
	shared := s.inodes[watch]
	if shared == nil {
		shared = &inodeWatch{}
		s.inodes[watch] = shared
	}
	shared.mask |= w.mask
	shared.paths = append(shared.paths, w)
	return w.number
}

// unwatchPath ends what watchPath or shareWatch began, and sets *number to 0. Events that no
// pathWatch needs any more are not requested any longer: they would wake the daemon. inotify
// accepts a smaller mask only with a path, which may lead to another inode by now. Therefore the
// inotify watch is removed, and the other pathWatches that share it watch their paths again.
func (s *Supervisor) unwatchPath(number *int32) {
	w := s.paths[*number]
	*number = 0
	if w == nil {
		return
	}
	delete(s.paths, w.number)
	shared := s.inodes[w.watch]
	if shared == nil {
		return
	}
	shared.paths = slices.DeleteFunc(shared.paths, func(other *pathWatch) bool { return other == w })
	var needed uint32
	for _, other := range shared.paths {
		needed |= other.mask
	}
	if needed != 0 && needed == shared.mask {
		return
	}
	delete(s.inodes, w.watch)
	s.Files.Remove(w.watch)
	s.noteActivity(w.watch)
	for _, other := range shared.paths {
		if s.paths[other.number] == other { // an earlier rewatch may have ended this watch
			other.rewatch()
		}
	}
}

// noteActivity records, for the probes of workspaces that are in progress, that an inotify watch
// has reported an event or was removed. A probe may have added that watch before the loop knew of
// it, and then has missed the event: it must be repeated.
func (s *Supervisor) noteActivity(watch int32) {
	if s.probes > 0 {
		s.activity++
		s.lastActivity[watch] = s.activity
	}
}

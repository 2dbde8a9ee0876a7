package supervisor

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/inotify"
)

// pathWatch is what somebody wants to be told of a path. inotify has one watch for each inode, which those who want to be told of it share.
type pathWatch struct {
	number int32 // ours, never 0
	inode  int32 // inotify's
	mask   uint32
	f      func(inotify.Event)
	anew   func() // has it watched again: it is told of nothing any more
}

// inodeWatch is inotify's watch of an inode, for all that share it.
type inodeWatch struct {
	mask  uint32 // the events that it asks for
	paths []*pathWatch
}

// fileEvent is told by inotify.
func (s *Supervisor) fileEvent(ev inotify.Event) {
	if ev.IsOverflow() {
		s.lookAgain()
		return
	}
	s.stir(ev.Watch)
	told := s.inodes[ev.Watch]
	if told == nil {
		return
	}
	if ev.Mask&unix.IN_IGNORED != 0 { // the inode is gone, and the kernel's watch with it
		delete(s.inodes, ev.Watch)
	}
	for _, w := range slices.Clone(told.paths) {
		if ev.Mask&w.mask != 0 && s.paths[w.number] == w { // one of them may have ended another
			w.f(ev)
		}
	}
}

// watchPath has f called on the loop for each event of mask at path, and returns the number to end that with. It is for paths of the daemon's own: any other
// may be in a file system that does not answer. Anew is called when somebody else's end of watching has ended this, too.
func (s *Supervisor) watchPath(path string, mask uint32, f func(inotify.Event), anew func()) (int32, error) {
	if s.Files == nil {
		return 0, errNoWatcher
	}
	inode, err := s.Files.Add(path, mask|unix.IN_MASK_ADD)
	if err != nil {
		return 0, err
	}
	return s.share(inode, mask, f, anew), nil
}

// share takes part in inotify's watch of an inode, which asks for these events already. See watchPath.
func (s *Supervisor) share(inode int32, mask uint32, f func(inotify.Event), anew func()) int32 {
	s.watches++
	w := &pathWatch{s.watches, inode, mask & unix.IN_ALL_EVENTS, f, anew}
	s.paths[w.number] = w
	shared := s.inodes[inode]
	if shared == nil {
		shared = &inodeWatch{}
		s.inodes[inode] = shared
	}
	shared.mask |= w.mask
	shared.paths = append(shared.paths, w)
	return w.number
}

// unwatchPath ends what watchPath and share have begun. No more events are asked for than somebody still wants: the others would wake us all the same.
// inotify takes a smaller mask by a path alone, and a path may lead elsewhere by now: so the watch is ended, and those who have shared it watch anew.
func (s *Supervisor) unwatchPath(number *int32) {
	w := s.paths[*number]
	*number = 0
	if w == nil {
		return
	}
	delete(s.paths, w.number)
	shared := s.inodes[w.inode]
	if shared == nil {
		return
	}
	shared.paths = slices.DeleteFunc(shared.paths, func(other *pathWatch) bool { return other == w })
	var want uint32
	for _, other := range shared.paths {
		want |= other.mask
	}
	if want != 0 && want == shared.mask {
		return
	}
	delete(s.inodes, w.inode)
	s.Files.Remove(w.inode)
	s.stir(w.inode)
	for _, other := range shared.paths {
		if s.paths[other.number] == other { // one of them may have ended another
			other.anew()
		}
	}
}

// stir notes, for the looks that are under way, that a watch has told something or was ended: what they have asked of it they may have asked too early.
func (s *Supervisor) stir(inode int32) {
	if s.looks > 0 {
		s.stirs++
		s.stirred[inode] = s.stirs
	}
}

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
	path   string
	mask   uint32
	f      func(inotify.Event)
}

// inodeWatch is inotify's watch of an inode, for all that share it.
type inodeWatch struct {
	mask  uint32 // the events that it asks for
	paths []*pathWatch
}

// fileEvent is told by inotify.
func (s *Supervisor) fileEvent(ev inotify.Event) {
	if ev.Overflow() {
		s.lookAgain()
		return
	}
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

// watchPath has f called on the loop for each event of mask at path, and returns the number to end that with.
func (s *Supervisor) watchPath(path string, mask uint32, f func(inotify.Event)) (int32, error) {
	if s.Files == nil {
		return 0, errNoWatcher
	}
	number, err := s.Files.Add(path, mask|unix.IN_MASK_ADD)
	if err != nil {
		return 0, err
	}
	s.watches++
	w := &pathWatch{s.watches, number, path, mask, f}
	s.paths[w.number] = w
	inode := s.inodes[number]
	if inode == nil {
		inode = &inodeWatch{}
		s.inodes[number] = inode
	}
	inode.mask |= mask & unix.IN_ALL_EVENTS
	inode.paths = append(inode.paths, w)
	return w.number, nil
}

func (s *Supervisor) unwatchPath(number *int32) {
	w := s.paths[*number]
	*number = 0
	if w == nil {
		return
	}
	delete(s.paths, w.number)
	inode := s.inodes[w.inode]
	if inode == nil {
		return
	}
	inode.paths = slices.DeleteFunc(inode.paths, func(other *pathWatch) bool { return other == w })
	if len(inode.paths) == 0 {
		delete(s.inodes, w.inode)
		s.Files.Remove(w.inode)
		return
	}
	s.narrow(w.inode, inode)
}

// narrow asks for no more events of an inode than somebody still wants: the others would wake us all the same. inotify takes a new mask by a path alone,
// and a path may lead elsewhere by now, of which we are about to be told: then what was asked for there is as it was.
func (s *Supervisor) narrow(number int32, inode *inodeWatch) {
	var want uint32
	for _, w := range inode.paths {
		want |= w.mask & unix.IN_ALL_EVENTS
	}
	if want == inode.mask {
		return
	}
	for _, w := range inode.paths {
		flags := w.mask &^ unix.IN_ALL_EVENTS
		found, err := s.Files.Add(w.path, want|flags)
		if err != nil {
			continue
		}
		if found == number {
			inode.mask = want
			return
		}
		if other := s.inodes[found]; other != nil {
			_, _ = s.Files.Add(w.path, other.mask|flags)
		} else {
			s.Files.Remove(found)
		}
	}
}

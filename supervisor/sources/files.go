// Package sources waits for events on behalf of the event loop: changes of files (Files), and
// pidfds and sockets that are ready (Descriptors). Each event is passed to the function that the
// loop has registered for it.
//
// Only the event loop uses the types of this package, except where a comment states otherwise.
package sources

import (
	"errors"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/inotify"
)

// Inotify reports changes of files: an inotify.Watcher. Any goroutine may call Add. Run calls f on
// the goroutine that called it, until Close.
type Inotify interface {
	Add(path string, mask uint32) (int32, error)
	Remove(watch int32)
	Run(f func(inotify.Event))
	Close() error
}

// ErrNoInotify is the error for a watch that cannot be added because there is no inotify instance.
var ErrNoInotify = errors.New("no files can be watched")

// Files are the watched files: paths that a Notifier watches, and inodes that are watched for
// chosen events, because others write to their files all the time. Several watches of an inode
// share one inotify watch.
type Files struct {
	notifier Notifier                        // nil if there is none
	paths    map[string]func(fsnotify.Event) // called with the events of a watched path

	inotify Inotify // nil if there is none
	watches map[int32]*watch
	inodes  map[int32]*inodeWatch // by inotify's number
	last    int32                 // the last watch.number
}

// watch is the interest of one part of the supervisor in events at a path. inotify has one watch
// for each inode, which all watches of that inode share.
type watch struct {
	number  int32 // identifies this watch, never 0
	inode   int32 // inotify's number of its watch
	mask    uint32
	onEvent func(inotify.Event)
	rewatch func() // called when the inotify watch was removed: watches the path again
}

// inodeWatch is inotify's watch of an inode, with the watches that share it.
type inodeWatch struct {
	mask   uint32 // the requested events
	shared []*watch
}

// NewFiles returns Files without watches. Nothing can be watched until SetWatchers is called.
func NewFiles() *Files {
	return &Files{
		paths:   map[string]func(fsnotify.Event){},
		watches: map[int32]*watch{}, inodes: map[int32]*inodeWatch{},
	}
}

// SetWatchers sets what watches files, if there was nothing before.
func (f *Files) SetWatchers(in Inotify, n Notifier) { f.inotify, f.notifier = in, n }

// Inotify returns the inotify instance, nil if there is none.
func (f *Files) Inotify() Inotify { return f.inotify }

// Run passes the events of the watched files to post, as functions for the event loop. If events
// were lost, lost is such a function. It returns after Close.
func (f *Files) Run(post func(func()), lost func()) {
	go f.notifier.Run(
		func(ev fsnotify.Event) { post(func() { f.handlePath(ev) }) },
		func() { post(lost) },
	)
	f.inotify.Run(func(ev inotify.Event) {
		post(func() {
			if f.Handle(ev) {
				lost()
			}
		})
	})
}

// Close ends all watches, and Run. It does nothing if there is nothing that watches files.
func (f *Files) Close() {
	if f.inotify != nil {
		_ = f.notifier.Close()
		_ = f.inotify.Close()
	}
}

// WatchPath has onEvent called for each event of what is at path, and of the entries of a directory
// there. Path has to be one of the daemon's own, and be watched only once: see UnwatchPath. Errors:
// ErrNoInotify, those of Notifier.Add.
func (f *Files) WatchPath(path string, onEvent func(fsnotify.Event)) error {
	if f.notifier == nil {
		return ErrNoInotify
	}
	if err := f.notifier.Add(path); err != nil {
		return err
	}
	f.paths[path] = onEvent
	return nil
}

// UnwatchPath ends what WatchPath began, and sets *path to "". It does nothing if *path is "".
func (f *Files) UnwatchPath(path *string) {
	if *path != "" {
		delete(f.paths, *path)
		_ = f.notifier.Remove(*path) // the kernel has ended the watch if nothing is there any more
		*path = ""
	}
}

// handlePath passes an event to the watch of its path, or of the directory that contains it.
func (f *Files) handlePath(ev fsnotify.Event) {
	onEvent := f.paths[ev.Name]
	if onEvent == nil {
		onEvent = f.paths[filepath.Dir(ev.Name)]
	}
	if onEvent != nil {
		onEvent(ev)
	}
}

// Watch has Handle call onEvent for each event of mask at path. It returns a number for Unwatch.
// Path has to be one of the daemon's own: any other may be in a file system that does not answer.
// Rewatch is called when this watch has ended because another one of the same inode has. Errors:
// ErrNoInotify, those of Inotify.Add.
func (f *Files) Watch(path string, mask uint32, onEvent func(inotify.Event), rewatch func()) (int32, error) {
	if f.inotify == nil {
		return 0, ErrNoInotify
	}
	inode, err := f.inotify.Add(path, mask|unix.IN_MASK_ADD)
	if err != nil {
		return 0, err
	}
	return f.Share(inode, mask, onEvent, rewatch), nil
}

// Share is Watch for an inode that inotify watches already, under the number inode, with mask among
// the requested events: another goroutine has added the watch. Events before Share are not handled.
func (f *Files) Share(inode int32, mask uint32, onEvent func(inotify.Event), rewatch func()) int32 {
	f.last++
	w := &watch{f.last, inode, mask & unix.IN_ALL_EVENTS, onEvent, rewatch}
	f.watches[w.number] = w
	i := f.inodes[inode]
	if i == nil {
		i = &inodeWatch{}
		f.inodes[inode] = i
	}
	i.mask |= w.mask
	i.shared = append(i.shared, w)
	return w.number
}

// Unwatch ends what Watch or Share began, and sets *number to 0. It does nothing if *number is 0.
// Events that no watch needs any more are not requested any longer: they would wake the daemon.
// inotify accepts a smaller mask only with a path, which may lead to another inode by now.
// Therefore the inotify watch is removed, and the other watches that share it watch their paths
// again.
func (f *Files) Unwatch(number *int32) {
	w := f.watches[*number]
	*number = 0
	if w == nil {
		return
	}
	delete(f.watches, w.number)
	inode := f.inodes[w.inode]
	if inode == nil {
		return
	}
	inode.shared = slices.DeleteFunc(inode.shared, func(other *watch) bool { return other == w })
	var needed uint32
	for _, other := range inode.shared {
		needed |= other.mask
	}
	if needed != 0 && needed == inode.mask {
		return
	}
	delete(f.inodes, w.inode)
	f.inotify.Remove(w.inode)
	for _, other := range inode.shared {
		if f.watches[other.number] == other { // an earlier rewatch may have ended this watch
			other.rewatch()
		}
	}
}

// Handle passes an event of inotify to the watches that it is for. It reports whether the event
// means that events were lost: the caller then has to examine everything that is watched.
func (f *Files) Handle(ev inotify.Event) (lost bool) {
	if ev.IsOverflow() {
		return true
	}
	inode := f.inodes[ev.Watch]
	if inode == nil {
		return false
	}
	if ev.Mask&unix.IN_IGNORED != 0 { // the inode was deleted, and the kernel has removed its watch
		delete(f.inodes, ev.Watch)
	}
	for _, w := range slices.Clone(inode.shared) {
		if ev.Mask&w.mask != 0 && f.watches[w.number] == w { // an earlier onEvent may have ended this watch
			w.onEvent(ev)
		}
	}
	return false
}

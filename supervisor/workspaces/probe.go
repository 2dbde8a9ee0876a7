package workspaces

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/sources"
)

// probe examines a workspace once, and holds the result. It runs on its own goroutine: an access to
// a file system that does not answer blocks, without a time limit.
type probe struct {
	inotify sources.Inotify // nil if there is none
	Key
	present bool

	// inode is the directory: before the probe the one that was last found there, zero if there was
	// none.
	inode session.Inode
	// err is set if a component of the path cannot be watched because there is no inotify instance, or
	// because no more watches are left.
	err error

	watches        []addedWatch // of the components of the path
	earlierWatches []addedWatch // the same of attempts that had to be repeated
}

// addedWatch is a watch of an inode that was added to inotify.
type addedWatch struct {
	inode int32 // inotify's number of the watch
	mask  uint32
	name  string // of the only entry of the directory whose events matter, "" if all do
}

// run probes the workspace. It watches each component of the path before it examines the workspace:
// otherwise it would miss a change between the two.
func (p *probe) run() {
	// The path may change during an attempt. If it still does in the last one, events that cause
	// another probe are on their way.
	const attempts = 8
	for range attempts {
		p.earlierWatches, p.watches = append(p.earlierWatches, p.watches...), nil
		if p.watchComponents() == isDir(p.Path) {
			break
		}
	}
	p.present = p.isInPlace()
}

// isInPlace reports whether the workspace is where it was when the run began: its path resolves to
// the same path, or to the same directory under another path, for example after the user has moved
// the directory and replaced it by a link.
func (p *probe) isInPlace() bool {
	inode := InodeOf(p.Path)
	if inode == (session.Inode{}) {
		return false
	}
	if p.Resolved != "" && p.inode != inode && Resolve(p.Path) != p.Resolved {
		return false
	}
	p.inode = inode
	return true
}

// maxLinks is how many symbolic links one path may contain, as in the kernel (path_resolution(7)).
// Steps that have to be repeated are counted as links.
const maxLinks = 40

// watchComponents watches every directory and symbolic link in the workspace's path, as far as they
// exist, and reports whether all do.
//
// A watch of the directory or link itself reports that it was moved or removed, and causes no other
// wake-ups. The removal of a directory that a process uses is not reported by a watch of itself,
// and so the parent of the last directory is watched as well; the other directories cannot be
// removed while they are not empty. If a component is missing, the directory in which it has to
// appear is watched.
//
// Watches that fail are ignored, for example because a directory is not readable: then the change
// that they are for is not noticed.
func (p *probe) watchComponents() bool {
	const moved = unix.IN_MOVE_SELF | unix.IN_DELETE_SELF | unix.IN_DONT_FOLLOW
	dir, names, links := "/", pathComponents(p.Path), 0
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if name == ".." {
			dir = filepath.Dir(dir)
			continue
		}
		at := filepath.Join(dir, name)
		_ = p.watch(at, moved, "")
		info, err := os.Lstat(at)
		switch {
		case err == nil && info.IsDir():
			if len(names) == 0 {
				_ = p.watch(dir, unix.IN_DELETE|unix.IN_ONLYDIR, name)
			}
			dir = at
		case err == nil && info.Mode()&os.ModeSymlink != 0 && links < maxLinks:
			links++
			target, err := os.Readlink(at)
			if err == nil && filepath.IsAbs(target) {
				dir = "/"
			}
			names = append(pathComponents(target), names...)
		default:
			p.watchForAppearance(dir, name)
			if !isDir(dir) && links < maxLinks { // dir was removed before it was watched: begin again
				links++
				dir, names = "/", pathComponents(p.Path)
				continue
			}
			now, nowErr := os.Lstat(at)
			unchanged := (nowErr == nil) == (err == nil) && (nowErr != nil || now.Mode().Type() == info.Mode().Type())
			if unchanged || links >= maxLinks {
				return false
			}
			links++
			names = append([]string{name}, names...) // it appeared before dir was watched: continue with it
		}
	}
	return true
}

// watchForAppearance watches the directory dir, in which the missing component has to appear under
// this name, or its nearest parent that can be watched. The removal of dir, or of a parent, is
// reported by the watch of the directory above it: as long as an agent is in a directory that was
// removed, the watches of that directory and its parents themselves report nothing.
func (p *probe) watchForAppearance(dir, name string) {
	const appear = unix.IN_CREATE | unix.IN_MOVED_TO |
		unix.IN_MOVE_SELF | unix.IN_DELETE_SELF | unix.IN_ATTRIB | unix.IN_ONLYDIR
	for up := dir; up != "/"; up = filepath.Dir(up) {
		_ = p.watch(filepath.Dir(up), unix.IN_DELETE|unix.IN_ONLYDIR, filepath.Base(up))
	}
	for p.watch(dir, appear, name) != nil && dir != "/" {
		dir, name = filepath.Dir(dir), filepath.Base(dir)
	}
}

// watch adds a watch; see addedWatch for name.
func (p *probe) watch(path string, mask uint32, name string) error {
	if p.inotify == nil {
		p.err = sources.ErrNoInotify
		return p.err
	}
	inode, err := p.inotify.Add(path, mask|unix.IN_MASK_ADD)
	if err == nil {
		p.watches = append(p.watches, addedWatch{inode, mask, name})
	}
	if errors.Is(err, unix.ENOSPC) { // the user has no more watches; other errors are about the path
		p.err = err
	}
	return err
}

// pathComponents splits a path into its components, without empty ones and ".".
func pathComponents(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "" || name == "." })
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

package supervisor

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/supervisor/session"
)

// sight is a look at a workspace, and what it has seen. It is made off the loop: a file system that does not answer holds whoever looks at it, for ever.
type sight struct {
	files Files
	where
	there bool
	inode session.Inode // of the directory: before the look as it was when it was last at its place, zero if it never was
	err   error         // why not all of the way there is watched, for lack of watches; nil if it is

	watched []watched // on everything on the way there
	past    []watched // the same of looks that had to be repeated
}

// watched is a watch of an inode that was asked of inotify.
type watched struct {
	inode int32
	mask  uint32
	name  string // of the only entry of the directory that matters, "" if everything does
}

// see looks. Watches come first: what changes between a look and a watch would be missed.
func (v *sight) see() {
	const attempts = 8 // it changes while we look; then there are events under way that have us look again
	for range attempts {
		v.past, v.watched = append(v.past, v.watched...), nil
		if v.watchWay() == isDir(v.path) {
			break
		}
	}
	v.there = v.atPlace()
}

// atPlace tells whether the workspace is at its place: its path leads where it led, or to that same directory by another way, as after a move for
// which its user has left a link behind.
func (v *sight) atPlace() bool {
	inode := inodeOf(v.path)
	if inode == (session.Inode{}) {
		return false
	}
	if v.target != "" && v.inode != inode && resolve(v.path) != v.target {
		return false
	}
	v.inode = inode
	return true
}

const maxLinks = 40 // symbolic links on one way, as the kernel has it (path_resolution(7)), and looks that have to be repeated

// watchWay watches every directory and link on the way to the workspace, as far as there is one, and tells whether it got there. That a directory or
// link is moved or removed is told by a watch on itself, which costs nothing until then. A directory that somebody is in tells nothing of its
// removal, and so for the last one the directory above is asked, too; what is above cannot be removed before what is in it. Where the way
// ends early, the directory there tells what appears in it. A watch that fails leaves one thing untold: a directory above may be one that we cannot read.
func (v *sight) watchWay() bool {
	const moved = unix.IN_MOVE_SELF | unix.IN_DELETE_SELF | unix.IN_DONT_FOLLOW
	dir, names, links := "/", elements(v.path), 0
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		if name == ".." {
			dir = filepath.Dir(dir)
			continue
		}
		at := filepath.Join(dir, name)
		_ = v.watch(at, moved, "")
		info, err := os.Lstat(at)
		switch {
		case err == nil && info.IsDir():
			if len(names) == 0 {
				_ = v.watch(dir, unix.IN_DELETE|unix.IN_ONLYDIR, name)
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
			v.watchForReturn(dir, name)
			if !isDir(dir) && links < maxLinks { // it went before its end was watched: from the beginning
				links++
				dir, names = "/", elements(v.path)
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

// watchForReturn watches the directory in which the rest of the way has to appear under this name, or the nearest one above it that can be watched. That the
// directory itself is removed, or one above it, is told by the one above: an agent that is in a directory that was removed keeps all of these alive.
func (v *sight) watchForReturn(dir, name string) {
	const appear = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVE_SELF | unix.IN_DELETE_SELF | unix.IN_ATTRIB | unix.IN_ONLYDIR
	for up := dir; up != "/"; up = filepath.Dir(up) {
		_ = v.watch(filepath.Dir(up), unix.IN_DELETE|unix.IN_ONLYDIR, filepath.Base(up))
	}
	for v.watch(dir, appear, name) != nil && dir != "/" {
		dir, name = filepath.Dir(dir), filepath.Base(dir)
	}
}

func (v *sight) watch(path string, mask uint32, name string) error {
	if v.files == nil {
		v.err = errNoWatcher
		return v.err
	}
	inode, err := v.files.Add(path, mask|unix.IN_MASK_ADD)
	if err == nil {
		v.watched = append(v.watched, watched{inode, mask, name})
	}
	if errors.Is(err, unix.ENOSPC) { // any other says something of the path
		v.err = err
	}
	return err
}

// elements splits a path into what is to be walked through.
func elements(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(name string) bool { return name == "" || name == "." })
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

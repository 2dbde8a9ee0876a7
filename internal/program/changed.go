package program

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// maxLinks is the number of symbolic links that the kernel follows in one path: path_resolution(7).
const maxLinks = 40

// LastChanged returns when the file of a program was last replaced or written: the latest change of
// the file itself and of the symbolic links on the way to it. An installer that keeps several
// versions replaces only such a link. A relative path is relative to dir. The time is that of the
// last status change (st_ctim): an installed file often has the time of modification that its
// archive records.
func LastChanged(path, dir string) (time.Time, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	var latest time.Time
	links, done, rest := 0, "/", strings.Split(path, "/")
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..": // what precedes it contains no link any more
			done = filepath.Dir(done)
			continue
		}
		next := filepath.Join(done, name)
		info, err := os.Lstat(next)
		if err != nil {
			return time.Time{}, err
		}
		isLink := info.Mode()&fs.ModeSymlink != 0
		if st, ok := info.Sys().(*syscall.Stat_t); ok && (isLink || len(rest) == 0) {
			if changed := time.Unix(st.Ctim.Unix()); changed.After(latest) {
				latest = changed
			}
		}
		if !isLink {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return time.Time{}, &fs.PathError{Op: "resolve", Path: path, Err: syscall.ELOOP}
		}
		target, err := os.Readlink(next)
		if err != nil {
			return time.Time{}, err
		}
		if filepath.IsAbs(target) {
			done = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return latest, nil
}

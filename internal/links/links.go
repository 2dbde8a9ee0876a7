// Package links follows the symbolic links in a path step by step, for those who have to know each
// of them.
package links

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks is the number of symbolic links that the kernel follows in one path: path_resolution(7).
const maxLinks = 40

// Follow returns an absolute path without symbolic links. It calls visit for each file on the way,
// before it follows the file if that is a link: path has no other link than at its end, and isLast
// reports whether nothing of the whole path remains. It stops if visit returns an error.
func Follow(path string, visit func(path string, info fs.FileInfo, isLast bool) error) (string, error) {
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
		if err == nil {
			err = visit(next, info, len(rest) == 0)
		}
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", &fs.PathError{Op: "resolve", Path: path, Err: syscall.ELOOP}
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		if filepath.IsAbs(target) {
			done = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done, nil
}

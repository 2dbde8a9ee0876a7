package sandbox

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxLinks is the number of symbolic links that the kernel follows in one path: path_resolution(7).
const maxLinks = 40

// resolve returns the path without symbolic links. It returns an error if one of the links is in a
// directory that the agent of an earlier run could change: such an agent could have made anything
// writable by it.
func resolve(path string, changeable []string) (string, error) {
	done, rest := "/", strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
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
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		for _, dir := range changeable {
			if contains(dir, done) {
				return "", fmt.Errorf("%q cannot be writable in a sandbox: %q is a symbolic link in a directory "+
					"that the agent can change", path, next)
			}
		}
		target, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks {
			return "", fmt.Errorf("cannot resolve %q: too many symbolic links", path)
		}
		if filepath.IsAbs(target) {
			done = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done, nil
}

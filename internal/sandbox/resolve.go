package sandbox

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/corrald/corral/internal/links"
)

// resolve returns the path without symbolic links. It returns an error if one of the links is in a
// directory that the agent of an earlier run could change: such an agent could have made anything
// writable by it.
func resolve(path string, changeable []string) (string, error) {
	return links.Follow(path, func(file string, info fs.FileInfo, _ bool) error {
		for _, dir := range changeable {
			if info.Mode()&fs.ModeSymlink != 0 && contains(dir, filepath.Dir(file)) {
				return fmt.Errorf("%q cannot be writable in a sandbox: %q is a symbolic link in a directory "+
					"that the agent can change", path, file)
			}
		}
		return nil
	})
}

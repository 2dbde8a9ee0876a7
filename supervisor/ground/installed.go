package ground

import (
	"context"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Installed tells whether a program is there to be executed. Where that cannot be told it says yes: the start will.
func (g *Ground) Installed(ctx context.Context, program, path string) bool {
	if strings.Contains(program, "/") {
		return !filepath.IsAbs(program) || executable(program)
	}
	if path == "" {
		manager, err := g.Units.Environment(ctx)
		if err != nil {
			return true
		}
		for _, entry := range manager {
			if value, is := strings.CutPrefix(entry, "PATH="); is {
				path = value
			}
		}
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) || executable(filepath.Join(dir, program)) { // what is below the workspace is the shim's to find
			return true
		}
	}
	return path == ""
}

func executable(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && unix.Access(path, unix.X_OK) == nil
}

package ground

import (
	"context"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/supervisor"
)

// Installed tells whether a program is there to be executed. Where that cannot be told it says yes: the start will.
func (g *Ground) Installed(ctx context.Context, program string, env supervisor.Environment) bool {
	if strings.Contains(program, "/") {
		return !filepath.IsAbs(program) || executable(program)
	}
	s, err := g.sources(ctx, env)
	if err != nil {
		return true
	}
	path, _ := environment.Value(environment.Entries(s.Compose()), "PATH")
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

package effects

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/program"
	"github.com/corrald/corral/supervisor"
)

// FindProgram implements supervisor.Programs.
func (x *Executor) FindProgram(ctx context.Context, name, dir string, env supervisor.Environment) error {
	isUnknown := func(path string) bool { return dir == "" && !filepath.IsAbs(path) }
	if strings.Contains(name, "/") {
		if isUnknown(name) {
			return nil
		}
		_, err := program.Find(name, nil, dir)
		return err
	}
	s, err := x.sources(ctx, env)
	if err != nil {
		return nil //nolint:nilerr // the start reports it
	}
	entries := environment.Entries(s.Compose())
	path := program.SearchPath(entries)
	if slices.ContainsFunc(strings.Split(path, ":"), isUnknown) {
		return nil
	}
	_, err = program.Find(name, entries, dir)
	if e := (*program.Error)(nil); errors.As(err, &e) && e.Code == program.NotFound {
		return fmt.Errorf("%w in PATH=%s", err, path)
	}
	return err
}

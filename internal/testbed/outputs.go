package testbed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// outputFlags are the test flags that name output files. The value of gocoverdir is a directory.
var outputFlags = []string{
	"coverprofile", "gocoverdir", "cpuprofile", "memprofile", "blockprofile", "mutexprofile", "trace", "testlogfile",
}

// redirectOutputs changes the flags so that a test binary writes into dir, because its user may not
// write to the given paths. It returns the new arguments and a function that moves the output to
// those paths afterwards.
func redirectOutputs(args []string, dir string) (redirected []string, collect func() error) {
	outputDir := ""
	places := make(map[string]string) // by temporary path: the path of the flag
	redirected = slices.Clone(args)
	for i, arg := range args {
		flag, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		name, isTestFlag := strings.CutPrefix(flag, "test.")
		if !isTestFlag || value == "" {
			continue
		}
		if name == "outputdir" {
			outputDir = value
		}
		if slices.Contains(outputFlags, name) {
			temporary := filepath.Join(dir, name)
			places[temporary] = value
			redirected[i] = "-test." + name + "=" + temporary
		}
	}
	return redirected, func() error {
		for temporary, place := range places {
			if !filepath.IsAbs(place) {
				place = filepath.Join(outputDir, place)
			}
			if err := collectOutput(temporary, place); err != nil {
				return fmt.Errorf("cannot keep what the tests wrote: %w", err)
			}
		}
		return nil
	}
}

// collectOutput copies a file, or the files of a directory. A missing file is not an error: tests
// that were killed write none.
func collectOutput(from, to string) error {
	entries, err := os.ReadDir(from)
	if err == nil {
		for _, entry := range entries {
			if err := collectOutput(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())); err != nil {
				return err
			}
		}
		return nil
	}
	content, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o644)
}

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

// outputFlags are the flags of a test binary that name what it writes. The one that ends in dir
// names a directory.
var outputFlags = []string{"coverprofile", "gocoverdir", "cpuprofile", "memprofile", "blockprofile", "mutexprofile", "trace", "testlogfile"}

// redirectOutputs makes a test binary write into dir, since its user may not write where the flags
// say, and returns a function that afterwards puts what was written in place.
func redirectOutputs(args []string, dir string) (redirected []string, collect func() error) {
	outputDir := ""
	places := make(map[string]string) // what is written: where it belongs
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

// collectOutput copies a file, or the files of a directory. One that was not written, as by tests
// that were killed, is nothing to complain about.
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

package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Dirs gives the directories that configuration is looked for in, the first one wins: the user's
// own, the administrator's, those of the distribution and of what was installed beside it.
func Dirs() []string {
	dirs := []string{"/etc/corral", "/usr/local/lib/corral", "/usr/lib/corral"}
	if own := UserDir(); own != "" {
		return slices.Insert(dirs, 0, own)
	}
	return dirs
}

// InstalledDirs gives Dirs, and the one that comes with the installation whose programs are in bin:
// what was installed together stays together, also below a prefix of its own.
func InstalledDirs(bin string) []string {
	dirs, own := Dirs(), filepath.Join(filepath.Dir(bin), "lib/corral")
	if slices.Contains(dirs, own) {
		return dirs
	}
	return append(dirs, own)
}

// FindShim returns the first corral-shim that can be executed, of $CORRAL_SHIM alone, or that of
// the installation whose programs are in bin, or one beside them, as they are built.
func FindShim(bin string) (string, error) {
	candidates := []string{filepath.Join(filepath.Dir(bin), "libexec/corral/corral-shim"), filepath.Join(bin, "corral-shim")}
	if path := os.Getenv("CORRAL_SHIM"); path != "" {
		candidates = []string{path}
	}
	for _, path := range candidates {
		if unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("corral-shim is not installed: looked for %q", candidates)
}

// FindShare returns the directory of what comes with Corral for its agents (%P), such as their
// hooks: $CORRAL_SHARE, or the first of these that has any: that of the installation whose programs
// are in bin, those of the XDG Base Directory Specification, that of a source tree whose programs
// were built into bin.
func FindShare(bin string) string {
	if dir := os.Getenv("CORRAL_SHARE"); filepath.IsAbs(dir) {
		return dir
	}
	own := filepath.Join(filepath.Dir(bin), "share/corral")
	candidates := []string{own}
	for _, dir := range append([]string{os.Getenv("XDG_DATA_HOME")}, filepath.SplitList(os.Getenv("XDG_DATA_DIRS"))...) {
		if filepath.IsAbs(dir) {
			candidates = append(candidates, filepath.Join(dir, "corral"))
		}
	}
	for _, dir := range append(candidates, filepath.Join(filepath.Dir(bin), "packaging")) {
		if info, err := os.Stat(filepath.Join(dir, "hooks")); err == nil && info.IsDir() {
			return dir
		}
	}
	return own
}

// FindClient returns the corralctl of the installation whose programs are in bin. Errors: that it
// is not there.
func FindClient(bin string) (string, error) {
	path := filepath.Join(bin, "corralctl")
	if unix.Access(path, unix.X_OK) != nil {
		return "", fmt.Errorf("corralctl is not installed: looked for %q", path)
	}
	return path, nil
}

// UserDir gives the directory of the user's own configuration, which comes first in Dirs; "" if
// there is no home for it.
func UserDir() string {
	if home := userDir(); home != "" {
		return filepath.Join(home, "corral")
	}
	return ""
}

// userDir is $XDG_CONFIG_HOME, or ~/.config. A relative path counts as none, by the XDG Base
// Directory Specification.
func userDir() string {
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	if home := os.Getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".config")
	}
	return ""
}

// found is a file that was found in one of the directories.
type found struct {
	name   string // without directory
	path   string
	masked bool // empty, or a link to /dev/null: it is there to hide those of its name in the directories after it
}

// findFile looks a file up in the directories, in order. There being none is no error: ok is false.
func findFile(dirs []string, name string) (file found, ok bool, err error) {
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		masked, err := isMask(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return found{filepath.Base(name), path, masked}, err == nil, err
	}
	return found{}, false, nil
}

// findFiles lists the files that end in suffix in sub below each of the directories, sorted by
// name, each name once: from the first directory that has it, as systemd does with units and with
// drop-ins. Hidden files are passed over.
func findFiles(dirs []string, sub, suffix string) ([]found, []Warning) {
	var files []found
	var warnings []Warning
	seen := map[string]bool{}
	for _, dir := range dirs {
		names, err := readNames(filepath.Join(dir, sub))
		if err != nil {
			warnings = append(warnings, Warning{File: filepath.Join(dir, sub), Text: err.Error()})
		}
		for _, name := range names {
			if seen[name] || !strings.HasSuffix(name, suffix) || strings.HasPrefix(name, ".") {
				continue
			}
			seen[name] = true // a file that cannot be read still hides those after it
			path := filepath.Join(dir, sub, name)
			masked, err := isMask(path)
			if err != nil {
				warnings = append(warnings, Warning{File: path, Text: err.Error()})
				continue
			}
			files = append(files, found{name, path, masked})
		}
	}
	slices.SortFunc(files, func(a, b found) int { return cmp.Compare(a.name, b.name) })
	return files, warnings
}

func readNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list configuration: %w", err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// isMask tells whether the file hides others instead of saying something itself. Errors: there is
// none, or it is no file, such as a pipe that a read would hang on.
func isMask(path string) (bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, fmt.Errorf("cannot read configuration: %w", err)
	}
	switch {
	case info.Mode()&fs.ModeCharDevice != 0:
		return true, nil
	case !info.Mode().IsRegular():
		return false, fmt.Errorf("cannot read configuration: %s is not a regular file", path)
	}
	return info.Size() == 0, nil
}

// dropIns reads the drop-ins of a file: NAME.d/*.conf in all directories, in the order of their
// names. It also gives their paths.
func dropIns(dirs []string, name string, sections ...string) ([]assignment, []string, []Warning) {
	files, warnings := findFiles(dirs, name+".d", ".conf")
	var assignments []assignment
	var paths []string
	for _, f := range files {
		if f.masked {
			continue
		}
		more, warned, err := readUnitFile(f.path, sections...)
		if err != nil {
			warnings = append(warnings, Warning{File: f.path, Text: err.Error()})
			continue
		}
		assignments, warnings, paths = append(assignments, more...), append(warnings, warned...), append(paths, f.path)
	}
	return assignments, paths, warnings
}

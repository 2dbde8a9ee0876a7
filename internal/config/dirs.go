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

// Dirs returns the configuration directories in order of precedence: the user's own, the
// administrator's, that of locally installed software and that of the distribution.
func Dirs() []string {
	dirs := []string{"/etc/corral", "/usr/local/lib/corral", "/usr/lib/corral"}
	if own := UserDir(); own != "" {
		return slices.Insert(dirs, 0, own)
	}
	return dirs
}

// InstalledDirs returns Dirs, followed by the directory of the installation whose programs are in
// bin: an installation below a prefix of its own uses the files that it came with.
func InstalledDirs(bin string) []string {
	dirs, own := Dirs(), filepath.Join(filepath.Dir(bin), "lib/corral")
	if slices.Contains(dirs, own) {
		return dirs
	}
	return append(dirs, own)
}

// FindShim returns the path of an executable corral-shim: $CORRAL_SHIM alone if it is set, else
// that of the installation whose programs are in bin, else one in bin itself, as in a build
// directory.
func FindShim(bin string) (string, error) {
	candidates := []string{
		filepath.Join(filepath.Dir(bin), "libexec/corral/corral-shim"), filepath.Join(bin, "corral-shim"),
	}
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

// FindShare returns the directory of the files that Corral ships for its agents (%P), such as
// hooks: $CORRAL_SHARE, else the first of these directories that has hooks: that of the
// installation whose programs are in bin, those of the XDG Base Directory Specification, that of a
// source tree whose programs were built into bin.
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

// FindClient returns the path of the corralctl in bin. It returns an error if there is none.
func FindClient(bin string) (string, error) {
	path := filepath.Join(bin, "corralctl")
	if unix.Access(path, unix.X_OK) != nil {
		return "", fmt.Errorf("corralctl is not installed: looked for %q", path)
	}
	return path, nil
}

// UserDir returns the user's own configuration directory, which comes first in Dirs: "corral" in
// ConfigHome, or "" if the user has no home directory.
func UserDir() string {
	if dir := ConfigHome(); dir != "" {
		return filepath.Join(dir, "corral")
	}
	return ""
}

// ConfigHome returns $XDG_CONFIG_HOME or ~/.config (%E), or "" if the user has no home directory.
// As the XDG Base Directory Specification demands, a relative path is ignored.
func ConfigHome() string {
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Clean(dir)
	}
	if home := os.Getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".config")
	}
	return ""
}

// configFile is a file in one of the configuration directories.
type configFile struct {
	name   string // without directory
	path   string
	masked bool // empty or a link to /dev/null: it hides files of its name in later directories
}

// findFile searches the directories in order for a file. If there is none, ok is false and err is
// nil.
func findFile(dirs []string, name string) (file configFile, ok bool, err error) {
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		masked, err := isMask(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return configFile{filepath.Base(name), path, masked}, err == nil, err
	}
	return configFile{}, false, nil
}

// findFiles lists the files in the subdirectory sub of all directories whose names end in suffix,
// sorted by name. If several directories have a file of the same name, the first one wins, as with
// systemd's units and drop-ins. Hidden files are ignored.
func findFiles(dirs []string, sub, suffix string) ([]configFile, []Warning) {
	var files []configFile
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
			seen[name] = true // an unreadable file still hides those in later directories
			path := filepath.Join(dir, sub, name)
			masked, err := isMask(path)
			if err != nil {
				warnings = append(warnings, Warning{File: path, Text: err.Error()})
				continue
			}
			files = append(files, configFile{name, path, masked})
		}
	}
	slices.SortFunc(files, func(a, b configFile) int { return cmp.Compare(a.name, b.name) })
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

// isMask reports whether the file only hides files of its name in later directories. It returns an
// error if the file does not exist or is not a regular file, such as a pipe, which would block a
// read.
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
// names. It returns their assignments and their paths.
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

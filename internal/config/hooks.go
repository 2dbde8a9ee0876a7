package config

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// hooksDir is the subdirectory of the configuration directories that contains hooks.
const hooksDir = "hooks.d"

// Hook is a program that corrald runs for each notification.
type Hook struct {
	Name string // of its file
	Path string
}

// backupSuffixes are the file name suffixes that editors and package managers give to backup
// copies.
var backupSuffixes = []string{
	"~", ".bak", ".old", ".orig", ".new", ".swp", ".rpmnew", ".rpmsave", ".rpmorig", ".dpkg-dist", ".dpkg-old",
	".dpkg-new", ".dpkg-tmp",
}

// Hooks lists the programs in hooks.d of the directories, sorted by name. If several directories
// have a hook of the same name, the first one wins; a file that is empty or a link to /dev/null
// masks the later ones. Files that are not executable are ignored and reported as warnings.
func Hooks(dirs []string) ([]Hook, []Warning) {
	files, warnings := findFiles(dirs, hooksDir, "")
	var hooks []Hook
	for _, f := range files {
		switch {
		case f.masked || slices.ContainsFunc(backupSuffixes, func(end string) bool { return strings.HasSuffix(f.name, end) }):
		case unix.Access(f.path, unix.X_OK) != nil:
			warnings = append(warnings, Warning{File: f.path, Text: "a hook must be executable (chmod +x), ignored"})
		default:
			hooks = append(hooks, Hook{f.name, f.path})
		}
	}
	return hooks, warnings
}

package config

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// hooksDir is where hooks are, in each of the directories of configuration.
const hooksDir = "hooks.d"

// Hook is a program that is run when there is something to tell.
type Hook struct {
	Name string // of its file
	Path string
}

// leftBehind are the ends of names that editors and package managers give to what they keep of a
// file.
var leftBehind = []string{"~", ".bak", ".old", ".orig", ".new", ".swp", ".rpmnew", ".rpmsave", ".rpmorig", ".dpkg-dist", ".dpkg-old", ".dpkg-new", ".dpkg-tmp"}

// Hooks lists the programs in hooks.d of the directories, sorted by name: each name counts from the
// first directory that has it, and one that is empty or a link to /dev/null hides it in those that
// come later. What cannot be executed is told, and passed over.
func Hooks(dirs []string) ([]Hook, []Warning) {
	files, warnings := findFiles(dirs, hooksDir, "")
	var hooks []Hook
	for _, f := range files {
		switch {
		case f.masked || slices.ContainsFunc(leftBehind, func(end string) bool { return strings.HasSuffix(f.name, end) }):
		case unix.Access(f.path, unix.X_OK) != nil:
			warnings = append(warnings, Warning{File: f.path, Text: "a hook must be executable (chmod +x), ignored"})
		default:
			hooks = append(hooks, Hook{f.name, f.path})
		}
	}
	return hooks, warnings
}

package main

import (
	"os"
	"path/filepath"

	"github.com/corrald/corral/internal/config"
)

// configDirs are the directories of configuration, the first one wins: those that the corrald
// beside this program looks in.
func configDirs() []string {
	self, err := ownPath()
	if err != nil {
		return config.Dirs()
	}
	return config.InstalledDirs(filepath.Dir(self))
}

// ownPath is where this program is.
func ownPath() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(self)
}

package main

import (
	"os"
	"path/filepath"

	"github.com/corrald/corral/internal/config"
)

// configDirs returns the configuration directories that the corrald installed with this program
// reads, in order of precedence.
func configDirs() []string {
	self, err := ownPath()
	if err != nil {
		return config.Dirs()
	}
	return config.InstalledDirs(filepath.Dir(self))
}

// ownPath returns the path of this program.
func ownPath() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(self)
}

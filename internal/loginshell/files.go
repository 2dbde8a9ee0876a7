package loginshell

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/corrald/corral/internal/environment"
)

// system and personal are the files that shells read when they start, as patterns; below / and
// below the home directory. What those read in turn nobody knows; nvm's choice of a version is the
// one of that kind that changes PATH every now and then.
var (
	system = []string{
		"etc/profile", "etc/profile.d/*", "etc/bash.bashrc", "etc/bashrc", "etc/zsh/*", "etc/zshenv", "etc/zprofile", "etc/zshrc", "etc/zlogin",
		"etc/fish/config.fish", "etc/fish/conf.d/*", "etc/csh.cshrc", "etc/csh.login",
	}
	personal = []string{
		".profile", ".bash_profile", ".bash_login", ".bashrc", ".bash_aliases", ".zshenv", ".zprofile", ".zshrc", ".zlogin", ".kshrc", ".mkshrc", ".shrc",
		".config/zsh/.z*", ".config/fish/config.fish", ".config/fish/fish_variables", ".config/fish/conf.d/*", ".cshrc", ".tcshrc", ".login",
		".nvm/alias/default",
	}
)

// dependsOn returns what the answer of a shell depends on, as far as that can be seen without
// asking it: what it is given, and the files that it reads.
func dependsOn(given []string) (question [32]byte) {
	h := sha256.New()
	for _, entry := range slices.Sorted(slices.Values(given)) {
		fmt.Fprintf(h, "%s\x00", entry)
	}
	for _, path := range startFiles(given) {
		if info, err := os.Stat(path); err == nil {
			fmt.Fprintf(h, "%s %d %d\x00", path, info.Size(), info.ModTime().UnixNano())
		}
	}
	return [32]byte(h.Sum(nil))
}

func startFiles(given []string) []string {
	home, _ := environment.Lookup(given, "HOME")
	var patterns []string
	for _, pattern := range system {
		patterns = append(patterns, "/"+pattern)
	}
	for _, pattern := range personal {
		patterns = append(patterns, filepath.Join(escape(home), pattern))
	}
	if dir, is := environment.Lookup(given, "XDG_CONFIG_HOME"); is {
		patterns = append(patterns, escape(dir)+"/fish/*.fish", escape(dir)+"/fish/fish_variables", escape(dir)+"/fish/conf.d/*", escape(dir)+"/zsh/.z*")
	}
	if dir, is := environment.Lookup(given, "ZDOTDIR"); is {
		patterns = append(patterns, escape(dir)+"/.z*")
	}
	var files []string
	for _, pattern := range patterns {
		found, _ := filepath.Glob(pattern) // of a pattern that is wrong there are none
		files = append(files, found...)
	}
	if file, is := environment.Lookup(given, "ENV"); is {
		files = append(files, file)
	}
	return files
}

// escape makes a path a pattern that matches it alone.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

package loginshell

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/environment"
)

// systemFiles and personalFiles are glob patterns of the files that shells read when they start,
// relative to / and to the home directory. Files that these include are not known, except nvm's
// choice of a version, which changes PATH now and then.
var (
	systemFiles = []string{
		"etc/profile", "etc/profile.d/*", "etc/bash.bashrc", "etc/bashrc",
		"etc/zsh/*", "etc/zshenv", "etc/zprofile", "etc/zshrc", "etc/zlogin",
		"etc/fish/config.fish", "etc/fish/conf.d/*", "etc/csh.cshrc", "etc/csh.login",
	}
	personalFiles = []string{
		".profile", ".bash_profile", ".bash_login", ".bashrc", ".bash_aliases",
		".zshenv", ".zprofile", ".zshrc", ".zlogin", ".kshrc", ".mkshrc", ".shrc", ".config/zsh/.z*",
		".config/fish/config.fish", ".config/fish/fish_variables", ".config/fish/conf.d/*",
		".cshrc", ".tcshrc", ".login",
		".nvm/alias/default",
	}
)

// cacheKey returns a hash of everything the result of a shell depends on, as far as it can be
// determined without running the shell: the environment that the shell gets, and the files that it
// reads.
func cacheKey(given []string) [32]byte {
	h := sha256.New()
	for _, entry := range slices.Sorted(slices.Values(given)) {
		fmt.Fprintf(h, "%s\x00", entry)
	}
	for _, path := range startupFiles(given) {
		if info, err := os.Stat(path); err == nil {
			fmt.Fprintf(h, "%s %d %d\x00", path, info.Size(), info.ModTime().UnixNano())
		}
	}
	return [32]byte(h.Sum(nil))
}

func startupFiles(given []string) []string {
	home, _ := environment.Lookup(given, "HOME")
	var patterns []string
	for _, pattern := range systemFiles {
		patterns = append(patterns, "/"+pattern)
	}
	for _, pattern := range personalFiles {
		patterns = append(patterns, filepath.Join(config.QuotePattern(home), pattern))
	}
	if dir, ok := environment.Lookup(given, "XDG_CONFIG_HOME"); ok {
		dir = config.QuotePattern(dir)
		patterns = append(patterns, dir+"/fish/*.fish", dir+"/fish/fish_variables", dir+"/fish/conf.d/*", dir+"/zsh/.z*")
	}
	if dir, ok := environment.Lookup(given, "ZDOTDIR"); ok {
		patterns = append(patterns, config.QuotePattern(dir)+"/.z*")
	}
	var files []string
	for _, pattern := range patterns {
		found, _ := filepath.Glob(pattern) // an invalid pattern matches nothing
		files = append(files, found...)
	}
	if file, ok := environment.Lookup(given, "ENV"); ok {
		files = append(files, file)
	}
	return files
}

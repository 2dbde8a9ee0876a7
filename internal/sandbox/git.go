package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/corrald/corral/internal/safefile"
)

// maxPointer is the size limit of a file of git that contains one path, and maxGitConfig that of
// its configuration, in bytes.
const (
	maxPointer   = 8 << 10
	maxGitConfig = 1 << 20
)

// addRepository adds the git repository that contains the workspace, if there is one below the home
// directory: the agent can commit, but it cannot change what makes git run programs, or with which
// directory git works. A repository that has the home directory itself as its working tree is not
// writable. The agent can redirect git by a file that does not exist and that no mount can be put
// on: this is the forbidden file that addRepository returns.
func (v view) addRepository(workspace, home string) (forbidden string, err error) {
	for dir := workspace; dir != "/" && dir != home; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, ".git")
		info, err := os.Lstat(path)
		switch {
		case err == nil && info.IsDir():
			return v.addGitDirectory(path, "")
		case err == nil && info.Mode().IsRegular():
			v.set(path, readOnly)
			if common, own, ok := findWorktree(path); ok {
				return v.addGitDirectory(common, own)
			}
			return "", nil
		case err == nil: // git follows a link; what it refers to stays read-only
			return "", nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", err
		}
	}
	return "", nil
}

// findWorktree returns the git directories of a linked worktree, gitrepository-layout(5): the one
// that all worktrees share, and its own in that. It returns false if the file .git is not that of
// the worktree that the git directory belongs to: the agent can write such a file, with the path of
// any repository.
func findWorktree(file string) (common, own string, ok bool) {
	own, ok = readPointer(file, "gitdir: ")
	if !ok || filepath.Base(filepath.Dir(own)) != "worktrees" {
		return "", "", false
	}
	back, ok := readPointer(filepath.Join(own, "gitdir"), "")
	if !ok || back != file {
		return "", "", false
	}
	common, ok = readPointer(filepath.Join(own, "commondir"), "")
	return common, own, ok && common == filepath.Dir(filepath.Dir(own))
}

// readPointer returns the path in a file of git, after a prefix, without symbolic links. A relative
// path is relative to the directory of the file.
func readPointer(file, prefix string) (path string, ok bool) {
	text, err := safefile.Read(file, maxPointer)
	if err != nil {
		return "", false
	}
	path, ok = strings.CutPrefix(string(bytes.TrimRight(text, "\r\n")), prefix)
	if !ok {
		return "", false
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(file), path)
	}
	path, err = filepath.EvalSymlinks(path)
	return path, err == nil
}

// addGitDirectory adds the git directory that all worktrees of a repository share. Own is that of
// the workspace in it, "" for the main worktree.
//
// The directory is a mount point itself, so that it cannot be renamed and replaced by another.
func (v view) addGitDirectory(common, own string) (forbidden string, err error) {
	text, err := safefile.Read(filepath.Join(common, "config"), maxGitConfig)
	if errors.Is(err, fs.ErrNotExist) { // not a git directory
		return "", nil
	}
	if err != nil {
		return "", err
	}
	forbidden = filepath.Join(common, "commondir")
	if _, err := os.Lstat(forbidden); err == nil {
		return "", fmt.Errorf("%q makes git use another directory; remove it", forbidden)
	}
	v.set(common, writable)
	v.set(filepath.Join(common, "config"), readOnly)
	hooks := filepath.Join(common, "hooks")
	if err := os.Mkdir(hooks, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	protected := []string{hooks, filepath.Join(common, "modules"), filepath.Join(common, "worktrees")}
	directories := []string{common}
	if own != "" {
		v.set(own, writable)
		protected = append(protected, filepath.Join(own, "commondir"), filepath.Join(own, "gitdir"))
		directories = append(directories, own)
	}
	for _, dir := range directories {
		path := filepath.Join(dir, "config.worktree")
		if bytes.Contains(bytes.ToLower(text), []byte("worktreeconfig")) { // git reads it, if it exists
			if err := createEmpty(path); err != nil {
				return "", err
			}
		}
		protected = append(protected, path)
	}
	for _, path := range protected {
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return "", err
		case info.Mode()&fs.ModeSymlink != 0:
			return "", fmt.Errorf("%q is a symbolic link, which the agent could replace", path)
		default:
			v.set(path, readOnly)
		}
	}
	return forbidden, nil
}

// createEmpty creates a file unless it exists.
func createEmpty(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return file.Close()
}

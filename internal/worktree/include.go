package worktree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// includeFile is the name of a file in the root of a repository. It contains patterns, in the
// syntax of gitignore(5), of files that git does not track and that a new worktree gets, too.
const includeFile = ".worktreeinclude"

// findIncludes returns the worktree from which files are copied into the new worktree w: the main
// one, if it has an includeFile, otherwise "". A bare repository has no main worktree, and git does
// not record where that of a submodule is: for these it is the worktree of the request.
func (p program) findIncludes(ctx context.Context, r Request, w Worktree) (string, error) {
	from := filepath.Dir(w.Repository)
	if filepath.Base(w.Repository) != ".git" {
		var err error
		if from, err = p.runLine(ctx, r.Dir, "rev-parse", "--show-toplevel"); err != nil {
			if isNonZeroExit(err) { // the directory is in a bare repository
				err = nil
			}
			return "", err
		}
	}
	// A FIFO would block git.
	if info, err := os.Stat(filepath.Join(from, includeFile)); err != nil || !info.Mode().IsRegular() {
		return "", nil //nolint:nilerr // there is nothing to copy
	}
	return from, nil
}

// include copies the untracked files of the worktree from that match the patterns of its
// includeFile into the new worktree w. Somebody else may change both meanwhile: no link leads it
// out of either of them.
func (p program) include(ctx context.Context, from string, w Worktree) error {
	names, err := p.run(ctx, from, "ls-files", "-z", "--others", "--ignored", "--exclude-from="+includeFile)
	if err != nil {
		return err
	}
	c := copier{directories: map[string]bool{".": true}}
	if c.source, err = os.OpenRoot(from); err != nil {
		return err
	}
	defer func() { _ = c.source.Close() }()
	if c.target, err = os.OpenRoot(w.Path); err != nil {
		return err
	}
	defer func() { _ = c.target.Close() }()
	for name := range strings.SplitSeq(names, "\x00") {
		if name == "" || strings.HasSuffix(name, "/") { // another repository
			continue
		}
		if err = ctx.Err(); err == nil {
			err = c.copy(name)
		}
		if err != nil {
			return fmt.Errorf("cannot copy %q (%s): %w", name, includeFile, err)
		}
	}
	return nil
}

// copier copies files from one directory into another, with their modes. It replaces nothing.
type copier struct {
	source, target *os.Root
	directories    map[string]bool // by path: whether target has a directory there, and no link to one
}

// copy copies a regular file or a symbolic link. If target has anything else in the place of the
// file or of one of its directories, it does nothing. Nor does it if the file was removed.
func (c *copier) copy(name string) error {
	info, err := c.source.Lstat(name)
	if err == nil && info.Mode()&fs.ModeType&^fs.ModeSymlink == 0 {
		var isDirectory bool
		if isDirectory, err = c.makeDirectory(path.Dir(name)); err == nil && isDirectory {
			err = c.copyFile(name, info)
		}
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// makeDirectory creates a directory, and those above it, unless they exist. It returns false if
// target has something else in the place of one of them.
func (c *copier) makeDirectory(dir string) (is bool, err error) {
	if is, known := c.directories[dir]; known {
		return is, nil
	}
	if is, err = c.makeDirectory(path.Dir(dir)); err != nil || !is {
		return false, err
	}
	info, err := c.source.Lstat(dir)
	if err != nil {
		return false, err
	}
	if err = c.target.Mkdir(dir, info.Mode().Perm()|0o700); errors.Is(err, fs.ErrExist) {
		info, err = c.target.Lstat(dir)
	}
	if err != nil {
		return false, err
	}
	c.directories[dir] = info.IsDir()
	return info.IsDir(), nil
}

func (c *copier) copyFile(name string, info fs.FileInfo) error {
	if info.Mode()&fs.ModeSymlink != 0 {
		link, err := c.source.Readlink(name)
		if err != nil {
			return err
		}
		return c.target.Symlink(link, name)
	}
	in, err := c.source.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // it may have become a FIFO
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	if info, err = in.Stat(); err != nil || !info.Mode().IsRegular() {
		return err
	}
	out, err := c.target.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	// A clone shares the blocks of the file until one of the two is changed; few file systems have it.
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) != nil {
		_, err = io.Copy(out, in)
	}
	if err == nil {
		err = out.Chmod(info.Mode().Perm())
	}
	return errors.Join(err, out.Close())
}

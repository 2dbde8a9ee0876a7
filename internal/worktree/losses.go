package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Losses is the work that exists only in a worktree, or that belongs only to it. Removing a
// worktree loses neither commits nor stashes of its repository; these are counted because whoever
// removes a worktree assumes that the work in it is finished.
type Losses struct {
	Changes   int // files with uncommitted changes, staged or not
	Deleted   int // missing files whose removal is not committed
	Untracked int // untracked files; a directory of these counts as one
	// Ignored counts ignored files in the same way. They are not a loss, since they can be generated
	// again.
	Ignored    int
	Commits    int      // that are on no other branch, tag or remote
	Stashes    int      // created on its branch
	Unfinished string   // rebase, merge, cherry-pick, revert or bisect; "" for none
	Submodules []string // paths of those that contain any such work
}

// Any reports whether there is anything to lose.
func (l Losses) Any() bool {
	return l.Changes+l.Deleted+l.Untracked+l.Commits+l.Stashes > 0 || l.Unfinished != "" || len(l.Submodules) > 0
}

// String lists the losses: "2 uncommitted changes, 1 untracked file (and 3 ignored)".
func (l Losses) String() string {
	var all []string
	add := func(n int, one, many string) {
		switch {
		case n == 1:
			all = append(all, "1 "+one)
		case n > 1:
			all = append(all, fmt.Sprintf("%d %s", n, many))
		}
	}
	add(l.Changes+l.Deleted, "uncommitted change", "uncommitted changes")
	add(l.Untracked, "untracked file", "untracked files")
	add(l.Commits, "commit that is neither merged nor pushed", "commits that are neither merged nor pushed")
	add(l.Stashes, "stash", "stashes")
	if l.Unfinished != "" {
		all = append(all, "an unfinished "+l.Unfinished)
	}
	if n := len(l.Submodules); n > 0 {
		all = append(all, fmt.Sprintf("unsaved work in submodule %q", l.Submodules[0]))
		if n > 1 {
			all[len(all)-1] += fmt.Sprintf(" and %d more", n-1)
		}
	}
	text := strings.Join(all, ", ")
	if l.Ignored > 0 {
		text += fmt.Sprintf(" (and %d ignored)", l.Ignored)
	}
	return text
}

// LossError is the error of a removal that would lose work.
type LossError struct {
	Worktree Worktree
	Losses   Losses
}

func (e *LossError) Error() string {
	return fmt.Sprintf("worktree %q has %s", e.Worktree.Path, e.Losses)
}

// losses determines what would be lost with a worktree and its submodules. If the worktree's
// directory is missing, it examines only the branch and the stashes. git runs no program of the
// repository meanwhile.
func (p program) losses(ctx context.Context, w Worktree) (Losses, error) {
	var l Losses
	var err error
	dir := w.Path
	if !exists(w.Path) {
		dir = w.Repository
	} else if err := p.examineWorktree(ctx, w, &l); err != nil {
		return l, err
	}
	if l.Commits, err = p.countUnmerged(ctx, dir, w); err != nil {
		return l, err
	}
	stashes, err := p.stashes(ctx, w.Repository)
	for _, line := range stashes {
		if strings.HasPrefix(line, "WIP on "+w.Branch+": ") || strings.HasPrefix(line, "On "+w.Branch+": ") {
			l.Stashes++
		}
	}
	return l, err
}

// stashes returns the messages of the repository's stashes. A message begins with the branch on
// which the stash was created.
func (p program) stashes(ctx context.Context, dir string) ([]string, error) {
	if exists, err := p.refExists(ctx, dir, "refs/stash"); err != nil || !exists {
		return nil, err
	}
	// "git stash list" works only in a worktree.
	out, err := p.run(ctx, dir, "log", "--walk-reflogs", "--format=%gs", "refs/stash", "--")
	return slices.Collect(strings.Lines(out)), err
}

// withCeiling returns p for commands in a directory that has to be the top of a worktree itself.
func (p program) withCeiling(dir string) program {
	p.ceiling = filepath.Dir(dir)
	return p
}

// gitDirs returns the git directory of the worktree at dir, and that of its repository.
func (p program) gitDirs(ctx context.Context, dir string) (own, common string, err error) {
	out, err := p.runLine(ctx, dir, "rev-parse", "--absolute-git-dir", "--path-format=absolute", "--git-common-dir")
	own, common, ok := strings.Cut(out, "\n")
	if err == nil && (!ok || strings.Contains(common, "\n")) {
		err = fmt.Errorf("cannot find the git directory of %q: its path contains a line break", dir)
	}
	return own, common, err
}

// examineWorktree examines the files of the worktree.
func (p program) examineWorktree(ctx context.Context, w Worktree, l *Losses) error {
	p = p.withCeiling(w.Path)
	own, repository, err := p.gitDirs(ctx, w.Path)
	if err != nil {
		return err
	}
	if repository != w.Repository {
		return fmt.Errorf("%q is no longer a worktree of %q", w.Path, w.Repository)
	}
	return p.examine(ctx, tree{dir: w.Path, gitDir: own}, l, l)
}

// tree is a worktree or a submodule in it.
type tree struct {
	dir    string
	gitDir string
	name   string // path of a submodule in the worktree
}

// examine counts uncommitted work in a tree and in its submodules.
func (p program) examine(ctx context.Context, at tree, l, all *Losses) error {
	links, err := p.tracked(ctx, at.dir, at.gitDir, l)
	if err != nil {
		return err
	}
	if err := p.untracked(ctx, at.dir, l); err != nil {
		return err
	}
	l.Unfinished = unfinishedOperation(at.gitDir)
	for _, link := range links {
		sub := tree{dir: filepath.Join(at.dir, link.path), name: filepath.Join(at.name, link.path)}
		if err := p.examineSubmodule(ctx, at, sub, link, l, all); err != nil {
			return err
		}
	}
	return nil
}

// untracked counts untracked and ignored files.
func (p program) untracked(ctx context.Context, dir string, l *Losses) error {
	others := []string{"ls-files", "--others", "--exclude-standard", "--directory", "--no-empty-directory", "-z"}
	out, err := p.run(ctx, dir, others...)
	if err != nil {
		return err
	}
	l.Untracked = strings.Count(out, "\x00")
	out, err = p.run(ctx, dir, append(others, "--ignored")...)
	l.Ignored = strings.Count(out, "\x00")
	return err
}

// unfinishedOperation returns the name of an unfinished operation, whose state git keeps in the
// worktree's git directory.
func unfinishedOperation(gitDir string) string {
	for _, sign := range []struct{ file, what string }{
		{"rebase-merge", "rebase"}, {"rebase-apply", "rebase"}, {"MERGE_HEAD", "merge"}, {"CHERRY_PICK_HEAD", "cherry-pick"},
		{"REVERT_HEAD", "revert"}, {"BISECT_LOG", "bisect"},
	} {
		if exists(filepath.Join(gitDir, sign.file)) {
			return sign.what
		}
	}
	return ""
}

// countUnmerged counts the commits of the worktree and of its branch that are nowhere else.
func (p program) countUnmerged(ctx context.Context, dir string, w Worktree) (int, error) {
	args := []string{"rev-list", "--count"}
	except := []string{"--exclude=" + w.Branch}
	if dir == w.Path {
		args = append(args, "HEAD")
		if now, err := p.runLine(ctx, dir, "symbolic-ref", "--quiet", "--short", "HEAD"); err == nil && now != w.Branch {
			except = append(except, "--exclude="+now)
		} else if err != nil && !isNonZeroExit(err) {
			return 0, err
		}
	}
	branch, err := p.refExists(ctx, dir, "refs/heads/"+w.Branch)
	if err != nil {
		return 0, err
	}
	if branch {
		args = append(args, "refs/heads/"+w.Branch)
	}
	if len(args) == 2 { // neither the worktree nor the branch exists
		return 0, nil
	}
	args = append(append(append(args, "--not"), except...), "--branches", "--tags", "--remotes")
	return p.runCount(ctx, dir, args...)
}

// examineSubmodule examines a submodule of the tree super, whose index entry is link. A submodule
// that git has checked out has a repository of its own below the git directory of super, which is
// removed with the worktree. Anything else in its place counts as lost and is not examined: the
// agent may have created it, with its configuration.
func (p program) examineSubmodule(ctx context.Context, super, sub tree, link indexEntry, l, all *Losses) error {
	info, err := os.Lstat(sub.dir)
	var entries []fs.DirEntry
	if err == nil && info.IsDir() {
		entries, err = os.ReadDir(sub.dir)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if !link.sparse && !link.staged {
			l.Deleted++
		}
		return nil
	case err != nil:
		return err
	case info.IsDir() && len(entries) == 0:
		return nil // the submodule is not checked out
	}
	p = p.withCeiling(sub.dir)
	var common string
	if info.IsDir() {
		if sub.gitDir, common, err = p.gitDirs(ctx, sub.dir); err != nil && !isNonZeroExit(err) {
			return err
		}
	}
	modules := filepath.Join(super.gitDir, "modules") + "/"
	if !strings.HasPrefix(sub.gitDir, modules) || !strings.HasPrefix(common, modules) {
		all.Submodules = append(all.Submodules, sub.name)
		return nil
	}
	var own Losses
	if err := p.examine(ctx, sub, &own, all); err != nil {
		return err
	}
	head, err := p.runLine(ctx, sub.dir, "rev-parse", "--verify", "HEAD")
	if err != nil {
		return err
	}
	if head != link.blob && !link.staged {
		l.Changes++
	}
	own.Commits, err = p.runCount(ctx, sub.dir,
		"rev-list", "--count", "HEAD", "--branches", "--tags", "--not", "--remotes")
	if err != nil {
		return err
	}
	stashes, err := p.stashes(ctx, sub.dir)
	own.Stashes = len(stashes)
	all.Ignored += own.Ignored
	if own.Any() {
		all.Submodules = append(all.Submodules, sub.name)
	}
	return err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

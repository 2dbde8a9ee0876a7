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

// Losses is what is only there, or has to do with nothing but this worktree. The branch and its
// commits stay when a worktree is removed, and so do stashes: they are counted because whoever
// removes it believes to be done with it.
type Losses struct {
	Changes    int      // files that are changed and not committed, staged or not
	Deleted    int      // files that are missing, and whose removal is not committed
	Untracked  int      // files that git does not know, a directory of such counts once
	Ignored    int      // what git was told to ignore, counted in the same way. It goes without saying: it can be made again
	Commits    int      // that no other branch, no tag and no remote has
	Stashes    int      // made on its branch
	Unfinished string   // rebase, merge, cherry-pick, revert or bisect, "" for none
	Submodules []string // the paths of those that have any of these
}

// Any tells whether there is anything to lose.
func (l Losses) Any() bool {
	return l.Changes+l.Deleted+l.Untracked+l.Commits+l.Stashes > 0 || l.Unfinished != "" || len(l.Submodules) > 0
}

// String names them: "2 uncommitted changes, 1 untracked file (and 3 ignored)".
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

// LossError is why a worktree is not removed.
type LossError struct {
	Worktree Worktree
	Losses   Losses
}

func (e *LossError) Error() string {
	return fmt.Sprintf("worktree %q has %s", e.Worktree.Path, e.Losses)
}

// losses finds out what would be lost, in submodules too. A worktree that is not at its place has
// nothing but its branch and its stashes. git executes nothing of the repository's meanwhile.
func (p program) losses(ctx context.Context, w Worktree) (Losses, error) {
	var l Losses
	var err error
	dir := w.Path
	if !exists(w.Path) {
		dir = w.Repository
	} else if err := p.examineWorktree(ctx, w, &l); err != nil {
		return l, err
	}
	if l.Commits, err = p.onlyThere(ctx, dir, w); err != nil {
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

// stashes returns what the repository's stashes say of themselves, of which the first words are the
// branch that they were made on.
func (p program) stashes(ctx context.Context, dir string) ([]string, error) {
	if there, err := p.has(ctx, dir, "refs/stash"); err != nil || !there {
		return nil, err
	}
	out, err := p.run(ctx, dir, "log", "--walk-reflogs", "--format=%gs", "refs/stash", "--") // git stash list wants a worktree
	return slices.Collect(strings.Lines(out)), err
}

// below is p for commands in a directory that has to be the top of a worktree itself.
func (p program) below(dir string) program {
	p.ceiling = filepath.Dir(dir)
	return p
}

// gitDirs returns the git directory of the worktree at dir, and that of its repository.
func (p program) gitDirs(ctx context.Context, dir string) (own, common string, err error) {
	out, err := p.line(ctx, dir, "rev-parse", "--absolute-git-dir", "--path-format=absolute", "--git-common-dir")
	own, common, two := strings.Cut(out, "\n")
	if err == nil && (!two || strings.Contains(common, "\n")) {
		err = fmt.Errorf("cannot find the git directory of %q: its path contains a line break", dir)
	}
	return own, common, err
}

// examineWorktree looks into the worktree's files.
func (p program) examineWorktree(ctx context.Context, w Worktree, l *Losses) error {
	p = p.below(w.Path)
	own, repository, err := p.gitDirs(ctx, w.Path)
	if err != nil {
		return err
	}
	if repository != w.Repository {
		return fmt.Errorf("%q is no longer a worktree of %q", w.Path, w.Repository)
	}
	return p.examine(ctx, tree{dir: w.Path, gitDir: own}, l, l)
}

// tree is a worktree, or a submodule in it.
type tree struct {
	dir    string
	gitDir string
	name   string // of a submodule: its path in the worktree
}

// examine counts what is not committed in a tree, and in the submodules below it.
func (p program) examine(ctx context.Context, at tree, l, all *Losses) error {
	links, err := p.tracked(ctx, at.dir, at.gitDir, l)
	if err != nil {
		return err
	}
	if err := p.untracked(ctx, at.dir, l); err != nil {
		return err
	}
	l.Unfinished = unfinished(at.gitDir)
	for _, link := range links {
		sub := tree{dir: filepath.Join(at.dir, link.path), name: filepath.Join(at.name, link.path)}
		if err := p.examineSubmodule(ctx, at, sub, link, l, all); err != nil {
			return err
		}
	}
	return nil
}

// untracked counts the files that git does not know, and those that it ignores.
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

// unfinished names what was begun in a worktree and is not done: git keeps it with the worktree.
func unfinished(gitDir string) string {
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

// onlyThere counts the commits of the worktree, and of its branch, that are nowhere else.
func (p program) onlyThere(ctx context.Context, dir string, w Worktree) (int, error) {
	args := []string{"rev-list", "--count"}
	except := []string{"--exclude=" + w.Branch}
	if dir == w.Path {
		args = append(args, "HEAD")
		if now, err := p.line(ctx, dir, "symbolic-ref", "--quiet", "--short", "HEAD"); err == nil && now != w.Branch {
			except = append(except, "--exclude="+now)
		} else if err != nil && !refused(err) {
			return 0, err
		}
	}
	branch, err := p.has(ctx, dir, "refs/heads/"+w.Branch)
	if err != nil {
		return 0, err
	}
	if branch {
		args = append(args, "refs/heads/"+w.Branch)
	}
	if len(args) == 2 { // neither worktree nor branch
		return 0, nil
	}
	args = append(append(append(args, "--not"), except...), "--branches", "--tags", "--remotes")
	return p.count(ctx, dir, args...)
}

// examineSubmodule looks into a submodule of the tree super, whose entry in the index is link. A
// submodule that git has checked out has a repository of its own below the git directory of super,
// which goes with the worktree. Anything else in its place counts as lost without a look into it:
// the agent may have made it, and its configuration.
func (p program) examineSubmodule(ctx context.Context, super, sub tree, link indexed, l, all *Losses) error {
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
		return nil // it was never checked out
	}
	p = p.below(sub.dir)
	var common string
	if info.IsDir() {
		if sub.gitDir, common, err = p.gitDirs(ctx, sub.dir); err != nil && !refused(err) {
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
	head, err := p.line(ctx, sub.dir, "rev-parse", "--verify", "HEAD")
	if err != nil {
		return err
	}
	if head != link.blob && !link.staged {
		l.Changes++
	}
	if own.Commits, err = p.count(ctx, sub.dir, "rev-list", "--count", "HEAD", "--branches", "--tags", "--not", "--remotes"); err != nil {
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

// remove removes the worktree, and its branch if that was made for it and is merged or pushed. What
// would be lost keeps it (the error is a *LossError) unless force is set: then every commit stays
// all the same, on the branch it is on, or on one made for it. A worktree that was locked stays. No
// hook of the repository's is run: git needs none of them to remove files.
func (p program) remove(ctx context.Context, w Worktree, force bool) error {
	commit, err := p.branchCommit(ctx, w)
	if err != nil {
		return err
	}
	merged := true
	if force {
		merged = p.isMerged(ctx, w)
	} else {
		l, err := p.losses(ctx, w)
		if err != nil {
			return err
		}
		if l.Any() {
			return &LossError{w, l}
		}
	}
	if err := p.keepHead(ctx, w); err != nil {
		return err
	}
	// Without --force git would look at the files itself, and run the clean filters of the repository
	// for that; and it removes no worktree with submodules. losses has looked into all of it. A
	// worktree that is locked takes --force twice.
	if _, err := p.run(ctx, w.Repository, "worktree", "remove", "--force", "--", w.Path); err != nil && (!refused(err) || p.listed(ctx, w)) {
		return err
	}
	if w.Made && merged {
		p.dropBranch(ctx, w, commit)
	}
	return nil
}

// branchCommit returns the commit that the worktree's branch is at, "" if there is no such branch.
func (p program) branchCommit(ctx context.Context, w Worktree) (string, error) {
	if branch, _ := p.has(ctx, w.Repository, "refs/heads/"+w.Branch); !branch {
		return "", nil
	}
	return p.line(ctx, w.Repository, "rev-parse", "--verify", "--quiet", "refs/heads/"+w.Branch)
}

// isMerged returns whether another branch, a tag or a remote has every commit of the worktree's
// branch; false where git cannot say.
func (p program) isMerged(ctx context.Context, w Worktree) bool {
	n, err := p.onlyThere(ctx, w.Repository, w)
	return err == nil && n == 0
}

// listed tells whether there is a worktree at the place, or git believes so, or cannot tell.
// Somebody may have removed it by hand, and told git.
func (p program) listed(ctx context.Context, w Worktree) bool {
	if exists(w.Path) {
		return true
	}
	out, err := p.run(ctx, w.Repository, "worktree", "list", "--porcelain")
	return err != nil || slices.Contains(strings.Split(out, "\n"), "worktree "+w.Path)
}

// keepHead makes a branch of a HEAD that no branch, tag or remote has: nobody would find it again.
func (p program) keepHead(ctx context.Context, w Worktree) error {
	if !exists(w.Path) {
		return nil
	}
	n, err := p.count(ctx, w.Path, "rev-list", "--count", "HEAD", "--not", "--branches", "--tags", "--remotes")
	if err != nil || n == 0 {
		return err
	}
	name := w.Branch + "-head"
	for i, taken := 2, true; taken && i < most; i++ {
		if taken, err = p.has(ctx, w.Path, "refs/heads/"+name); err != nil {
			return err
		}
		if taken {
			name = fmt.Sprintf("%s-head-%d", w.Branch, i)
		}
	}
	_, err = p.run(ctx, w.Path, "branch", "--quiet", "--no-track", "--", name, "HEAD")
	return err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

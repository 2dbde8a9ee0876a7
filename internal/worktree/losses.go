package worktree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Losses is what is only there, or has to do with nothing but this worktree. The branch and its commits stay when a worktree is removed, and so do stashes: they are
// counted because whoever removes it believes to be done with it.
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
		all = append(all, "a "+l.Unfinished+" that is not finished")
	}
	if n := len(l.Submodules); n > 0 {
		all = append(all, fmt.Sprintf("something in submodule %q", l.Submodules[0]))
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

// Losses finds out what would be lost, in its submodules too. A worktree that is not at its place has nothing but its branch and its stashes.
func (g Git) Losses(ctx context.Context, w Worktree) (Losses, error) {
	var l Losses
	var err error
	dir := w.Path
	if !exists(w.Path) {
		dir = w.Repository
	} else if err := g.examine(ctx, w, &l); err != nil {
		return l, err
	}
	if l.Commits, err = g.onlyThere(ctx, dir, w); err != nil {
		return l, err
	}
	stashes, err := g.stashes(ctx, w.Repository)
	for _, line := range stashes {
		if strings.HasPrefix(line, "WIP on "+w.Branch+": ") || strings.HasPrefix(line, "On "+w.Branch+": ") {
			l.Stashes++
		}
	}
	return l, err
}

// stashes returns what the repository's stashes say of themselves, of which the first words are the branch that they were made on.
func (g Git) stashes(ctx context.Context, dir string) ([]string, error) {
	if there, err := g.has(ctx, dir, "refs/stash"); err != nil || !there {
		return nil, err
	}
	out, err := g.run(ctx, dir, "log", "--walk-reflogs", "--format=%gs", "refs/stash", "--") // git stash list wants a worktree
	return slices.Collect(strings.Lines(out)), err
}

// examine looks into the worktree's files.
func (g Git) examine(ctx context.Context, w Worktree, l *Losses) error {
	repository, err := g.line(ctx, w.Path, "rev-parse", "--path-format=absolute", "--git-common-dir")
	if err != nil {
		return err
	}
	if repository != w.Repository {
		return fmt.Errorf("%q is no worktree of %q any more", w.Path, w.Repository)
	}
	if err := g.status(ctx, w.Path, l); err != nil {
		return err
	}
	if err := g.hidden(ctx, w.Path, l); err != nil {
		return err
	}
	if l.Unfinished, err = g.unfinished(ctx, w.Path); err != nil {
		return err
	}
	return g.submodules(ctx, w.Path, "", l)
}

// status counts what is not committed.
func (g Git) status(ctx context.Context, dir string, l *Losses) error {
	// What is changed within submodules is looked for there.
	out, err := g.run(ctx, dir, "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=normal", "--ignored=traditional", "--ignore-submodules=dirty")
	if err != nil {
		return err
	}
	countStatus(out, l)
	return nil
}

// countStatus reads the short format of git-status(1), version 1, with NULs and without renames.
func countStatus(out string, l *Losses) {
	for entry := range strings.SplitSeq(out, "\x00") {
		if len(entry) < 3 {
			continue
		}
		switch entry[:2] {
		case "??":
			l.Untracked++
		case "!!":
			l.Ignored++
		case " D", "D ":
			l.Deleted++
		default:
			l.Changes++
		}
	}
}

// unfinished names what was begun in a worktree and is not done: git keeps it with the worktree.
func (g Git) unfinished(ctx context.Context, dir string) (string, error) {
	own, err := g.line(ctx, dir, "rev-parse", "--absolute-git-dir")
	if err != nil {
		return "", err
	}
	for _, sign := range []struct{ file, what string }{
		{"rebase-merge", "rebase"}, {"rebase-apply", "rebase"}, {"MERGE_HEAD", "merge"}, {"CHERRY_PICK_HEAD", "cherry-pick"},
		{"REVERT_HEAD", "revert"}, {"BISECT_LOG", "bisect"},
	} {
		if exists(filepath.Join(own, sign.file)) {
			return sign.what, nil
		}
	}
	return "", nil
}

// onlyThere counts the commits of the worktree, and of its branch, that are nowhere else.
func (g Git) onlyThere(ctx context.Context, dir string, w Worktree) (int, error) {
	args := []string{"rev-list", "--count"}
	except := []string{"--exclude=" + w.Branch}
	if dir == w.Path {
		args = append(args, "HEAD")
		if now, err := g.line(ctx, dir, "symbolic-ref", "--quiet", "--short", "HEAD"); err == nil && now != w.Branch {
			except = append(except, "--exclude="+now)
		} else if err != nil && !refused(err) {
			return 0, err
		}
	}
	branch, err := g.has(ctx, dir, "refs/heads/"+w.Branch)
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
	return g.count(ctx, dir, args...)
}

// submodules looks into the submodules that were checked out. Each has its repository to itself, which goes with the worktree.
func (g Git) submodules(ctx context.Context, dir, prefix string, all *Losses) error {
	out, err := g.run(ctx, dir, "ls-files", "--stage", "-z")
	if err != nil {
		return err
	}
	for _, path := range gitlinks(out) {
		module := filepath.Join(dir, path)
		if !exists(filepath.Join(module, ".git")) {
			continue // it was never checked out
		}
		var l Losses
		if err := g.submodule(ctx, module, &l); err != nil {
			return err
		}
		all.Ignored += l.Ignored
		if l.Ignored = 0; l.Any() {
			all.Submodules = append(all.Submodules, filepath.Join(prefix, path))
		}
		if err := g.submodules(ctx, module, filepath.Join(prefix, path), all); err != nil {
			return err
		}
	}
	return nil
}

// gitlinks returns the paths of submodules in what git ls-files --stage -z prints. git has none that lead out of a repository.
func gitlinks(out string) []string {
	var paths []string
	for entry := range strings.SplitSeq(out, "\x00") {
		about, path, ok := strings.Cut(entry, "\t")
		if ok && strings.HasPrefix(about, "160000 ") && filepath.IsLocal(path) {
			paths = append(paths, path)
		}
	}
	return slices.Compact(paths) // in a conflict, each side has it
}

func (g Git) submodule(ctx context.Context, dir string, l *Losses) error {
	err := g.status(ctx, dir, l)
	if err == nil {
		err = g.hidden(ctx, dir, l)
	}
	if err == nil {
		l.Unfinished, err = g.unfinished(ctx, dir)
	}
	if err == nil {
		l.Commits, err = g.count(ctx, dir, "rev-list", "--count", "HEAD", "--branches", "--tags", "--not", "--remotes")
	}
	if err == nil {
		var stashes []string
		stashes, err = g.stashes(ctx, dir)
		l.Stashes = len(stashes)
	}
	return err
}

// Remove removes the worktree, and its branch if that was made for it and is merged or pushed. What would be lost keeps it (the error is a *LossError)
// unless force is set: then every commit stays all the same, on the branch it is on, or on one made for it. A worktree that was locked stays.
func (g Git) Remove(ctx context.Context, w Worktree, force bool) error {
	var commit string
	if !force {
		var err error
		if branch, _ := g.has(ctx, w.Repository, "refs/heads/"+w.Branch); branch {
			if commit, err = g.line(ctx, w.Repository, "rev-parse", "--verify", "--quiet", "refs/heads/"+w.Branch); err != nil {
				return err
			}
		}
		l, err := g.Losses(ctx, w)
		if err != nil {
			return err
		}
		if l.Any() {
			return &LossError{w, l}
		}
	}
	if err := g.keepHead(ctx, w); err != nil {
		return err
	}
	args := []string{"worktree", "remove"}
	if force || exists(filepath.Join(w.Path, ".gitmodules")) {
		args = append(args, "--force") // git refuses any that has submodules without it; we have looked into them
	}
	if _, err := g.run(ctx, w.Repository, append(args, "--", w.Path)...); err != nil && (!refused(err) || g.listed(ctx, w)) {
		return err
	}
	if !force && w.Made {
		g.dropBranch(ctx, w, commit)
	}
	return nil
}

// listed tells whether there is a worktree at the place, or git believes so, or cannot tell. Somebody may have removed it by hand, and told git.
func (g Git) listed(ctx context.Context, w Worktree) bool {
	if exists(w.Path) {
		return true
	}
	out, err := g.run(ctx, w.Repository, "worktree", "list", "--porcelain")
	return err != nil || slices.Contains(strings.Split(out, "\n"), "worktree "+w.Path)
}

// keepHead makes a branch of a HEAD that no branch, tag or remote has: nobody would find it again.
func (g Git) keepHead(ctx context.Context, w Worktree) error {
	if !exists(w.Path) {
		return nil
	}
	n, err := g.count(ctx, w.Path, "rev-list", "--count", "HEAD", "--not", "--branches", "--tags", "--remotes")
	if err != nil || n == 0 {
		return err
	}
	name := w.Branch + "-head"
	for i, taken := 2, true; taken && i < most; i++ {
		if taken, err = g.has(ctx, w.Path, "refs/heads/"+name); err != nil {
			return err
		}
		if taken {
			name = fmt.Sprintf("%s-head-%d", w.Branch, i)
		}
	}
	_, err = g.run(ctx, w.Path, "branch", "--quiet", "--no-track", "--", name, "HEAD")
	return err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

package worktree

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// remove removes the worktree, and its branch if that was created for it and is merged or pushed.
// See Git.Remove. No hook of the repository runs: git needs none to remove files.
func (p program) remove(ctx context.Context, w Worktree, force bool) error {
	commit, err := p.branchCommit(ctx, w)
	if err != nil {
		return err
	}
	merged := true // another branch, a tag or a remote has every commit of the branch
	if force {
		n, err := p.countUnmerged(ctx, w.Repository, w)
		merged = err == nil && n == 0
	} else {
		l, err := p.losses(ctx, w)
		if err != nil {
			return err
		}
		if l.Any() {
			return &LossError{w, l}
		}
	}
	if err := p.saveHead(ctx, w); err != nil {
		return err
	}
	// Without --force, git would examine the files itself, running the repository's clean filters, and
	// would not remove a worktree with submodules. losses has examined all of that unless force is
	// set. A locked worktree is removed only with a second --force.
	_, err = p.run(ctx, w.Repository, "worktree", "remove", "--force", "--", w.Path)
	if err != nil && (!isNonZeroExit(err) || p.isListed(ctx, w)) {
		return err
	}
	if w.Made && merged {
		p.deleteBranch(ctx, w, commit)
	}
	return nil
}

// branchCommit returns the commit of the worktree's branch, "" if the branch does not exist.
func (p program) branchCommit(ctx context.Context, w Worktree) (string, error) {
	if branch, _ := p.refExists(ctx, w.Repository, "refs/heads/"+w.Branch); !branch {
		return "", nil
	}
	return p.runLine(ctx, w.Repository, "rev-parse", "--verify", "--quiet", "refs/heads/"+w.Branch)
}

// isListed reports whether the worktree's directory exists or git still lists the worktree; true if
// that cannot be determined. Somebody may have removed the directory and run git worktree prune.
func (p program) isListed(ctx context.Context, w Worktree) bool {
	if exists(w.Path) {
		return true
	}
	out, err := p.run(ctx, w.Repository, "worktree", "list", "--porcelain")
	return err != nil || slices.Contains(strings.Split(out, "\n"), "worktree "+w.Path)
}

// saveHead creates a branch for a HEAD that is on no branch, tag or remote: nobody would find its
// commits again.
func (p program) saveHead(ctx context.Context, w Worktree) error {
	if !exists(w.Path) {
		return nil
	}
	n, err := p.runCount(ctx, w.Path, "rev-list", "--count", "HEAD", "--not", "--branches", "--tags", "--remotes")
	if err != nil || n == 0 {
		return err
	}
	name := w.Branch + "-head"
	for i, taken := 2, true; taken && i < maxNames; i++ {
		if taken, err = p.refExists(ctx, w.Path, "refs/heads/"+name); err != nil {
			return err
		}
		if taken {
			name = fmt.Sprintf("%s-head-%d", w.Branch, i)
		}
	}
	_, err = p.run(ctx, w.Path, "branch", "--quiet", "--no-track", "--", name, "HEAD")
	return err
}

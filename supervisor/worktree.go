package supervisor

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/internal/worktree"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/workspaces"
)

// worktreeTimeout is how long git may take for one operation. It may check out a whole tree and run
// the repository's hooks and filters.
const worktreeTimeout = 5 * time.Minute

// createInWorktree is the rest of Create for a session that gets a new git worktree as its
// workspace. Git does not run on the event loop, and the session's id is reserved meanwhile. The
// session is published after its worktree has been created; if the session cannot be created, the
// worktree is removed.
func (s *Supervisor) createInWorktree(ctx context.Context, agent string, spec Spec) (string, error) {
	limited, cancel := s.AfterFunc.Context(ctx, worktreeTimeout)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)() // git must not outlive the daemon
	series := ""
	if spec.ID == "" {
		series = branchPrefix + s.idBase(agent, spec)
	}
	id, err := s.reserve(agent, spec)
	if err != nil {
		return "", err
	}
	reserved := []string{id}
	defer func() {
		_ = s.do(func() {
			for _, id := range reserved {
				delete(s.reserved, id)
			}
		})
	}()
	add := func() (worktree.Worktree, string, error) {
		return s.Git.Add(limited, worktree.Request{
			Dir: spec.WorkingDirectory, Branch: *spec.Worktree, Own: branchPrefix + id, Series: series,
			Root: s.WorktreeDir, Name: id,
		})
	}
	w, dir, err := add()
	// A generated id and its branch have the same name: if git has the branch already, another id is
	// used.
	for taken := (*worktree.TakenError)(nil); errors.As(err, &taken); w, dir, err = add() {
		again := spec
		if again.ID = strings.TrimPrefix(taken.Free, branchPrefix); !s.isIDFree(agent, again.ID) {
			again.ID = "" // the next free one, which is none of those that are reserved
		}
		if id, err = s.reserve(agent, again); err != nil {
			return "", err
		}
		reserved = append(reserved, id)
	}
	switch {
	case errors.Is(err, worktree.ErrNoGit), errors.Is(err, worktree.ErrNotRun):
		return "", refuse(StartFailed, "cannot create a worktree of workspace %q: %v", spec.WorkingDirectory, err)
	case err != nil:
		return "", refuse(Invalid, "cannot create a worktree of workspace %q: %v", spec.WorkingDirectory, err)
	}
	failpoint.Hit("create.worktree-made")
	saved := session.Worktree(w)
	spec.ID, spec.reserved = id, true
	spec.worktree, spec.WorkingDirectory = &saved, dir
	spec.workspace, spec.inode = workspaces.Resolve(dir), workspaces.InodeOf(dir)
	created, err := s.createWithWorktree(ctx, agent, spec)
	// A daemon that ends may have saved the session: the next one removes the worktree if it has not.
	if created == "" && !errors.Is(err, ErrClosed) {
		s.undoWorktree(w)
	}
	return created, err
}

// branchPrefix begins the name of a branch that is created for a session whose client did not name
// one.
const branchPrefix = "corral/"

// createWithWorktree is createChecked for a session whose worktree has just been created. Only now
// can its command be searched for in the worktree.
func (s *Supervisor) createWithWorktree(ctx context.Context, agent string, spec Spec) (string, error) {
	if len(spec.Command) > 0 && !spec.NoStart {
		agents, err := s.ListAgents()
		if err == nil {
			err = s.checkExecutable(ctx, agents[agent], &spec, spec.WorkingDirectory)
		}
		if err != nil {
			return "", err
		}
	}
	return s.createChecked(ctx, agent, spec)
}

// isIDFree reports whether a new session could get this id.
func (s *Supervisor) isIDFree(agent, id string) (free bool) {
	_ = s.do(func() {
		_, err := s.chooseID(agent, Spec{ID: id})
		free = err == nil && config.ValidName(id)
	})
	return free
}

// reserve chooses the id of a session that is about to be created, and reserves it.
func (s *Supervisor) reserve(agent string, spec Spec) (id string, err error) {
	if e := s.do(func() {
		if _, err = s.checkCreatable(agent, spec); err == nil {
			id, err = s.chooseID(agent, spec)
		}
		if err == nil {
			s.reserved[id] = true
		}
	}); e != nil {
		return "", e
	}
	return id, err
}

// undoWorktree removes a new worktree that no session has used.
func (s *Supervisor) undoWorktree(w worktree.Worktree) {
	s.logUndone(w, s.withGit(func(ctx context.Context, git worktree.Git) error { return git.Undo(ctx, w) }))
}

// logUndone logs whether a worktree that belongs to no session was removed.
func (s *Supervisor) logUndone(w worktree.Worktree, err error) {
	s.post(func() {
		if err != nil {
			s.Log.Warn("cannot remove an unused worktree", "path", w.Path, "branch", w.Branch, "err", err)
			return
		}
		s.Log.Info("removed an unused worktree", "path", w.Path, "branch", w.Branch)
	})
}

// confirmWorktree removes the marker file of the session's new worktree, after the session has been
// saved.
func (s *Supervisor) confirmWorktree(e *entry) {
	w := e.rec.Worktree
	if w == nil {
		return
	}
	s.queueAfterSave(e, func() {
		failpoint.Hit("create.worktree-noted")
		if err := worktree.Worktree(*w).Confirm(); err != nil {
			s.post(func() { s.Log.Warn("cannot remove the marker file of a new worktree", "path", w.Path, "err", err) })
		}
	})
}

// undoUnconfirmed removes, when the daemon starts, the new worktrees whose sessions an earlier
// daemon did not save. It does not wait for git.
func (s *Supervisor) undoUnconfirmed() {
	if s.WorktreeDir == "" {
		return
	}
	unconfirmed, err := worktree.Unconfirmed(s.WorktreeDir)
	if err != nil {
		s.Log.Warn("cannot read the marker files of new worktrees", "path", s.WorktreeDir, "err", err)
	}
	for _, w := range unconfirmed {
		if !s.hasWorktree(w.Path) {
			go s.reclaimWorktree(w)
		} else if err := w.Confirm(); err != nil {
			s.Log.Warn("cannot remove the marker file of a worktree", "path", w.Path, "err", err)
		}
	}
}

func (s *Supervisor) hasWorktree(path string) bool {
	for _, e := range s.sessions {
		if e.rec.Worktree != nil && e.rec.Worktree.Path == path {
			return true
		}
	}
	return false
}

// reclaimWorktree removes a worktree that no daemon has confirmed, unless somebody has begun to use
// it.
func (s *Supervisor) reclaimWorktree(w worktree.Worktree) {
	s.logUndone(w, s.withGit(func(ctx context.Context, git worktree.Git) error { return git.Reclaim(ctx, w) }))
}

// withGit calls f, which runs git, with a context that ends with the daemon or after
// worktreeTimeout. It is not called on the event loop.
func (s *Supervisor) withGit(f func(context.Context, worktree.Git) error) error {
	ctx, cancel := s.AfterFunc.Context(s.ctx, worktreeTimeout)
	defer cancel()
	return f(ctx, s.Git)
}

// RemoveWorktree is Remove, and also removes the session's worktree. If changes would be lost,
// neither is removed, and the error lists them, unless discard is set. The branch is kept unless it
// is merged or pushed. Errors: those of Remove; Invalid for a session without a worktree.
func (s *Supervisor) RemoveWorktree(ctx context.Context, id string, force, discard bool) error {
	var w worktree.Worktree
	if err := s.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if e.rec.Worktree == nil {
			return nil, refuse(Invalid, "session %q was not created with a worktree", id)
		}
		w = worktree.Worktree(*e.rec.Worktree)
		return nil, checkRemovable(e, force)
	}); err != nil {
		return err
	}
	root := workspaces.Resolve(w.Path) + "/"
	if err := s.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		return nil, s.checkWorktreeUnused(e, root)
	}); err != nil {
		return err
	}
	if !discard { // before the agent is stopped; and again after that, because it can change files until then
		if err := s.withGit(func(ctx context.Context, git worktree.Git) error {
			l, err := git.Losses(ctx, w)
			if err == nil && l.Any() {
				err = &worktree.LossError{Worktree: w, Losses: l}
			}
			return err
		}); err != nil {
			return worktreeKept(id, w, err)
		}
	}
	return s.removeAfter(ctx, id, force, func(e *entry) error { return s.beginWorktreeRemoval(e, root) }, func() error {
		failpoint.Hit("remove.worktree")
		if err := s.withGit(func(ctx context.Context, git worktree.Git) error {
			return git.Remove(ctx, w, discard)
		}); err != nil {
			return worktreeKept(id, w, err)
		}
		return nil
	})
}

// beginWorktreeRemoval repeats checkWorktreeUnused after the session's own agent has ended, because
// another session may have begun a run there meanwhile. From then on none can.
func (s *Supervisor) beginWorktreeRemoval(e *entry, root string) error {
	if err := s.checkWorktreeUnused(e, root); err != nil {
		return err
	}
	e.removal.dir = root
	s.unwatchWorkspace(e) // its removal must not orphan the session
	return nil
}

// checkWorktreeUnused refuses to remove a worktree in which another session runs. Root is the
// resolved path of the worktree, with a slash at the end.
func (s *Supervisor) checkWorktreeUnused(e *entry, root string) error {
	isInside := func(dir workspaces.Directory) bool { return strings.HasPrefix(dir.Path+"/", root) }
	for _, other := range s.sorted() {
		if other != e && other.occupiesDir(isInside) {
			return refuse(InvalidState, "the worktree of session %q is the workspace of session %q too, which is %s",
				e.rec.ID, other.rec.ID, other.rec.View().State)
		}
	}
	return nil
}

// worktreeKept returns the error of RemoveWorktree if err prevents the removal of the worktree.
func worktreeKept(id string, w worktree.Worktree, err error) error {
	var lost *worktree.LossError
	if errors.As(err, &lost) {
		return refuse(InvalidState, "the worktree of session %q has %s: %s", id, lost.Losses, w.Path)
	}
	return refuse(InvalidState, "the worktree of session %q cannot be removed: %v: %s", id, err, w.Path)
}

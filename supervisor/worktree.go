package supervisor

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/internal/setup"
	"github.com/corrald/corral/internal/trust"
	"github.com/corrald/corral/internal/worktree"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/workspaces"
)

// worktrees are the git worktrees that were created for sessions.
type worktrees struct {
	loop      *loop
	dir       string // $XDG_DATA_HOME/corral/worktrees
	git       worktree.Git
	runner    setup.Runner
	approvals trust.Approvals // of scripts of repositories
}

// worktreeTimeout is how long git may take for one operation. It may check out a whole tree and run
// the repository's hooks and filters.
const worktreeTimeout = 5 * time.Minute

// branchPrefix begins the name of a branch that is created for a session whose client did not name
// one.
const branchPrefix = "corral/"

// createInWorktree is the rest of Create for a session that gets a new git worktree as its
// workspace. Git does not run on the event loop, and the session's id is reserved meanwhile. The
// session is published after its worktree has been created; if the session cannot be created, the
// worktree is removed.
func (c *creation) createInWorktree(ctx context.Context, agent string, spec Spec) (string, error) {
	limited, cancel := c.loop.clocks.AfterFunc.Context(ctx, worktreeTimeout)
	defer cancel()
	defer context.AfterFunc(c.loop.ctx, cancel)() // git must not outlive the daemon
	series := ""
	if spec.ID == "" {
		series = branchPrefix + spec.determined.idBase
	}
	id, err := c.reserve(agent, spec)
	if err != nil {
		return "", err
	}
	reserved := []string{id}
	defer func() { c.release(reserved) }()
	add := func() (worktree.Worktree, string, error) {
		return c.worktrees.git.Add(limited, worktree.Request{
			Dir: spec.WorkingDirectory, Branch: *spec.Worktree, Own: branchPrefix + id, Series: series,
			Root: c.worktrees.dir, Name: id,
		})
	}
	w, dir, err := add()
	// A generated id and its branch have the same name: if git has the branch already, another id is
	// used.
	for taken := (*worktree.TakenError)(nil); errors.As(err, &taken); w, dir, err = add() {
		if id, err = c.reserveAnother(agent, spec, strings.TrimPrefix(taken.Free, branchPrefix)); err != nil {
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
	if spec.determined.repository, err = c.loop.repository(saved.Directory()); err != nil {
		return "", err
	}
	spec.ID, spec.determined.reserved, spec.determined.setup = id, true, spec.setupPhase(w)
	spec.determined.worktree, spec.WorkingDirectory = &saved, dir
	spec.determined.workspace, spec.determined.inode = workspaces.Resolve(dir), workspaces.InodeOf(dir)
	// Only now can it be searched for in the worktree. A setup may create it.
	if len(spec.Command) > 0 && spec.determined.setup != session.SetupPending {
		err = c.checkInstalled(ctx, agent, &spec)
	}
	created := ""
	if err == nil {
		created, err = c.createChecked(ctx, agent, spec)
	}
	// A daemon that ends may have saved the session: the next one removes the worktree if it has not.
	if created == "" && !errors.Is(err, ErrClosed) {
		c.worktrees.undo(w, c.worktrees.git.Undo)
	}
	return created, err
}

// reserve chooses the id of a session that is about to be created, and reserves it.
func (c *creation) reserve(agent string, spec Spec) (id string, err error) {
	err = c.loop.try(func() (err error) {
		if _, err = c.checkCreatable(agent, spec); err == nil {
			id, err = c.chooseID(agent, spec)
		}
		if err == nil {
			c.reserved[id] = true
		}
		return err
	})
	return id, err
}

// reserveAnother is reserve for a session whose client has not specified an id. It reserves the
// suggested one or, if no new session can get that, the next free one that is not reserved.
func (c *creation) reserveAnother(agent string, spec Spec, suggested string) (string, error) {
	if config.ValidName(suggested) {
		again := spec
		again.ID = suggested
		if id, err := c.reserve(agent, again); kindOf(err) != SessionExists {
			return id, err
		}
	}
	return c.reserve(agent, spec)
}

// release ends the reservation of these ids.
func (c *creation) release(ids []string) {
	_ = c.loop.do(func() {
		for _, id := range ids {
			delete(c.reserved, id)
		}
	})
}

// confirm removes the marker file of the session's new worktree, once the session is saved: if the
// daemon ends before that, the next one removes the worktree, or confirms it if there is a record.
// If the session is removed before it could be saved, its worktree is kept. It is called on the
// event loop.
func (t *worktrees) confirm(e *entry) {
	w := e.rec.Worktree
	if w == nil {
		return
	}
	saved := e.waitUntil(func(e *entry) bool { return e.removed || !e.saving.unsaved })
	go func() {
		if t.loop.awaitReply(t.loop.ctx, saved) != nil {
			return
		}
		failpoint.Hit("create.worktree-noted")
		if err := worktree.Worktree(*w).Confirm(); err != nil {
			t.loop.post(func() {
				t.loop.log.Warn("cannot remove the marker file of a new worktree", "path", w.Path, "err", err)
			})
		}
	}()
}

// undo removes, by remove, a new worktree that belongs to no session.
func (t *worktrees) undo(w worktree.Worktree, remove func(context.Context, worktree.Worktree) error) {
	ctx, cancel := t.gitContext()
	defer cancel()
	err := remove(ctx, w)
	t.loop.post(func() {
		if err != nil {
			t.loop.log.Warn("cannot remove an unused worktree", "path", w.Path, "branch", w.Branch, "err", err)
			return
		}
		t.loop.log.Info("removed an unused worktree", "path", w.Path, "branch", w.Branch)
	})
}

// gitContext returns a context for git that ends with the daemon, or after worktreeTimeout.
func (t *worktrees) gitContext() (context.Context, context.CancelFunc) {
	return t.loop.clocks.AfterFunc.Context(t.loop.ctx, worktreeTimeout)
}

// undoUnconfirmed removes, when the daemon starts, the new worktrees whose sessions an earlier
// daemon did not save, unless somebody has begun to use them. It does not wait for git.
func (t *worktrees) undoUnconfirmed() {
	if t.dir == "" {
		return
	}
	unconfirmed, err := worktree.Unconfirmed(t.dir)
	if err != nil {
		t.loop.log.Warn("cannot read the marker files of new worktrees", "path", t.dir, "err", err)
	}
	for _, w := range unconfirmed {
		isOwner := func(e *entry) bool { return e.rec.Worktree != nil && e.rec.Worktree.Path == w.Path }
		if !t.loop.sessions.contains(isOwner) {
			go t.undo(w, t.git.Reclaim)
		} else if err := w.Confirm(); err != nil {
			t.loop.log.Warn("cannot remove the marker file of a worktree", "path", w.Path, "err", err)
		}
	}
}

// RemoveWorktree is Remove, and also removes the session's worktree, which is torn down before. If
// that fails, or changes would be lost, neither is removed, and the error describes why, unless
// discard is set. The branch is kept unless it
// is merged or pushed. Errors: those of Remove; Invalid for a session without a worktree.
func (s *Supervisor) RemoveWorktree(ctx context.Context, id string, force, discard bool) error {
	t := s.loop.operations.worktrees
	var w worktree.Worktree
	if err := s.loop.doWith(id, func(e *entry) error {
		if e.rec.Worktree == nil {
			return refuse(Invalid, "session %q was not created with a worktree", id)
		}
		w = worktree.Worktree(*e.rec.Worktree)
		return checkRemovable(e, force)
	}); err != nil {
		return err
	}
	root := workspaces.Resolve(w.Path) + "/"
	if err := s.loop.doWith(id, func(e *entry) error { return t.checkUnused(e, root) }); err != nil {
		return err
	}
	if !discard { // before the agent is stopped; and again after that, because it can change files until then
		if err := t.checkLosses(id, w); err != nil {
			return err
		}
	}
	var place workplace
	var phase session.SetupPhase
	return s.loop.operations.removeAfter(ctx, id, force, removal{
		check: func(e *entry) error {
			place, phase = e.workplace(nil), e.rec.Setup.Phase
			return t.beginRemoval(e, root)
		},
		before: func() error {
			if err := t.tearDown(place, phase, discard); err != nil {
				return err
			}
			return t.remove(id, w, discard)
		},
	})
}

// checkUnused refuses to remove a worktree in which another session runs. Root is the resolved path
// of the worktree, with a slash at the end. It is called on the event loop.
func (t *worktrees) checkUnused(e *entry, root string) error {
	isInside := func(dir workspaces.Directory) bool { return strings.HasPrefix(dir.Path+"/", root) }
	for _, other := range t.loop.sessions.sorted() {
		if other != e && other.occupiesDir(isInside) {
			return refuse(InvalidState, "the worktree of session %q is the workspace of session %q too, which is %s",
				e.rec.ID, other.rec.ID, other.rec.View().State)
		}
	}
	return nil
}

// checkLosses returns an error if changes would be lost with the worktree.
func (t *worktrees) checkLosses(id string, w worktree.Worktree) error {
	ctx, cancel := t.gitContext()
	defer cancel()
	losses, err := t.git.Losses(ctx, w)
	if err == nil && losses.Any() {
		err = &worktree.LossError{Worktree: w, Losses: losses}
	}
	return keptError(id, w, err)
}

// beginRemoval repeats checkUnused after the session's own agent has ended, because another session
// may have begun a run there meanwhile. After beginRemoval no other session can begin a run there.
// It is called on the event loop.
func (t *worktrees) beginRemoval(e *entry, root string) error {
	if err := t.checkUnused(e, root); err != nil {
		return err
	}
	e.removal.dir = root
	e.unwatchWorkspace() // its removal must not orphan the session
	return nil
}

// remove removes the worktree. Unless discard is set, it returns an error if changes would be lost.
func (t *worktrees) remove(id string, w worktree.Worktree, discard bool) error {
	failpoint.Hit("remove.worktree")
	ctx, cancel := t.gitContext()
	defer cancel()
	return keptError(id, w, t.git.Remove(ctx, w, discard))
}

// keptError returns the error of RemoveWorktree if err prevents the removal of the worktree, nil if
// err is nil.
func keptError(id string, w worktree.Worktree, err error) error {
	var lost *worktree.LossError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &lost):
		return refuse(InvalidState, "the worktree of session %q has %s: %s", id, lost.Losses, w.Path)
	}
	return refuse(InvalidState, "the worktree of session %q cannot be removed: %v: %s", id, err, w.Path)
}

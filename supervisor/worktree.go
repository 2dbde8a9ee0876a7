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
)

// worktreeTime bounds what git may take for one operation: it checks out a whole tree, and runs the repository's hooks and filters.
const worktreeTime = 5 * time.Minute

// createInWorktree is the rest of Create for a session that is to have a git worktree for its workspace. The session's id is held while git works,
// off the loop; nobody hears of the session before there is its worktree, and nothing is left of that if there is to be no session.
func (s *Supervisor) createInWorktree(ctx context.Context, agent string, spec Spec) (string, error) {
	limited, cancel := s.AfterFunc.Context(ctx, worktreeTime)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)() // a daemon that ends leaves no git behind
	series := ""
	if spec.ID == "" {
		series = ownBranches + s.baseOf(agent, spec)
	}
	id, err := s.reserve(agent, spec)
	if err != nil {
		return "", err
	}
	held := []string{id}
	defer func() {
		_ = s.do(func() {
			for _, id := range held {
				delete(s.reserved, id)
			}
		})
	}()
	add := func() (worktree.Worktree, string, error) {
		return s.Git.Add(limited, worktree.Request{
			Dir: spec.WorkingDirectory, Branch: *spec.Worktree, Own: ownBranches + id, Series: series, Root: s.WorktreeDir, Name: id,
		})
	}
	w, dir, err := add()
	for taken := (*worktree.TakenError)(nil); errors.As(err, &taken); w, dir, err = add() { // so that a generated id and its branch have the same name
		again := spec
		if again.ID = strings.TrimPrefix(taken.Free, ownBranches); !s.isFree(agent, again.ID) {
			again.ID = "" // the next one that is free: those that are held are not
		}
		if id, err = s.reserve(agent, again); err != nil {
			return "", err
		}
		held = append(held, id)
	}
	switch {
	case errors.Is(err, worktree.ErrNoGit), errors.Is(err, worktree.ErrNotRun):
		return "", refuse(StartFailed, "cannot create a worktree of workspace %q: %v", spec.WorkingDirectory, err)
	case err != nil:
		return "", refuse(Invalid, "cannot create a worktree of workspace %q: %v", spec.WorkingDirectory, err)
	}
	failpoint.Hit("create.worktree-made")
	kept := session.Worktree(w)
	spec.ID, spec.reserved = id, true
	spec.worktree, spec.WorkingDirectory, spec.workspace, spec.inode = &kept, dir, resolve(dir), inodeOf(dir)
	made, err := s.createThere(ctx, agent, spec)
	if made == "" && !errors.Is(err, ErrClosed) { // a daemon that ends may have saved it: the next one knows
		s.undoWorktree(w)
	}
	return made, err
}

// ownBranches is what the names of branches begin with that are made for sessions whose client named none.
const ownBranches = "corral/"

// createThere is createNow for a session whose worktree has just been made: a command in it can be looked for now.
func (s *Supervisor) createThere(ctx context.Context, agent string, spec Spec) (string, error) {
	if len(spec.Command) > 0 && !spec.NoStart {
		agents, err := s.ListAgents()
		if err == nil {
			err = s.executable(ctx, agents[agent], &spec, spec.WorkingDirectory)
		}
		if err != nil {
			return "", err
		}
	}
	return s.createNow(ctx, agent, spec)
}

// isFree tells whether a new session could have this id.
func (s *Supervisor) isFree(agent, id string) (free bool) {
	_ = s.do(func() {
		_, err := s.chooseID(agent, Spec{ID: id})
		free = err == nil && config.ValidName(id)
	})
	return free
}

// reserve chooses the id of a session that is about to be created, and holds it.
func (s *Supervisor) reserve(agent string, spec Spec) (id string, err error) {
	if e := s.do(func() {
		if _, err = s.creatable(agent, spec); err == nil {
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

// undoWorktree takes back a worktree in which nobody has worked.
func (s *Supervisor) undoWorktree(w worktree.Worktree) {
	s.toldUndone(w, s.git(func(ctx context.Context, git worktree.Git) error { return git.Undo(ctx, w) }))
}

// toldUndone has the journal told what has become of a worktree that belongs to no session.
func (s *Supervisor) toldUndone(w worktree.Worktree, err error) {
	s.post(func() {
		if err != nil {
			s.Log.Warn("cannot remove an unused worktree", "path", w.Path, "branch", w.Branch, "err", err)
			return
		}
		s.Log.Info("removed an unused worktree", "path", w.Path, "branch", w.Branch)
	})
}

// settleWorktree has the note of the session's new worktree removed once the session is saved.
func (s *Supervisor) settleWorktree(e *entry) {
	w := e.rec.Worktree
	if w == nil {
		return
	}
	s.effect(e, func() {
		failpoint.Hit("create.worktree-noted")
		if err := worktree.Worktree(*w).Confirm(); err != nil {
			s.post(func() { s.Log.Warn("cannot remove the note of a new worktree", "path", w.Path, "err", err) })
		}
	})
}

// undoStrays takes back the worktrees that a daemon did not live to note, at the start. Git is not waited for.
func (s *Supervisor) undoStrays() {
	if s.WorktreeDir == "" {
		return
	}
	strays, err := worktree.Unconfirmed(s.WorktreeDir)
	if err != nil {
		s.Log.Warn("cannot read the notes of new worktrees", "path", s.WorktreeDir, "err", err)
	}
	for _, w := range strays {
		if !s.hasWorktree(w.Path) {
			go s.undoStray(w)
		} else if err := w.Confirm(); err != nil {
			s.Log.Warn("cannot remove the note of a worktree", "path", w.Path, "err", err)
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

// undoStray takes one back, unless somebody has found it meanwhile and has something there.
func (s *Supervisor) undoStray(w worktree.Worktree) {
	s.toldUndone(w, s.git(func(ctx context.Context, git worktree.Git) error { return git.Reclaim(ctx, w) }))
}

// git has something done with git, off the loop. It ends when the daemon does.
func (s *Supervisor) git(f func(context.Context, worktree.Git) error) error {
	ctx, cancel := s.AfterFunc.Context(s.ctx, worktreeTime)
	defer cancel()
	return f(ctx, s.Git)
}

// RemoveWorktree is Remove, and removes the session's worktree with it. Anything that would be lost keeps both, and is named, unless discard is set; the
// branch stays where it is not merged or pushed. Errors: those of Remove; Invalid for a session without a worktree.
func (s *Supervisor) RemoveWorktree(ctx context.Context, id string, force, discard bool) error {
	var w worktree.Worktree
	if err := s.with(ctx, id, func(e *entry) (<-chan error, error) {
		if e.rec.Worktree == nil {
			return nil, refuse(Invalid, "session %q was not created with a worktree", id)
		}
		w = worktree.Worktree(*e.rec.Worktree)
		return nil, removable(e, force)
	}); err != nil {
		return err
	}
	root := resolve(w.Path) + "/"
	if err := s.with(ctx, id, func(e *entry) (<-chan error, error) { return nil, s.worktreeFree(e, root) }); err != nil {
		return err
	}
	if !discard { // before anything is stopped; and again afterwards, for its agent works there until then
		if err := s.git(func(ctx context.Context, git worktree.Git) error {
			l, err := git.Losses(ctx, w)
			if err == nil && l.Any() {
				err = &worktree.LossError{Worktree: w, Losses: l}
			}
			return err
		}); err != nil {
			return worktreeStays(id, w, err)
		}
	}
	return s.removeAfter(ctx, id, force, func(e *entry) error { return s.takeWorktree(e, root) }, func() error {
		failpoint.Hit("remove.worktree")
		if err := s.git(func(ctx context.Context, git worktree.Git) error { return git.Remove(ctx, w, discard) }); err != nil {
			return worktreeStays(id, w, err)
		}
		return nil
	})
}

// takeWorktree is worktreeFree once more, after the session's own agent has ended: somebody may have come meanwhile. From then on nobody does.
func (s *Supervisor) takeWorktree(e *entry, root string) error {
	if err := s.worktreeFree(e, root); err != nil {
		return err
	}
	e.taking = root
	s.unwatchWorkspace(e) // that it vanishes is no news
	return nil
}

// worktreeFree refuses to take a worktree away under another session that works in it. Root is where the worktree really is, with a slash.
func (s *Supervisor) worktreeFree(e *entry, root string) error {
	for _, other := range s.sorted() {
		if other != e && other.occupies(func(at spot) bool { return strings.HasPrefix(at.path+"/", root) }) {
			return refuse(InvalidState, "the worktree of session %q is the workspace of session %q too, which is %s", e.rec.ID, other.rec.ID, other.rec.View().State)
		}
	}
	return nil
}

// worktreeStays tells why a session is not removed with its worktree.
func worktreeStays(id string, w worktree.Worktree, err error) error {
	var lost *worktree.LossError
	if errors.As(err, &lost) {
		return refuse(InvalidState, "the worktree of session %q has %s: %s", id, lost.Losses, w.Path)
	}
	return refuse(InvalidState, "the worktree of session %q cannot be removed: %v: %s", id, err, w.Path)
}

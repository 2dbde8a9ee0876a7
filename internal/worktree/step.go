package worktree

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// Git makes, examines and removes worktrees. It runs no git itself: see Runner.
type Git struct {
	Environment []string // of git: NAME=VALUE; what begins with GIT_ is left out
	Run         Runner
}

// Runner has a step carried out by Do in a process of its own, and returns what Do returns.
// Everything that the step starts ends with it: what git runs for a checkout are programs of the
// repository's, and of whoever wrote to it. When ctx is done, the step is ended. Name is the
// directory name of the worktree. An error is that the step did not end by itself; it is ErrNotRun
// where it has not begun.
type Runner func(ctx context.Context, name string, input []byte) (output []byte, err error)

// ErrNotRun is the error of a step that has not begun.
var ErrNotRun = errors.New("cannot run git")

// The things that a step does.
const (
	doPlan    = "plan"
	doAdd     = "add"
	doExamine = "examine"
	doRemove  = "remove"
	doUndo    = "undo"
	doReclaim = "reclaim"
)

// step is the input of Do.
type step struct {
	Do          string
	Environment []string
	Request     Request
	Worktree    Worktree
	From        string // doAdd: what the worktree begins with
	Force       bool   // doRemove
}

// outcome is the output of Do.
type outcome struct {
	Worktree     Worktree // doPlan
	From, Prefix string   // doPlan
	Losses       Losses
	Lost         bool   // the error is that Losses keep the worktree
	Free         string // the error is a *TakenError with this
	NoGit        bool   // the error is ErrNoGit
	Error        string // "" for none
}

// RunStep carries out a step with git as a child of this process. Input and output are between it and
// Git. When ctx is done, git is terminated.
func RunStep(ctx context.Context, input []byte) (output []byte) {
	var s step
	var o outcome
	err := json.Unmarshal(input, &s)
	if err == nil {
		o, err = s.carryOut(ctx)
	}
	if lost := (*LossError)(nil); errors.As(err, &lost) {
		o.Losses, o.Lost = lost.Losses, true
	}
	if taken := (*TakenError)(nil); errors.As(err, &taken) {
		o.Free = taken.Free
	}
	if err != nil {
		o.Error, o.NoGit = err.Error(), errors.Is(err, ErrNoGit)
	}
	if output, err = json.Marshal(o); err != nil {
		return nil
	}
	return output
}

func (s step) carryOut(ctx context.Context) (o outcome, err error) {
	p := program{environment: s.Environment}
	switch s.Do {
	case doPlan:
		o.Worktree, o.From, o.Prefix, err = p.plan(ctx, s.Request)
	case doAdd:
		err = p.add(ctx, s.Request.Dir, s.Worktree, s.From)
	case doExamine:
		o.Losses, err = p.losses(ctx, s.Worktree)
	case doRemove:
		err = p.remove(ctx, s.Worktree, s.Force)
	case doUndo:
		err = p.undo(ctx, s.Worktree)
	case doReclaim:
		err = p.reclaim(ctx, s.Worktree)
	default: // a daemon of another version
		err = fmt.Errorf("unknown step %q: restart corrald (systemctl --user restart corrald)", s.Do)
	}
	return o, err
}

// do has a step carried out.
func (g Git) do(ctx context.Context, name string, s step) (o outcome, err error) {
	s.Environment = g.Environment
	input, err := json.Marshal(s)
	if err != nil {
		return o, err
	}
	output, err := g.Run(ctx, name, input)
	switch {
	case err != nil && ctx.Err() != nil && !errors.Is(err, ErrNotRun):
		return o, fmt.Errorf("git takes too long: %w", ctx.Err())
	case err != nil:
		return o, err
	}
	if err := json.Unmarshal(output, &o); err != nil {
		return o, fmt.Errorf("cannot read the result of git: %w", err)
	}
	switch {
	case o.NoGit:
		return o, ErrNoGit
	case o.Lost:
		return o, &LossError{s.Worktree, o.Losses}
	case o.Free != "":
		return o, &TakenError{o.Free}
	case o.Error != "":
		return o, errors.New(o.Error)
	}
	return o, nil
}

// on is do for a step of a worktree that is there.
func (g Git) on(ctx context.Context, w Worktree, s step) (outcome, error) {
	s.Worktree = w
	return g.do(ctx, filepath.Base(w.Path), s)
}

// turns has a channel for each repository, in which there is a value while a step changes its
// worktrees or branches: git reads all worktrees of the repository then, and fails where another
// one is half made or half removed.
var turns sync.Map

// turn waits until no other step changes the repository.
func turn(ctx context.Context, repository string) (end func(), err error) {
	if path, err := filepath.EvalSymlinks(repository); err == nil {
		repository = path
	}
	value, _ := turns.LoadOrStore(repository, make(chan struct{}, 1))
	taken := value.(chan struct{}) //nolint:forcetypeassert // nothing else is in it
	select {
	case taken <- struct{}{}:
		return func() { <-taken }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("git waited too long for another worktree of %q: %w", repository, ctx.Err())
	}
}

// Add makes a worktree, and its branch if there is none such, at the commit that Dir has checked
// out. A branch of one remote with that name is followed. Where the branch has to be Own and is
// taken, the error is a *TakenError. What is changed and not committed in Dir stays there. The
// repository's hooks and filters are run. It returns the directory that corresponds to Dir, too.
// After an error nothing is left of it; where that could not be undone either, a note of it is, for
// Unconfirmed. The caller calls Settle once it has noted the worktree.
func (g Git) Add(ctx context.Context, r Request) (w Worktree, dir string, err error) {
	plan, err := g.do(ctx, r.Name, step{Do: doPlan, Request: r})
	if err != nil {
		return w, "", err
	}
	w = plan.Worktree
	end, err := turn(ctx, w.Repository)
	if err != nil {
		return w, "", err
	}
	defer end()
	if err := claim(r, &w); err != nil {
		return w, "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.takeBack(context.WithoutCancel(ctx), w, err))
		}
	}()
	if _, err := g.on(ctx, w, step{Do: doAdd, Request: r, From: plan.From}); err != nil {
		return w, "", err
	}
	dir = filepath.Join(w.Path, plan.Prefix)
	if info, e := os.Stat(dir); e != nil || !info.IsDir() {
		return w, "", fmt.Errorf("branch %q has no directory %q", w.Branch, filepath.Clean(plan.Prefix))
	}
	return w, dir, nil
}

// takeBack undoes what Add has done. Cause is why.
func (g Git) takeBack(ctx context.Context, w Worktree, cause error) error {
	if errors.Is(cause, ErrNotRun) { // there is nothing but the claim
		if err := os.Remove(w.Path); err != nil {
			return err
		}
		return w.Confirm()
	}
	return g.undo(ctx, w)
}

func (g Git) undo(ctx context.Context, w Worktree) error {
	if _, err := g.on(ctx, w, step{Do: doUndo}); err != nil {
		return err
	}
	return w.Confirm()
}

// Undo takes back what Add has done, or has begun: nobody has worked there. A branch that was made
// for it goes, too, unless it was used since.
func (g Git) Undo(ctx context.Context, w Worktree) error {
	end, err := turn(ctx, w.Repository)
	if err != nil {
		return err
	}
	defer end()
	return g.undo(ctx, w)
}

// Reclaim is Undo for what was found by Strays: somebody else may have found it meanwhile. What
// they have put there keeps it, and the error is a *LossError.
func (g Git) Reclaim(ctx context.Context, w Worktree) error {
	end, err := turn(ctx, w.Repository)
	if err != nil {
		return err
	}
	defer end()
	if _, err := g.on(ctx, w, step{Do: doReclaim}); err != nil {
		return err
	}
	return w.Confirm()
}

// Losses finds out what would be lost, in its submodules too, and runs nothing of the repository's
// for that: no hook, no filter, no transport. A worktree that is not at its place has nothing but
// its branch and its stashes.
func (g Git) Losses(ctx context.Context, w Worktree) (Losses, error) {
	o, err := g.on(ctx, w, step{Do: doExamine})
	return o.Losses, err
}

// Remove removes the worktree, and its branch if that was made for it and is merged or pushed. What
// would be lost keeps it (the error is a *LossError) unless force is set: then every commit stays
// all the same, on the branch it is on, or on one made for it; a branch that was made for it and
// has no commit of its own goes in either case. A worktree that was locked stays. No hook of the
// repository's is run.
func (g Git) Remove(ctx context.Context, w Worktree, force bool) error {
	end, err := turn(ctx, w.Repository)
	if err != nil {
		return err
	}
	defer end()
	_, err = g.on(ctx, w, step{Do: doRemove, Force: force})
	return err
}

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

// Git creates, examines and removes worktrees. It runs git only through its Runner.
type Git struct {
	Environment []string // of git, as NAME=VALUE; variables whose names begin with GIT_ are omitted
	Run         Runner
}

// Runner runs a step with RunStep in a process of its own, and returns its output. It ends
// everything that the step has started: a checkout runs programs of the repository and of whoever
// could write to it. When ctx is done, it ends the step. The name is that of the worktree's
// directory. An error means that the step did not end by itself, or is ErrNotRun if the step has
// not started.
type Runner func(ctx context.Context, name string, input []byte) (output []byte, err error)

// ErrNotRun is the error of a step that has not started.
var ErrNotRun = errors.New("cannot run git")

// The kinds of steps.
const (
	doPlan    = "plan"
	doAdd     = "add"
	doInclude = "include"
	doExamine = "examine"
	doRemove  = "remove"
	doUndo    = "undo"
	doReclaim = "reclaim"
)

// step is the input of RunStep.
type step struct {
	Do          string
	Environment []string
	Request     Request
	Worktree    Worktree
	From        string // doAdd: the revision from which git creates the worktree; doInclude: a worktree
	Force       bool   // doRemove
}

// outcome is the output of RunStep.
type outcome struct {
	Worktree     Worktree // doPlan
	From, Prefix string   // doPlan
	Includes     string   // doPlan: the worktree for doInclude, "" if nothing is to be copied
	Losses       Losses
	Lost         bool   // the error is a *LossError with Losses
	Free         string // the error is a *TakenError with this branch
	NoGit        bool   // the error is ErrNoGit
	Error        string // "" for none
}

// RunStep runs a step with git as a child of this process, and is called in the process that a
// Runner starts. Input and output are internal to this package. When ctx is done, git is
// terminated.
func RunStep(ctx context.Context, input []byte) (output []byte) {
	var s step
	var o outcome
	err := json.Unmarshal(input, &s)
	if err == nil {
		o, err = s.run(ctx)
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

func (s step) run(ctx context.Context) (o outcome, err error) {
	p := program{environment: s.Environment}
	switch s.Do {
	case doPlan:
		if o.Worktree, o.From, o.Prefix, err = p.plan(ctx, s.Request); err == nil {
			o.Includes, err = p.findIncludes(ctx, s.Request, o.Worktree)
		}
	case doAdd:
		err = p.add(ctx, s.Request.Dir, s.Worktree, s.From)
	case doInclude:
		err = p.include(ctx, s.From, s.Worktree)
	case doExamine:
		o.Losses, err = p.losses(ctx, s.Worktree)
	case doRemove:
		err = p.remove(ctx, s.Worktree, s.Force)
	case doUndo:
		err = p.undo(ctx, s.Worktree)
	case doReclaim:
		err = p.reclaim(ctx, s.Worktree)
	default: // the daemon has another version
		err = fmt.Errorf("unknown step %q: restart corrald (systemctl --user restart corrald)", s.Do)
	}
	return o, err
}

// runStep runs a step through the Runner.
func (g Git) runStep(ctx context.Context, name string, s step) (o outcome, err error) {
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

// runStepOn runs a step on an existing worktree.
func (g Git) runStepOn(ctx context.Context, w Worktree, s step) (outcome, error) {
	s.Worktree = w
	return g.runStep(ctx, filepath.Base(w.Path), s)
}

// repositoryLocks has a channel for each repository, which contains a value while a step changes
// its worktrees or branches: git then reads all worktrees of the repository, and fails if another
// one is only partly created or removed.
var repositoryLocks sync.Map

// lockRepository waits until no other step changes the repository.
func lockRepository(ctx context.Context, repository string) (unlock func(), err error) {
	if path, err := filepath.EvalSymlinks(repository); err == nil {
		repository = path
	}
	value, _ := repositoryLocks.LoadOrStore(repository, make(chan struct{}, 1))
	lock := value.(chan struct{}) //nolint:forcetypeassert // all values have this type
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("git waited too long for another worktree of %q: %w", repository, ctx.Err())
	}
}

// Add creates a worktree, and its branch if that does not exist, at the commit that is checked out
// in Dir. If exactly one remote has a branch of that name, the new branch tracks it. If the branch
// has to be Own and that exists, the error is a *TakenError. Uncommitted changes in Dir stay there.
// The repository's hooks and filters run. Untracked files that match .worktreeinclude in the main
// worktree are copied; nothing is replaced by them.
//
// Add also returns the directory in the worktree that corresponds to Dir. After an error, it
// removes everything; if that fails too, a marker file remains, for Unconfirmed. The caller calls
// Confirm once it has recorded the worktree.
func (g Git) Add(ctx context.Context, r Request) (w Worktree, dir string, err error) {
	plan, err := g.runStep(ctx, r.Name, step{Do: doPlan, Request: r})
	if err != nil {
		return w, "", err
	}
	w, dir, err = g.addPlanned(ctx, r, plan)
	if err != nil || plan.Includes == "" {
		return w, dir, err
	}
	// No lock: this may take long, and git does not need to wait for it.
	if _, err = g.runStepOn(ctx, w, step{Do: doInclude, From: plan.Includes}); err != nil {
		return w, "", errors.Join(err, g.Undo(context.WithoutCancel(ctx), w))
	}
	return w, dir, nil
}

// addPlanned is Add after doPlan, without the files to copy.
func (g Git) addPlanned(ctx context.Context, r Request, plan outcome) (w Worktree, dir string, err error) {
	w = plan.Worktree
	unlock, err := lockRepository(ctx, w.Repository)
	if err != nil {
		return w, "", err
	}
	defer unlock()
	if err := claim(r, &w); err != nil {
		return w, "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.undoAdd(context.WithoutCancel(ctx), w, err))
		}
	}()
	if _, err := g.runStepOn(ctx, w, step{Do: doAdd, Request: r, From: plan.From}); err != nil {
		return w, "", err
	}
	dir = filepath.Join(w.Path, plan.Prefix)
	if info, e := os.Stat(dir); e != nil || !info.IsDir() {
		return w, "", fmt.Errorf("branch %q has no directory %q", w.Branch, filepath.Clean(plan.Prefix))
	}
	return w, dir, nil
}

// undoAdd removes what Add has created before it failed with cause.
func (g Git) undoAdd(ctx context.Context, w Worktree, cause error) error {
	if errors.Is(cause, ErrNotRun) { // only the directory and the marker file exist
		if err := os.Remove(w.Path); err != nil {
			return err
		}
		return w.Confirm()
	}
	return g.undo(ctx, w)
}

func (g Git) undo(ctx context.Context, w Worktree) error {
	if _, err := g.runStepOn(ctx, w, step{Do: doUndo}); err != nil {
		return err
	}
	return w.Confirm()
}

// Undo removes a worktree that Add has created completely or in part, and in which nobody has
// worked. It also deletes a branch that was created for it, unless the branch has changed.
func (g Git) Undo(ctx context.Context, w Worktree) error {
	unlock, err := lockRepository(ctx, w.Repository)
	if err != nil {
		return err
	}
	defer unlock()
	return g.undo(ctx, w)
}

// Reclaim is like Undo, for a worktree from Unconfirmed: somebody else may have found it meanwhile
// and worked there. If there is anything to lose, it fails with a *LossError.
func (g Git) Reclaim(ctx context.Context, w Worktree) error {
	unlock, err := lockRepository(ctx, w.Repository)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := g.runStepOn(ctx, w, step{Do: doReclaim}); err != nil {
		return err
	}
	return w.Confirm()
}

// Losses determines what would be lost with the worktree and its submodules. It runs no program of
// the repository: no hook, filter or transport. If the worktree's directory is missing, only its
// branch and its stashes are examined.
func (g Git) Losses(ctx context.Context, w Worktree) (Losses, error) {
	o, err := g.runStepOn(ctx, w, step{Do: doExamine})
	return o.Losses, err
}

// Remove removes the worktree, and its branch if that was created for it and is merged or pushed.
// If anything would be lost, it fails with a *LossError unless force is set. Even with force, every
// commit is kept on its branch or on one created for it; a branch that was created for the worktree
// and has no commits of its own is deleted in either case. A locked worktree is not removed. No
// hook of the repository runs.
func (g Git) Remove(ctx context.Context, w Worktree, force bool) error {
	unlock, err := lockRepository(ctx, w.Repository)
	if err != nil {
		return err
	}
	defer unlock()
	_, err = g.runStepOn(ctx, w, step{Do: doRemove, Force: force})
	return err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/setup"
	"github.com/corrald/corral/internal/transient"
	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/internal/worktree"
)

// These words, as the only argument, make this program carry out one step with a git worktree, in a
// transient service: gitStep what git does, setupStep a command that sets a worktree up or tears it
// down. git executes the hooks and filters of a repository, which an agent may have written:
// processes that they leave running in the daemon's own control group would be neither ended nor
// limited.
const (
	gitStep   = "worktree-step"
	setupStep = "worktree-setup"
)

// stepFunctions are the functions that carry out these steps.
var stepFunctions = map[string]func(ctx context.Context, input []byte) (output []byte){
	gitStep: worktree.RunStep, setupStep: setup.RunStep,
}

// The limits of one step of git.
const (
	// The supervisor ends a step after 5 minutes: this is for a step whose daemon has exited.
	gitStepTime  = 5*time.Minute + 10*time.Second
	gitStepTasks = 2048
)

// executeWorktreeStep carries out the step described on standard input and writes its result to
// standard output.
func executeWorktreeStep(step func(ctx context.Context, input []byte) (output []byte)) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	input, err := io.ReadAll(os.Stdin)
	if err == nil {
		_, err = os.Stdout.Write(step(ctx, input))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "corrald: cannot carry out a step with a git worktree: %v\n", err)
		return 1
	}
	return 0
}

// runGitStep implements worktree.Runner.
func (p paths) runGitStep(ctx context.Context, name string, input []byte) ([]byte, error) {
	output, err := p.runWorktreeStep(ctx, gitStepTime, input, transient.Service{
		Kind: "worktree", Name: name, Description: "Git worktree of Corral session " + name,
		Argv: []string{p.self, gitStep},
		Properties: []transient.Property{
			{Name: "TasksMax", Value: dbus.MakeVariant(uint64(gitStepTasks))},
			{Name: "MemoryMaxScale", Value: dbus.MakeVariant(uint32(math.MaxUint32 / 2))}, // half of the machine's memory
		},
	})
	switch {
	case errors.Is(err, transient.ErrNotStarted):
		return nil, fmt.Errorf("%w: %w", worktree.ErrNotRun, err)
	case err != nil:
		return nil, fmt.Errorf("git did not complete: %w", err)
	}
	return output, nil
}

// runSetup implements setup.Runner. The command has no other limits than its time, as if the user
// ran it.
func (p paths) runSetup(ctx context.Context, name string, limit time.Duration, input []byte) ([]byte, error) {
	return p.runWorktreeStep(ctx, limit, input, transient.Service{
		Kind: "worktree-setup", Name: name, Description: "Setup of the worktree of Corral session " + name,
		Argv: []string{p.self, setupStep},
	})
}

// runWorktreeStep runs a step as a service. The input contains an environment, so it is not passed
// in a property of the unit: everybody on the bus could read it there. Errors:
// transient.ErrNotStarted.
func (p paths) runWorktreeStep(
	ctx context.Context, limit time.Duration, input []byte, step transient.Service,
) ([]byte, error) {
	conn, err := bus.Dial(ctx, p.bus)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", transient.ErrNotStarted, err)
	}
	defer func() { _ = conn.Close() }()
	step.Slice = unitname.Slice
	output, err := transient.Capture(ctx, conn, step, input, limit)
	if err != nil && !errors.Is(err, transient.ErrNotStarted) && !conn.Connected() {
		return nil, errors.Join(err, p.stopWorktreeSteps(stepStopTimeout)) // a step must end before its effects are undone
	}
	return output, err
}

// How long the daemon waits for steps to end.
const (
	stepStopTimeout      = 20 * time.Second // longer than systemd needs
	finalStepStopTimeout = 5 * time.Second  // when the daemon exits
)

// stopWorktreeSteps stops the running steps and waits for them to end.
func (p paths) stopWorktreeSteps(limit time.Duration) error {
	ctx, cancel := deadline.Context(context.Background(), limit)
	defer cancel()
	conn, err := bus.Dial(ctx, p.bus)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return transient.Stop(ctx, conn, unitname.WorktreeSteps)
}

// endWorktreeSteps stops the steps of an earlier daemon before their effects are undone, and those
// of this one when it exits.
func (d *parts) endWorktreeSteps(limit time.Duration) {
	if err := d.stopWorktreeSteps(limit); err != nil {
		d.log.Warn("git or a setup may still be running in a worktree", "err", err)
	}
}

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
	"github.com/corrald/corral/internal/transient"
	"github.com/corrald/corral/internal/worktree"
)

// worktreeStep is the only argument with which this program is what carries out a step with a git
// worktree, in a transient service. git executes the hooks and filters of a repository, to which an
// agent may have written: in the daemon's control group nothing would end or limit what they leave
// running.
const worktreeStep = "worktree-step"

// worktreeUnits are the transient services of such steps.
const worktreeUnits = "corral-worktree-*.service"

// The limits of one step.
const (
	worktreeStepTime  = 5*time.Minute + 10*time.Second // the supervisor ends one after 5 minutes: this is for a step whose daemon is gone
	worktreeStepTasks = 2048
)

// doWorktreeStep carries out the step on standard input.
func doWorktreeStep() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	input, err := io.ReadAll(os.Stdin)
	if err == nil {
		_, err = os.Stdout.Write(worktree.RunStep(ctx, input))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "corrald: cannot carry out a step with a git worktree: %v\n", err)
		return 1
	}
	return 0
}

// runWorktreeStep implements worktree.Runner. The input, which has the environment of git, is in no
// property of the unit: everybody on the bus could read it there.
func (p places) runWorktreeStep(ctx context.Context, name string, input []byte) ([]byte, error) {
	conn, err := bus.Dial(ctx, p.bus)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", worktree.ErrNotRun, err)
	}
	defer func() { _ = conn.Close() }()
	output, err := transient.Capture(ctx, conn, transient.Service{
		Kind: "worktree", Name: name, Description: "Git worktree of Corral session " + name, Slice: slice, Argv: []string{p.self, worktreeStep},
		Properties: []transient.Property{
			{Name: "TasksMax", Value: dbus.MakeVariant(uint64(worktreeStepTasks))},
			{Name: "MemoryMaxScale", Value: dbus.MakeVariant(uint32(math.MaxUint32 / 2))}, // half of the machine's
		},
	}, input, worktreeStepTime)
	switch {
	case errors.Is(err, transient.ErrNotStarted):
		return nil, fmt.Errorf("%w: %w", worktree.ErrNotRun, err)
	case err != nil && !conn.Connected(): // what has begun has to end before it is undone
		return nil, errors.Join(err, p.stopWorktreeSteps(stepsEndTime))
	case err != nil:
		return nil, fmt.Errorf("git did not exit in time: %w", err)
	}
	return output, nil
}

// How long the end of steps is waited for.
const (
	stepsEndTime     = 20 * time.Second // longer than systemd needs
	stepsEndTimeLast = 5 * time.Second  // at the daemon's own end
)

// stopWorktreeSteps ends the steps that are under way, and waits for that.
func (p places) stopWorktreeSteps(limit time.Duration) error {
	ctx, cancel := deadline.Context(context.Background(), limit)
	defer cancel()
	conn, err := bus.Dial(ctx, p.bus)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return transient.Stop(ctx, conn, worktreeUnits)
}

// endWorktreeSteps ends the steps of an earlier daemon, before what they have begun is undone, and
// those of this one at its end.
func (d *parts) endWorktreeSteps(limit time.Duration) {
	if err := d.stopWorktreeSteps(limit); err != nil {
		d.log.Warn("git may still be running in a worktree", "err", err)
	}
}

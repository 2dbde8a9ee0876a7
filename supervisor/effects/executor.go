// Package effects is the machine as the event loop uses it, the supervisor's System: systemd, tmux,
// shims and processes. Executor carries out what the loop decides.
package effects

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/corrald/corral/dbusapi/word"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/conversations"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/tmux"
	"github.com/corrald/corral/units"
)

// Executor carries out effects. Its methods may be called at the same time.
type Executor struct {
	// TmuxConfig is called with a value of TmuxConfig= and the lines that are invalid there, once a
	// tmux server has read that configuration. It may be nil. It is set before the first effect.
	TmuxConfig func(value string, invalid []tmux.InvalidLine)

	units        *units.Manager
	tmux         *tmux.Tmux
	cgroups      controlGroups
	environments supervisor.Environments
	shim         string // path of corral-shim
	client       string // path of corralctl

	starts       chan struct{}   // contains one element for each start that is being carried out
	reaping      chan tmuxServer // those that reap is to examine
	anticipating atomic.Bool     // anticipateStart is being carried out
}

// maxStarts bounds how many starts are carried out at the same time: each one creates a handful of
// processes and holds the kernel's cgroup lock for some milliseconds.
const maxStarts = 16

// New returns an Executor. Shim is the path of corral-shim, client that of corralctl.
func New(u *units.Manager, t *tmux.Tmux, env supervisor.Environments, shim, client string) (*Executor, error) {
	root, err := proc.CgroupRoot()
	if err != nil {
		return nil, err
	}
	x := &Executor{
		units: u, tmux: t, cgroups: controlGroups{root}, environments: env, shim: shim, client: client,
		starts: make(chan struct{}, maxStarts), reaping: make(chan tmuxServer, maxPendingReaps),
	}
	go x.reap()
	return x, nil
}

// System returns the machine on which the executor carries out effects.
func (x *Executor) System() supervisor.System {
	return supervisor.System{
		Executor: x, Systemd: systemd{x.units, x.client}, Processes: processes{}, ControlGroups: x.cgroups,
		Terminals: terminals{x.tmux}, Environments: x.environments, Conversations: conversations.Detector{},
		Confine: x.confine,
	}
}

// Execute implements supervisor.Executor. A failure to thaw does not prevent the effect.
func (x *Executor) Execute(ctx context.Context, task supervisor.Task, report func(session.Event)) error {
	if session.RequiresThaw(task.Effect) {
		return errors.Join(x.thaw(ctx, task.Target), x.execute(ctx, task, report))
	}
	return x.execute(ctx, task, report)
}

//nolint:cyclop // one case for each effect
func (x *Executor) execute(ctx context.Context, task supervisor.Task, report func(session.Event)) error {
	t := task.Target
	switch e := task.Effect.(type) {
	case session.CreateConversationID:
		return x.createConversation(ctx, task.Plan, report)
	case session.StartScope:
		return x.start(ctx, task.Plan, report)
	case session.RejoinTmux:
		return x.rejoin(ctx, t, task.Plan, report)
	case session.ContinueShim:
		return continueShim(t)
	case session.SignalAgent:
		failpoint.Hit("stop.asked")
		err := signalAgent(t)
		failpoint.Hit("stop.agent-asked")
		return err
	case session.HangUp:
		return hangUp(t)
	case session.SignalAll:
		err := x.signal(ctx, t, word.All, unix.SIGTERM)
		failpoint.Hit("stop.all-asked")
		return err
	case session.KillScope:
		return x.kill(ctx, t)
	case session.CleanUp:
		x.cleanUp(ctx, t)
		return nil
	case session.AnticipateStart:
		x.anticipateStart()
		return nil
	case session.ReleaseScope:
		_ = x.thaw(ctx, t) // systemd refuses to stop a frozen scope
		return x.units.Release(ctx, t.Unit)
	case session.ReapTmux:
		x.reapTmux(t)
		return nil
	case session.ReopenSockets:
		return x.reopenSockets(t)
	case session.Freeze:
		return x.freeze(ctx, t)
	case session.Thaw:
		return x.thaw(ctx, t)
	case session.SendSignal:
		return x.signal(ctx, t, e.Recipient, unix.Signal(e.Signal))
	case session.KillProcess:
		return errors.Join(signalProcess(e.Process, unix.SIGKILL), continueShim(t))
	case session.SetDetachKey:
		return x.setDetachKey(ctx, t, e.Key)
	case session.TypeText:
		return typeText(ctx, t, e)
	case session.PressKeys:
		return x.pressKeys(ctx, t, e)
	case session.SetProperties:
		return x.setProperties(ctx, e)
	}
	return fmt.Errorf("effect %T is carried out by the event loop", task.Effect)
}

// freeze freezes the processes of the scope. If that fails, those that are frozen by then are
// thawed.
func (x *Executor) freeze(ctx context.Context, t supervisor.Target) error {
	err := x.units.Freeze(ctx, t.Unit)
	if err != nil {
		_ = x.thaw(ctx, t)
	}
	return err
}

// thaw thaws the processes of a scope that is frozen itself. If systemd does not do so, or not in
// time, the kernel does.
func (x *Executor) thaw(ctx context.Context, t supervisor.Target) error {
	if frozen, _ := proc.Frozen(t.ControlGroup); !frozen {
		return nil
	}
	err := x.units.Thaw(ctx, t.Unit)
	if frozen, above := proc.Frozen(t.ControlGroup); !frozen || above {
		return nil
	}
	return errors.Join(err, x.cgroups.write(t.ControlGroup, "cgroup.freeze", "0"))
}

// setDetachKey binds the key that detaches terminals from the session.
func (x *Executor) setDetachKey(ctx context.Context, t supervisor.Target, key string) error {
	s, err := tmuxSession(t)
	if err != nil {
		return err
	}
	return x.tmux.ChangeDetachKey(ctx, s, key)
}

// cleanUp removes what a run has left: the failed unit and the runtime directory.
func (x *Executor) cleanUp(ctx context.Context, t supervisor.Target) {
	_ = x.units.ResetFailed(ctx, t.Unit)
	_ = x.units.Unwatch(ctx, t.Unit)
	_ = os.RemoveAll(t.RuntimeDir)
}

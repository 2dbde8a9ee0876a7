// Package effects carries out what the event loop decides: it is the supervisor's System, made of
// systemd, tmux, shims and processes.
package effects

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/conversations"
	"github.com/corrald/corral/supervisor/environments"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/tmux"
	"github.com/corrald/corral/units"
)

// Executor implements the interfaces of supervisor.System. Its methods may be called at the same
// time.
type Executor struct {
	Units        *units.Manager
	Tmux         *tmux.Tmux
	Shim         string                 // path of corral-shim
	Environments *environments.Composer // of the environments of agents

	// TmuxConfig is called with a value of TmuxConfig= and the lines that are invalid there, once a
	// tmux server has read that configuration. It may be nil.
	TmuxConfig func(value string, invalid []tmux.InvalidLine)

	cgroups      string // mount point of the cgroup hierarchy
	starts       chan struct{}
	anticipating atomic.Bool // AnticipateStart is being carried out
}

// maxStarts bounds how many starts are carried out at the same time: each one creates a handful of
// processes and holds the kernel's cgroup lock for some milliseconds.
const maxStarts = 16

// New returns an Executor that uses systemd and tmux. RuntimeDir is $XDG_RUNTIME_DIR/corral.
func New(u *units.Manager, t *tmux.Tmux, shim, runtimeDir string) (*Executor, error) {
	root, err := proc.CgroupRoot()
	if err != nil {
		return nil, fmt.Errorf("cannot find the cgroup v2 hierarchy: %w", err)
	}
	return &Executor{
		Units: u, Tmux: t, Shim: shim, Environments: environments.NewComposer(u.Environment, shim, runtimeDir, t.BusAddr),
		cgroups: root, starts: make(chan struct{}, maxStarts),
	}, nil
}

// System returns the machine as an event loop uses it.
func (x *Executor) System() supervisor.System {
	return supervisor.System{
		Executor: x, Systemd: x, Processes: x, ControlGroups: x, Terminals: x,
		Environments: x.Environments, Conversations: conversations.Detector{},
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
		return x.continueShim(t)
	case session.SignalAgent:
		failpoint.Hit("stop.asked")
		err := x.signalAgent(t)
		failpoint.Hit("stop.agent-asked")
		return err
	case session.HangUp:
		return x.hangUp(t)
	case session.SignalAll:
		err := x.signal(ctx, t, session.RecipientAll, unix.SIGTERM)
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
	case session.UnwatchScope:
		return x.Units.Unwatch(ctx, t.Unit)
	case session.ReleaseScope:
		return x.releaseScope(ctx, t)
	case session.ReapTmux:
		return x.reapTmux(ctx, t)
	case session.ReopenSockets:
		return x.reopenSockets(t)
	case session.Freeze:
		return x.freeze(ctx, t)
	case session.Thaw:
		return x.thaw(ctx, t)
	case session.SendSignal:
		return x.signal(ctx, t, e.Recipient, unix.Signal(e.Signal))
	case session.KillProcess:
		return errors.Join(signalProcess(e.Process, unix.SIGKILL), x.continueShim(t))
	case session.SetDetachKey:
		return x.setDetachKey(ctx, t, e.Key)
	case session.TypeText:
		return x.typeText(ctx, t, e)
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
	err := x.Units.Freeze(ctx, t.Unit)
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
	err := x.Units.Thaw(ctx, t.Unit)
	if frozen, above := proc.Frozen(t.ControlGroup); !frozen || above {
		return nil
	}
	return errors.Join(err, x.write(t.ControlGroup, "cgroup.freeze", "0"))
}

// write writes to a file of a control group.
func (x *Executor) write(group, name, text string) error {
	return os.WriteFile(x.file(group, name), []byte(text), 0) //nolint:forbidigo // a file of the kernel
}

// setDetachKey binds the key that detaches terminals from the session.
func (x *Executor) setDetachKey(ctx context.Context, t supervisor.Target, key string) error {
	s, err := x.session(t)
	if err != nil {
		return err
	}
	return x.Tmux.ChangeDetachKey(ctx, s, key)
}

// releaseScope has systemd end an empty scope whose end it has not noticed. systemd refuses to stop
// a frozen scope.
func (x *Executor) releaseScope(ctx context.Context, t supervisor.Target) error {
	_ = x.thaw(ctx, t)
	return x.Units.Release(ctx, t.Unit)
}

// cleanUp removes what a run has left: the failed unit and the runtime directory.
func (x *Executor) cleanUp(ctx context.Context, t supervisor.Target) {
	_ = x.Units.ResetFailed(ctx, t.Unit)
	_ = x.Units.Unwatch(ctx, t.Unit)
	_ = os.RemoveAll(t.RuntimeDir)
}

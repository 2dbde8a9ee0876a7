package effects

import (
	"context"
	"slices"

	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/tmux"
)

// terminals implements supervisor.Terminals.
type terminals struct{ tmux *tmux.Tmux }

// tmuxSession returns the tmux session of a run.
func tmuxSession(t supervisor.Target) (tmux.Session, error) {
	s, err := tmux.NewSession(t.RuntimeDir, t.ID)
	s.ServerPID, s.AgentExited = t.Tmux.PID, t.AgentEnded
	return s, err
}

// FindTmux implements supervisor.Terminals. It finds the session's tmux server by its arguments,
// because the process exists before its socket. A server has a pane to show if it has a child
// process: a pane also stays when its program has exited, but then that exit was recorded.
func (terminals) FindTmux(t supervisor.Target) (server session.Process, hasPane bool) {
	s, err := tmuxSession(t)
	if err != nil {
		return server, false
	}
	pids, err := candidates(t.ControlGroup)
	if err != nil {
		return server, false
	}
	for _, pid := range pids {
		args, err := proc.Arguments(pid)
		if err != nil || !tmux.IsServer(s, args) {
			continue
		}
		st, err := proc.Stat(pid)
		if err != nil || isFork(s, st.Parent) {
			continue
		}
		if has := hasChild(pids, pid); server.PID == 0 || has {
			server, hasPane = session.Process(st.Identity), has
		}
	}
	return server, hasPane
}

// candidates returns the processes of a control group, or all processes if group is "".
func candidates(group string) ([]int, error) {
	if group == "" {
		return proc.All()
	}
	return proc.Processes(group)
}

// isFork reports whether a process that has the arguments of the session's tmux server was forked
// by that server and has not executed another program yet: then its parent has these arguments,
// too.
func isFork(s tmux.Session, parent int) bool {
	args, err := proc.Arguments(parent)
	return err == nil && tmux.IsServer(s, args)
}

// hasChild reports whether one of the processes is a child of parent and has not exited.
func hasChild(pids []int, parent int) bool {
	return slices.ContainsFunc(pids, func(pid int) bool {
		st, err := proc.Stat(pid)
		return err == nil && st.Parent == parent && st.State != 'Z'
	})
}

// IsTmuxResponding implements supervisor.Terminals.
func (x terminals) IsTmuxResponding(ctx context.Context, t supervisor.Target) bool {
	s, err := tmuxSession(t)
	return err == nil && x.tmux.IsResponding(ctx, s)
}

// IsAttached implements supervisor.Terminals: tmux makes its socket executable as long as a client
// is attached.
func (terminals) IsAttached(t supervisor.Target) bool {
	s, err := tmuxSession(t)
	return err == nil && s.IsAttached()
}

// Capture implements supervisor.Terminals.
func (x terminals) Capture(ctx context.Context, t supervisor.Target, lines int, escapes bool) (string, error) {
	s, err := tmuxSession(t)
	if err != nil {
		return "", err
	}
	return x.tmux.Capture(ctx, s, lines, escapes)
}

// AttachCommand implements supervisor.Terminals.
func (x terminals) AttachCommand(ctx context.Context, t supervisor.Target) ([]string, error) {
	s, err := tmuxSession(t)
	if err != nil {
		return nil, err
	}
	return x.tmux.AttachCommand(ctx, s), nil
}

// DialShim implements supervisor.Terminals.
func (terminals) DialShim(t supervisor.Target) (fd int, shim session.Process, err error) {
	return dialShim(t)
}

package ground

import (
	"slices"

	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/tmux"
)

// TmuxServer finds the session's tmux server by what it was executed with: it is there before it has a socket. It shows something if it has a child:
// panes stay when their program has ended, but then the exit of that was recorded.
func (g *Ground) TmuxServer(t supervisor.Target) (server session.Process, shows bool) {
	s, err := g.session(t)
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
			server, shows = session.Process(st.Identity), has
		}
	}
	return server, shows
}

func candidates(group string) ([]int, error) {
	if group == "" {
		return proc.All()
	}
	return proc.Processes(group)
}

// isFork tells whether a process is one that its tmux server has forked and that has not executed anything yet: its parent looks the same.
func isFork(s tmux.Session, parent int) bool {
	args, err := proc.Arguments(parent)
	return err == nil && tmux.IsServer(s, args)
}

func hasChild(pids []int, parent int) bool {
	return slices.ContainsFunc(pids, func(pid int) bool {
		st, err := proc.Stat(pid)
		return err == nil && st.Parent == parent && st.State != 'Z'
	})
}

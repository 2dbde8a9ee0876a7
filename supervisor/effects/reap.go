package effects

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/supervisor"
)

// reapTmux checks the tmux server after minReapWait, and then at intervals that double until they
// reach maxReapWait: the shim needs a moment to exit.
const (
	minReapWait = 10 * time.Millisecond
	maxReapWait = 3 * time.Second
)

// reapTmux makes the tmux server of a session notice that the programs of its panes have exited. A
// server before tmux 3.6 that uses libutempter loses a SIGCHLD that arrives while it waits for the
// helper of that library: its pane never becomes dead, and the program in it remains a zombie. On
// another SIGCHLD, the server reaps all of them.
func (x *Executor) reapTmux(ctx context.Context, t supervisor.Target) error {
	for wait := minReapWait; wait < maxReapWait && ctx.Err() == nil; wait *= 2 {
		waited, cancel := deadline.Context(ctx, wait)
		<-waited.Done()
		cancel()
		x.reaping <- struct{}{}
		zombie, child := childrenOf(t)
		<-x.reaping
		if zombie {
			if err := signalProcess(t.Tmux, unix.SIGCHLD); err != nil {
				return err
			}
		}
		if !child {
			return nil
		}
	}
	return nil
}

// childrenOf reports whether the session's tmux server has a child that is a zombie, and whether it
// has any child.
func childrenOf(t supervisor.Target) (zombie, child bool) {
	children, err := proc.Children(t.Tmux.PID)
	if err != nil { // a kernel without CONFIG_PROC_CHILDREN, or the server has exited
		children = []int{t.Shim.PID}
	}
	for _, pid := range children {
		if st, err := proc.Stat(pid); err == nil && st.Parent == t.Tmux.PID {
			child = true
			zombie = zombie || st.State == 'Z'
		}
	}
	return zombie, child
}

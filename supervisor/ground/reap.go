package ground

import (
	"context"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/supervisor"
)

// The tmux server of a session whose agent has ended is looked at soon, and then less and less often: the shim needs a moment to exit.
const (
	firstReap = 10 * time.Millisecond
	lastReap  = 3 * time.Second
)

// Reap has the tmux server of a session notice that programs of its panes have ended. A server before tmux 3.6 that uses libutempter
// loses a SIGCHLD that arrives while it waits for the helper of that library: its pane never becomes dead, and the program in it stays
// a zombie. Another SIGCHLD makes the server wait for all of them.
func (g *Ground) Reap(ctx context.Context, t supervisor.Target) error {
	for wait := firstReap; wait < lastReap && ctx.Err() == nil; wait *= 2 {
		waited, cancel := deadline.Context(ctx, wait)
		<-waited.Done()
		cancel()
		zombie, child := childrenOf(t)
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

// childrenOf reports whether the session's tmux server has any child, and whether it has one that has ended.
func childrenOf(t supervisor.Target) (zombie, child bool) {
	pid := strconv.Itoa(t.Tmux.PID)
	list, err := proc.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
	if err != nil { // a kernel without CONFIG_PROC_CHILDREN, or the server has ended
		list = strconv.AppendInt(nil, int64(t.Shim.PID), 10)
	}
	for field := range strings.FieldsSeq(string(list)) {
		n, err := strconv.Atoi(field)
		if err != nil {
			continue
		}
		if st, err := proc.Stat(n); err == nil && st.Parent == t.Tmux.PID {
			child = true
			zombie = zombie || st.State == 'Z'
		}
	}
	return zombie, child
}

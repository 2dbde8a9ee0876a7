package effects

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/clock"
	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

// A tmux server is examined after minReapWait, and then at intervals that double until they reach
// maxReapWait: the shim needs a moment to exit.
const (
	minReapWait = 10 * time.Millisecond
	maxReapWait = 3 * time.Second
)

// maxPendingReaps is how many tmux servers can wait until reap receives them.
const maxPendingReaps = 64

// tmuxServer is a tmux server that reap examines.
type tmuxServer struct {
	process session.Process
	shim    int           // PID of its session's shim
	wait    time.Duration // before the next examination
	next    time.Duration // time of the next examination, by CLOCK_MONOTONIC
}

// reapTmux makes the tmux server of a session notice that the programs of its panes have exited. A
// server before tmux 3.6 that uses libutempter loses a SIGCHLD that arrives while it waits for the
// helper of that library: its pane never becomes dead, and the program in it remains a zombie. On
// another SIGCHLD, the server reaps all of them.
//
// It returns at once. One goroutine examines all servers: when a daemon adopts hundreds of sessions
// whose agents have ended, as many goroutines would leave their stacks behind.
func (x *Executor) reapTmux(t supervisor.Target) {
	x.reaping <- tmuxServer{t.Tmux, t.Shim.PID, minReapWait, clock.Monotonic() + minReapWait}
}

// reap examines tmux servers. It does not return.
func (x *Executor) reap() {
	var servers []tmuxServer
	due := make(chan struct{})
	var timer *deadline.Timer
	for {
		select {
		case s := <-x.reaping:
			servers = append(servers, s)
		case <-due:
		}
		if timer != nil {
			timer.Stop()
		}
		now := clock.Monotonic()
		servers = slices.DeleteFunc(servers, func(s tmuxServer) bool { return s.next <= now && s.isReaped() })
		if len(servers) == 0 {
			continue
		}
		next := maxReapWait
		for i := range servers {
			if s := &servers[i]; s.next <= now {
				s.wait *= 2
				s.next = now + s.wait
			}
			next = min(next, servers[i].next-now)
		}
		timer = deadline.AfterFunc(next, func() { due <- struct{}{} })
	}
}

// isReaped reports whether the server has no child any more, or was examined often enough. It
// signals a server that has a zombie.
func (s tmuxServer) isReaped() bool {
	zombie, child := s.children()
	if zombie {
		_ = signalProcess(s.process, unix.SIGCHLD) // if that fails, the next examination repeats it
	}
	return !child || 2*s.wait >= maxReapWait
}

// children reports whether the server has a child that is a zombie, and whether it has any child.
func (s tmuxServer) children() (zombie, child bool) {
	children, err := proc.Children(s.process.PID)
	if err != nil { // a kernel without CONFIG_PROC_CHILDREN, or the server has exited
		children = []int{s.shim}
	}
	for _, pid := range children {
		if st, err := proc.Stat(pid); err == nil && st.Parent == s.process.PID {
			child = true
			zombie = zombie || st.State == 'Z'
		}
	}
	return zombie, child
}

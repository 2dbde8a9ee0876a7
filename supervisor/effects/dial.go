package effects

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

// DialShim implements supervisor.Terminals. If another process than the run's shim listens at the
// socket, the error is a *supervisor.ForeignSocketError and nothing was sent.
//
// This detects a socket with which another process has replaced that of the shim. It is not a
// security boundary: a process of the same user can also trace the shim.
func (x *Executor) DialShim(t supervisor.Target) (int, session.Process, error) {
	fd, err := shimwire.Dial(t.ShimSocket())
	if err != nil {
		return -1, session.Process{}, err
	}
	shim, err := listeningShim(fd, t)
	if err != nil {
		_ = unix.Close(fd)
		return -1, session.Process{}, err
	}
	return fd, shim, nil
}

// listeningShim returns the process that called listen(2) for the other end of the connection
// (SO_PEERCRED in unix(7)), if it is the run's shim.
func listeningShim(fd int, t supervisor.Target) (session.Process, error) {
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return session.Process{}, fmt.Errorf("cannot determine which process listens on %q: %w", t.ShimSocket(), err)
	}
	pid := int(peer.Pid)
	group, _ := proc.Cgroup(pid)
	st, err := proc.Stat(pid)
	if err != nil || !isShimOf(t, st, group) {
		return session.Process{}, &supervisor.ForeignSocketError{Path: t.ShimSocket(), PID: pid, ControlGroup: group}
	}
	return session.Process(st.Identity), nil
}

// isShimOf reports whether a process is the run's shim. A known shim is recognized by its PID and
// start time, even if it was moved to another control group. Before its first Hello, and in a
// record of an older daemon, which lacks the start time, the shim is recognized by its control
// group or as a child of the run's tmux server: a tmux that moves panes into scopes of their own
// moves the shim too, and the daemon needs that shim to end the agent.
func isShimOf(t supervisor.Target, st proc.Status, group string) bool {
	if t.Shim.PID != 0 && t.Shim.Start != 0 {
		return session.Process(st.Identity) == t.Shim
	}
	if t.Shim.PID != 0 && st.PID != t.Shim.PID {
		return false
	}
	return isInScope(t, group) || t.Tmux.PID != 0 && st.Parent == t.Tmux.PID
}

// isInScope reports whether a control group is the run's scope or below it. If the run's control
// group is not known, the name of the run's unit in the path decides.
func isInScope(t supervisor.Target, group string) bool {
	if t.ControlGroup == "" {
		return t.Unit != "" && strings.Contains(group+"/", "/"+t.Unit+"/")
	}
	return group == t.ControlGroup || strings.HasPrefix(group, t.ControlGroup+"/")
}

// Parent implements supervisor.Processes.
func (x *Executor) Parent(pid int) int {
	st, err := proc.Stat(pid)
	if err != nil {
		return 0
	}
	return st.Parent
}

// IsRunning implements supervisor.Processes. The kernel reports by the pidfd that a process has
// exited, before wait4(2) returns the status, but not before its last thread has exited
// (pidfd_open(2)).
func (x *Executor) IsRunning(p session.Process) bool {
	fd, err := proc.OpenPidfd(proc.Identity(p))
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	for {
		exited, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if err != unix.EINTR { // as after any pending signal, such as the SIGCHLD of another child
			return err == nil && exited == 0
		}
	}
}

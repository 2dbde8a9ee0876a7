package ground

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

// DialShim connects to the shim of a run. It returns the socket, which the caller owns, and the
// process that listens there. Where that process is not the run's shim, the error is a
// *supervisor.ForeignSocketError and nothing was sent.
//
// This detects a socket that another process has put in the place of the shim's. It is no boundary:
// a process of the same user can also trace the shim.
func (g *Ground) DialShim(t supervisor.Target) (int, session.Process, error) {
	fd, err := shimwire.Dial(t.ShimSocket())
	if err != nil {
		return -1, session.Process{}, err
	}
	shim, err := peerOf(fd, t)
	if err != nil {
		_ = unix.Close(fd)
		return -1, session.Process{}, err
	}
	return fd, shim, nil
}

// peerOf returns the process that called listen(2) for the other end of the connection (SO_PEERCRED
// in unix(7)), if it is the run's shim.
func peerOf(fd int, t supervisor.Target) (session.Process, error) {
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return session.Process{}, fmt.Errorf("cannot find out which process listens on %q: %w", t.ShimSocket(), err)
	}
	pid := int(peer.Pid)
	group, _ := proc.Cgroup(pid)
	st, err := proc.Stat(pid)
	if err != nil || !isShimOf(t, st, group) {
		return session.Process{}, &supervisor.ForeignSocketError{Path: t.ShimSocket(), PID: pid, ControlGroup: group}
	}
	return session.Process(st.Identity), nil
}

// isShimOf tells whether a process is the run's shim: the one that is known, wherever that has been
// moved since. Before its first Hello, and in a record of an older daemon, which lacks the start
// time, it is recognized by its control group, or as the child of the run's tmux server: a tmux
// that moves panes into scopes of their own takes the shim there, and the daemon has to learn of it
// to end that agent.
func isShimOf(t supervisor.Target, st proc.Status, group string) bool {
	if t.Shim.PID != 0 && t.Shim.Start != 0 {
		return session.Process(st.Identity) == t.Shim
	}
	if t.Shim.PID != 0 && st.PID != t.Shim.PID {
		return false
	}
	return isInScope(t, group) || t.Tmux.PID != 0 && st.Parent == t.Tmux.PID
}

// isInScope tells whether a control group is the run's scope or below it. A run whose control group
// is not known has its unit's name.
func isInScope(t supervisor.Target, group string) bool {
	if t.ControlGroup == "" {
		return t.Unit != "" && strings.Contains(group+"/", "/"+t.Unit+"/")
	}
	return group == t.ControlGroup || strings.HasPrefix(group, t.ControlGroup+"/")
}

// Parent returns the parent of a process, 0 if the process has ended.
func (g *Ground) Parent(pid int) int {
	st, err := proc.Stat(pid)
	if err != nil {
		return 0
	}
	return st.Parent
}

// Running tells whether exactly this process has not ended. The kernel reports the end of a process
// by its pidfd before wait4(2) returns its status, and only once its last thread has ended
// (pidfd_open(2)). Where it cannot be asked, the answer is false.
func (g *Ground) Running(p session.Process) bool {
	fd, err := proc.OpenPidfd(proc.Identity(p))
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	for {
		ended, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		if err != unix.EINTR { // which a signal that is pending makes of it, such as the end of any child
			return err == nil && ended == 0
		}
	}
}

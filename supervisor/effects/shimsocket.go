package effects

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

// dialShim connects to the run's shim. It returns the connection, which the caller owns, and the
// process that listens at the socket. If that is another process, the error is a
// *supervisor.ForeignSocketError and nothing was sent.
//
// This detects a socket with which another process has replaced that of the shim. It is not a
// security boundary: a process of the same user can also trace the shim.
func dialShim(t supervisor.Target) (int, session.Process, error) {
	fd, err := shimwire.Dial(t.ShimSocket())
	if err != nil {
		return -1, session.Process{}, fmt.Errorf("cannot connect to a shim: %w", err)
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

// reopenSockets makes the shim of a run, and its tmux server, recreate sockets that were removed,
// as both do at SIGUSR1. Errors: ErrNoShim.
func (x *Executor) reopenSockets(t supervisor.Target) error {
	fd := openShim(t)
	if fd < 0 {
		return supervisor.ErrNoShim
	}
	defer func() { _ = unix.Close(fd) }()
	if !x.isShim(t.Shim.PID) || proc.WaitExit(fd, 0) { // SIGUSR1 would kill another program
		return supervisor.ErrNoShim
	}
	removeForeignSocket(t)
	if err := os.MkdirAll(t.RuntimeDir, 0o700); err != nil {
		return err
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGUSR1, nil, 0); err != nil {
		return errors.Join(supervisor.ErrNoShim, err)
	}
	if s, err := tmuxSession(t); err == nil && t.Tmux.PID != 0 {
		if _, err := os.Lstat(s.Socket); errors.Is(err, fs.ErrNotExist) {
			_ = signalProcess(t.Tmux, unix.SIGUSR1)
		}
	}
	return nil
}

// isShim reports whether a process executes corral-shim, by its name, of which the kernel keeps 15
// bytes (proc_pid_comm(5)).
func (x *Executor) isShim(pid int) bool {
	st, err := proc.Stat(pid)
	name := filepath.Base(x.shim)
	return err == nil && st.Comm == name[:min(len(name), 15)]
}

// removeForeignSocket removes a file at the path of the shim's socket that is not that socket: a
// socket of another process, one on which no process listens, or another type of file. It renames a
// directory that is not empty. The shim, which is running, recreates its socket.
func removeForeignSocket(t supervisor.Target) {
	conn, _, err := dialShim(t)
	switch {
	case err == nil:
		_ = unix.Close(conn)
	case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOENT) && os.Remove(t.ShimSocket()) != nil:
		_, _ = atomicfile.SetAside(t.ShimSocket())
	}
}

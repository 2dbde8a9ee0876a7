package effects

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

// signalAgent sends SIGTERM to the agent's process, and with StopAll to each process of the scope
// except the shim and tmux. It then sends SIGCONT, because a stopped process could not exit. It
// continues the shim as well, because a stopped shim could not record the exit.
func (x *Executor) signalAgent(t supervisor.Target) error {
	if err := x.continueShim(t); err != nil {
		return err
	}
	signal := func(s unix.Signal) error {
		err := signalProcess(t.Agent, s)
		if err == nil && t.StopAll {
			err = x.signalLeftovers(t, s)
		}
		return err
	}
	if err := signal(unix.SIGTERM); err != nil {
		return err
	}
	if err := x.hangUp(t); err != nil {
		return err
	}
	return signal(unix.SIGCONT)
}

// hangUp sends SIGHUP to an agent that ignores SIGTERM but not SIGHUP. An interactive shell does
// so: it exits when its terminal is closed, which the kernel reports by SIGHUP.
func (x *Executor) hangUp(t supervisor.Target) error {
	if !proc.IgnoresSignal(t.Agent.PID, unix.SIGTERM) || proc.IgnoresSignal(t.Agent.PID, unix.SIGHUP) {
		return nil
	}
	return signalProcess(t.Agent, unix.SIGHUP)
}

// continueShim sends SIGCONT to the run's shim and to its tmux server.
func (x *Executor) continueShim(t supervisor.Target) error {
	var failed error
	if t.Shim.Start != 0 {
		failed = signalProcess(t.Shim, unix.SIGCONT)
	} else if shim := x.openShim(t); shim >= 0 { // a record of an older daemon lacks the start time
		failed = sendSignal(shim, t.Shim.PID, unix.SIGCONT)
		_ = unix.Close(shim)
	}
	if t.Tmux.PID != 0 {
		failed = errors.Join(failed, signalProcess(t.Tmux, unix.SIGCONT))
	}
	return failed
}

// signal sends a signal to the agent, to all processes of the scope or to leftover processes only,
// as recipient, one of session's Recipient constants, specifies. It continues the shim, so that the
// shim can record an exit, unless the signal stops processes or is only for leftover processes.
func (x *Executor) signal(ctx context.Context, t supervisor.Target, recipient string, signal unix.Signal) error {
	var err error
	switch recipient {
	case session.RecipientAgent:
		err = signalProcess(t.Agent, signal)
	case session.RecipientAll:
		err = x.Units.Kill(ctx, t.Unit, signal)
	default:
		return x.signalLeftovers(t, signal)
	}
	switch signal {
	case unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
		return err
	}
	return errors.Join(err, x.continueShim(t))
}

// signalLeftovers sends a signal to each process of the scope except the agent, the shim and tmux.
func (x *Executor) signalLeftovers(t supervisor.Target, signal unix.Signal) error {
	pids, err := proc.Processes(t.ControlGroup)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var failed error
	for _, pid := range pids {
		if pid != t.Agent.PID && pid != t.Shim.PID && pid != t.Tmux.PID {
			failed = errors.Join(failed, signalMember(pid, t.ControlGroup, signal))
		}
	}
	return failed
}

// signalMember signals the process with this PID if it is in the control group, or in one below it.
// The PID may have been reused since it was listed, so the control group is read after the pidfd
// was opened, which refers to one process only. It is not an error if the process has exited.
func signalMember(pid int, group string, signal unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot signal process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if in, err := proc.Cgroup(pid); err != nil || in != group && !strings.HasPrefix(in, group+"/") {
		return nil
	}
	return sendSignal(fd, pid, signal)
}

// signalProcess signals exactly this process. It is not an error if the process has exited.
func signalProcess(p session.Process, signal unix.Signal) error {
	fd, err := proc.OpenPidfd(proc.Identity(p))
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot signal process %d: %w", p.PID, err)
	}
	defer func() { _ = unix.Close(fd) }()
	return sendSignal(fd, p.PID, signal)
}

// sendSignal signals the process of a pidfd. It is not an error if the process has exited.
func sendSignal(pidfd, pid int, signal unix.Signal) error {
	if err := unix.PidfdSendSignal(pidfd, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cannot signal process %d: %w", pid, err)
	}
	return nil
}

// exitRecordTime bounds how long a shim may take to record the exit of an agent that was killed.
const exitRecordTime = time.Second

// kill kills all processes of the scope. It first kills the agent and its leftover processes, so
// that the shim can record the agent's exit. Then the kernel kills the whole control group at once,
// from which no process can escape by forking.
func (x *Executor) kill(ctx context.Context, t supervisor.Target) error {
	if shim := x.openShim(t); shim >= 0 {
		_ = x.continueShim(t)
		_ = x.signalLeftovers(t, unix.SIGKILL)
		_ = signalProcess(t.Agent, unix.SIGKILL)
		proc.WaitExit(shim, exitRecordTime)
		_ = unix.Close(shim)
	}
	if t.Agent.PID != 0 {
		_ = signalProcess(t.Agent, unix.SIGKILL) // the agent may have left its scope
	}
	if x.write(t.ControlGroup, "cgroup.kill", "1") == nil {
		return nil
	}
	return x.Units.Kill(ctx, t.Unit, unix.SIGKILL) // Linux before 5.14, or the control group is not known yet
}

// reopenSockets makes the shim of a run, and its tmux server, recreate sockets that were removed,
// as both do at SIGUSR1. Errors: ErrNoShim.
func (x *Executor) reopenSockets(t supervisor.Target) error {
	fd := x.openShim(t)
	if fd < 0 {
		return supervisor.ErrNoShim
	}
	defer func() { _ = unix.Close(fd) }()
	if !x.isShim(t.Shim.PID) || proc.WaitExit(fd, 0) { // SIGUSR1 would kill another program
		return supervisor.ErrNoShim
	}
	x.removeForeignSocket(t)
	if err := os.MkdirAll(t.RuntimeDir, 0o700); err != nil {
		return err
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGUSR1, nil, 0); err != nil {
		return errors.Join(supervisor.ErrNoShim, err)
	}
	if s, err := x.session(t); err == nil && t.Tmux.PID != 0 {
		if _, err := os.Lstat(s.Socket); errors.Is(err, fs.ErrNotExist) {
			_ = signalProcess(t.Tmux, unix.SIGUSR1)
		}
	}
	return nil
}

// removeForeignSocket removes a file at the path of the shim's socket that is not that socket: a
// socket of another process, one on which no process listens, or another type of file. It renames a
// directory that is not empty. The shim, which is running, recreates its socket.
func (x *Executor) removeForeignSocket(t supervisor.Target) {
	conn, _, err := x.DialShim(t)
	switch {
	case err == nil:
		_ = unix.Close(conn)
	case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOENT) && os.Remove(t.ShimSocket()) != nil:
		_ = os.Rename(t.ShimSocket(), t.ShimSocket()+".damaged")
	}
}

// openShim returns a pidfd of the run's shim, which the caller owns. It returns -1 if there is no
// shim, or no agent whose exit the shim could record.
func (x *Executor) openShim(t supervisor.Target) int {
	if t.Shim.PID == 0 || t.Agent.PID == 0 {
		return -1
	}
	fd, err := unix.PidfdOpen(t.Shim.PID, 0)
	if err != nil {
		return -1
	}
	// The PID may have been reused.
	if group, err := proc.Cgroup(t.Shim.PID); err != nil || group != t.ControlGroup {
		_ = unix.Close(fd)
		return -1
	}
	return fd
}

// isShim reports whether a process executes corral-shim, by its name, of which the kernel keeps 15
// bytes (proc_pid_comm(5)).
func (x *Executor) isShim(pid int) bool {
	st, err := proc.Stat(pid)
	name := filepath.Base(x.Shim)
	return err == nil && st.Comm == name[:min(len(name), 15)]
}

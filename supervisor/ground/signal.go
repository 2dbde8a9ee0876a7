package ground

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

// End asks the agent to end, by SIGTERM: its own process alone, or, if the target says so, each of the session's that is neither the shim nor tmux. One that is
// stopped is let go on, or it could not; so is the shim, or nobody would record its end.
func (g *Ground) End(ctx context.Context, t supervisor.Target) error {
	if err := g.Continue(ctx, t); err != nil {
		return err
	}
	signal := func(s unix.Signal) error {
		err := signalProcess(t.Agent, s)
		if err == nil && t.AskAll {
			err = g.signalLeftovers(t, s)
		}
		return err
	}
	if err := signal(unix.SIGTERM); err != nil {
		return err
	}
	if err := g.HangUp(ctx, t); err != nil {
		return err
	}
	return signal(unix.SIGCONT)
}

// HangUp sends SIGHUP to an agent that ignores SIGTERM: an interactive shell does, and this is how a terminal tells it to end.
func (g *Ground) HangUp(_ context.Context, t supervisor.Target) error {
	if !proc.IgnoresSignal(t.Agent.PID, unix.SIGTERM) || proc.IgnoresSignal(t.Agent.PID, unix.SIGHUP) {
		return nil
	}
	return signalProcess(t.Agent, unix.SIGHUP)
}

// Continue sends SIGCONT to the run's shim and to its tmux server.
func (g *Ground) Continue(_ context.Context, t supervisor.Target) error {
	var failed error
	if t.Shim.Start != 0 {
		failed = signalProcess(t.Shim, unix.SIGCONT)
	} else if shim := g.shimOf(t); shim >= 0 { // a record of an older daemon lacks the start time
		failed = sendSignal(shim, t.Shim.PID, unix.SIGCONT)
		_ = unix.Close(shim)
	}
	if t.Tmux.PID != 0 {
		failed = errors.Join(failed, signalProcess(t.Tmux, unix.SIGCONT))
	}
	return failed
}

// Signal sends a signal to one of the Whom constants. The shim is continued, so that it can record
// what comes of that, unless the signal is one that stops.
func (g *Ground) Signal(ctx context.Context, t supervisor.Target, whom string, signal unix.Signal) error {
	var err error
	switch whom {
	case supervisor.WhomAgent:
		err = signalProcess(t.Agent, signal)
	case supervisor.WhomAll:
		err = g.Units.Kill(ctx, t.Unit, signal)
	default:
		return g.signalLeftovers(t, signal)
	}
	switch signal {
	case unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
		return err
	}
	return errors.Join(err, g.Continue(ctx, t))
}

func (g *Ground) signalLeftovers(t supervisor.Target, signal unix.Signal) error {
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

// signalMember signals the process with this number if it is in the control group, or in one below
// it. The number may be another process's by the time that it is used, so the group is read after
// the pidfd was opened: the descriptor stays with one process. One that is gone is no error.
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

// signalProcess signals exactly this process. One that is gone is no error.
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

// sendSignal signals the process of a pidfd. One that is gone is no error.
func sendSignal(pidfd, pid int, signal unix.Signal) error {
	if err := unix.PidfdSendSignal(pidfd, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cannot signal process %d: %w", pid, err)
	}
	return nil
}

// recordTime is how long a shim whose agent was killed may take to record that.
const recordTime = time.Second

// Kill ends every process of the scope: the agent and its leftovers first, so that the shim can record how the agent has ended, then the kernel
// does it for the whole control group at once, so that nothing can fork away.
func (g *Ground) Kill(ctx context.Context, t supervisor.Target) error {
	if shim := g.shimOf(t); shim >= 0 {
		_ = g.Continue(ctx, t)
		_ = g.signalLeftovers(t, unix.SIGKILL)
		_ = signalProcess(t.Agent, unix.SIGKILL)
		proc.WaitExit(shim, recordTime)
		_ = unix.Close(shim)
	}
	if t.Agent.PID != 0 {
		_ = signalProcess(t.Agent, unix.SIGKILL) // which may have left its scope
	}
	if g.write(t.ControlGroup, "cgroup.kill", "1") == nil {
		return nil
	}
	return g.Units.Kill(ctx, t.Unit, unix.SIGKILL) // Linux before 5.14, or nobody knows of the scope yet
}

// Reopen has the shim of a run, and its tmux server, make their sockets anew where somebody has removed them, as both do at SIGUSR1, and tells whether the shim
// lives.
func (g *Ground) Reopen(t supervisor.Target) bool {
	fd := g.shimOf(t)
	if fd < 0 {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	if !g.isShim(t.Shim.PID) || proc.WaitExit(fd, 0) { // any other process would end by the signal
		return false
	}
	g.removeForeign(t)
	if os.MkdirAll(t.RuntimeDir, 0o700) != nil || unix.PidfdSendSignal(fd, unix.SIGUSR1, nil, 0) != nil {
		return false
	}
	if s, err := g.session(t); err == nil && t.Tmux.PID != 0 {
		if _, err := os.Lstat(s.Socket); errors.Is(err, fs.ErrNotExist) {
			_ = signalProcess(t.Tmux, unix.SIGUSR1)
		}
	}
	return true
}

// removeForeign removes what is in the place of the shim's socket and is not its: the socket of another process, one that nobody listens on, or no socket at
// all. A directory that is not empty is set aside. The shim, which lives, makes its socket anew.
func (g *Ground) removeForeign(t supervisor.Target) {
	conn, _, err := g.DialShim(t)
	switch {
	case err == nil:
		_ = unix.Close(conn)
	case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOENT) && os.Remove(t.ShimSocket()) != nil:
		_ = os.Rename(t.ShimSocket(), t.ShimSocket()+".damaged")
	}
}

// shimOf returns a pidfd of the run's shim, -1 if there is none, or no agent that it could record the end of.
func (g *Ground) shimOf(t supervisor.Target) int {
	if t.Shim.PID == 0 || t.Agent.PID == 0 {
		return -1
	}
	fd, err := unix.PidfdOpen(t.Shim.PID, 0)
	if err != nil {
		return -1
	}
	// The number may be another process's by now.
	if group, err := proc.Cgroup(t.Shim.PID); err != nil || group != t.ControlGroup {
		_ = unix.Close(fd)
		return -1
	}
	return fd
}

// isShim tells whether a process executes what shims do, by its name, of which the kernel keeps 15 bytes (proc_pid_comm(5)).
func (g *Ground) isShim(pid int) bool {
	st, err := proc.Stat(pid)
	name := filepath.Base(g.Shim)
	return err == nil && st.Comm == name[:min(len(name), 15)]
}

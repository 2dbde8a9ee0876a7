package effects

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/corrald/corral/dbusapi/word"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

// signalAgent sends SIGTERM to the agent's process, and with StopAll to each process of the scope
// except the shim and tmux. It then sends SIGCONT, because a stopped process could not exit. It
// continues the shim as well, because a stopped shim could not record the exit.
func signalAgent(t supervisor.Target) error {
	if err := continueShim(t); err != nil {
		return err
	}
	signal := func(s unix.Signal) error {
		err := signalProcess(t.Agent, s)
		if err == nil && t.StopAll {
			err = signalLeftovers(t, s)
		}
		return err
	}
	if err := signal(unix.SIGTERM); err != nil {
		return err
	}
	if err := hangUp(t); err != nil {
		return err
	}
	return signal(unix.SIGCONT)
}

// hangUp sends SIGHUP to an agent that ignores SIGTERM but not SIGHUP. An interactive shell does
// so: it exits when its terminal is closed, which the kernel reports by SIGHUP.
func hangUp(t supervisor.Target) error {
	if !proc.IgnoresSignal(t.Agent.PID, unix.SIGTERM) || proc.IgnoresSignal(t.Agent.PID, unix.SIGHUP) {
		return nil
	}
	return signalProcess(t.Agent, unix.SIGHUP)
}

// signal sends a signal to the agent, to all processes of the scope or to leftover processes only,
// as recipient (word.Agent, All or Leftovers) specifies. It continues the shim, so that the
// shim can record an exit, unless the signal stops processes or is only for leftover processes.
func (x *Executor) signal(ctx context.Context, t supervisor.Target, recipient string, signal unix.Signal) error {
	var err error
	switch recipient {
	case word.Agent:
		err = signalProcess(t.Agent, signal)
	case word.All:
		err = x.units.Kill(ctx, t.Unit, signal)
	default:
		return signalLeftovers(t, signal)
	}
	switch signal {
	case unix.SIGSTOP, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU:
		return err
	}
	return errors.Join(err, continueShim(t))
}

// exitRecordTime bounds how long a shim may take to record the exit of an agent that was killed.
const exitRecordTime = time.Second

// kill kills all processes of the scope. It first kills the leftover processes and then the agent,
// so that the shim can record the agent's exit. After that, the kernel kills the whole control
// group at once, from which no process can escape by forking.
func (x *Executor) kill(ctx context.Context, t supervisor.Target) error {
	if shim := openShim(t); shim >= 0 {
		_ = continueShim(t)
		_ = signalLeftovers(t, unix.SIGKILL)
		_ = signalProcess(t.Agent, unix.SIGKILL)
		proc.WaitExit(shim, exitRecordTime)
		_ = unix.Close(shim)
	}
	if t.Agent.PID != 0 {
		_ = signalProcess(t.Agent, unix.SIGKILL) // the agent may have left its scope
	}
	if x.cgroups.write(t.ControlGroup, "cgroup.kill", "1") == nil {
		return nil
	}
	return x.units.Kill(ctx, t.Unit, unix.SIGKILL) // Linux before 5.14, or the control group is not known yet
}

// signalLeftovers sends a signal to each process of the scope except the agent, the shim and tmux.
func signalLeftovers(t supervisor.Target, signal unix.Signal) error {
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

// continueShim sends SIGCONT to the run's shim and to its tmux server.
func continueShim(t supervisor.Target) error {
	var failed error
	if t.Shim.Start != 0 {
		failed = signalProcess(t.Shim, unix.SIGCONT)
	} else if shim := openShim(t); shim >= 0 { // a record of an older daemon lacks the start time
		failed = sendSignal(shim, t.Shim.PID, unix.SIGCONT)
		_ = unix.Close(shim)
	}
	if t.Tmux.PID != 0 {
		failed = errors.Join(failed, signalProcess(t.Tmux, unix.SIGCONT))
	}
	return failed
}

// openShim returns a pidfd of the run's shim, which the caller owns. It returns -1 if there is no
// shim, or no agent whose exit the shim could record.
func openShim(t supervisor.Target) int {
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

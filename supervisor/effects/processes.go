package effects

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/tmux"
)

// processes implements supervisor.Processes.
type processes struct{}

// OpenPidfd implements supervisor.Processes. It reaps the process if that is an exited tmux server
// which this daemon has started: no other code reaps it.
func (processes) OpenPidfd(p session.Process) (int, bool) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return -1, false
	}
	// Checked after the open: the descriptor refers to one process, even if its PID is reused.
	st, err := proc.Stat(p.PID)
	is := err == nil && session.Process(st.Identity) == p
	if is && st.State != 'Z' {
		return fd, true
	}
	_ = unix.Close(fd)
	if is {
		tmux.Reap(p.PID)
	}
	return -1, false
}

// Reap implements supervisor.Processes.
func (processes) Reap(pid int) { tmux.Reap(pid) }

// IsRunning implements supervisor.Processes.
func (processes) IsRunning(p session.Process) bool {
	fd, err := proc.OpenPidfd(proc.Identity(p))
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return !proc.WaitExit(fd, 0)
}

// Parent implements supervisor.Processes.
func (processes) Parent(pid int) int {
	st, _ := proc.Stat(pid)
	return st.Parent
}

// ControlGroup implements supervisor.Processes.
func (processes) ControlGroup(pid int) string {
	group, _ := proc.Cgroup(pid)
	return group
}

// CommandLine implements supervisor.Processes.
func (processes) CommandLine(pid int) (args []string, dir string, err error) {
	args, err = proc.Arguments(pid)
	if err == nil && len(args) == 0 {
		err = fmt.Errorf("process %d has exited", pid)
	}
	if err != nil {
		return nil, "", err
	}
	dir, err = os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))
	return args, strings.TrimSuffix(dir, " (deleted)"), err
}

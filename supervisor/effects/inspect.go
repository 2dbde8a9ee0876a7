package effects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/tmux"
)

// IsFrozen implements supervisor.ControlGroups.
func (x *Executor) IsFrozen(group string) bool {
	frozen, _ := proc.Frozen(group)
	return frozen
}

// EventsFile implements supervisor.ControlGroups.
func (x *Executor) EventsFile(group string) string {
	return x.file(group, "cgroup.events")
}

// file returns the path of a control group's file, "" for a run that has no control group yet:
// joined to the mount point, an empty name would denote the root of the hierarchy.
func (x *Executor) file(group, name string) string {
	if group = filepath.Clean("/" + group); group == "/" {
		return ""
	}
	return filepath.Join(x.cgroups, group, name)
}

// StopCause implements supervisor.Systemd.
func (x *Executor) StopCause(ctx context.Context, unit string) (supervisor.StopCause, error) {
	cause, err := x.Units.StopCause(ctx, unit)
	return supervisor.StopCause(cause), err
}

// StartTime implements supervisor.Systemd.
func (x *Executor) StartTime(ctx context.Context) (time.Duration, error) {
	return x.Units.StartTime(ctx)
}

// IsStopping implements supervisor.Systemd. If systemd does not answer in time, the result is
// false: agents are not ended because of a guess. At worst systemd ends them, which suspends them
// as well.
func (x *Executor) IsStopping(ctx context.Context) bool {
	state, err := x.Units.State(ctx)
	return err == nil && state == "stopping"
}

// IsTmuxResponding implements supervisor.Terminals.
func (x *Executor) IsTmuxResponding(ctx context.Context, t supervisor.Target) bool {
	s, err := x.session(t)
	return err == nil && x.Tmux.IsResponding(ctx, s)
}

// session returns the tmux session of a run.
func (x *Executor) session(t supervisor.Target) (tmux.Session, error) {
	s, err := tmux.NewSession(t.RuntimeDir, t.ID)
	s.ServerPID, s.AgentExited = t.Tmux.PID, t.AgentEnded
	return s, err
}

// OpenPidfd implements supervisor.Processes. It reaps the process if that is an exited tmux server
// which this daemon has started: nothing else waits for that.
func (x *Executor) OpenPidfd(p session.Process) (int, bool) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return -1, false
	}
	// Checked after the open: the descriptor refers to one process, even if its PID is reused.
	st, err := proc.Stat(p.PID)
	if err != nil || st.State == 'Z' || session.Process(st.Identity) != p {
		_ = unix.Close(fd)
		if err == nil && session.Process(st.Identity) == p {
			tmux.Reap(p.PID)
		}
		return -1, false
	}
	return fd, true
}

// Abandon implements supervisor.Systemd.
func (x *Executor) Abandon(ctx context.Context, units []string) ([]string, error) {
	return x.Units.Abandon(ctx, units)
}

// Scopes implements supervisor.Systemd.
func (x *Executor) Scopes(ctx context.Context) ([]supervisor.Scope, error) {
	all, err := x.Units.List(ctx, "app-corral-*.scope")
	if err != nil {
		return nil, err
	}
	scopes := make([]supervisor.Scope, 0, len(all))
	for _, u := range all {
		scopes = append(scopes, supervisor.Scope{
			Name: u.Name, InvocationID: u.InvocationID, ControlGroup: u.ControlGroup, Result: u.Result, TimedOut: u.TimedOutAt,
			Stopping: u.Active == "deactivating" || u.Active == "active" && u.HasStopJob,
			Active:   u.Active == "active" || u.Active == "deactivating" || u.Active == "activating",
		})
	}
	return scopes, nil
}

// PulledIn implements supervisor.Systemd.
func (x *Executor) PulledIn(ctx context.Context) ([]string, error) {
	return x.Units.PulledIn(ctx, "corral@", ".service")
}

// WatchScopes implements supervisor.Systemd.
func (x *Executor) WatchScopes(ctx context.Context, units []string) error {
	return x.Units.Watch(ctx, units...)
}

// ControlGroup implements supervisor.Processes.
func (x *Executor) ControlGroup(pid int) string {
	group, err := proc.Cgroup(pid)
	if err != nil {
		return ""
	}
	return group
}

// CommandLine implements supervisor.Processes.
func (x *Executor) CommandLine(pid int) (args []string, dir string, err error) {
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

// dyingTime bounds how long the processes of a control group may take to exit after they were
// killed, one after the other.
const dyingTime = 250 * time.Millisecond

// IsPopulated implements supervisor.ControlGroups.
func (x *Executor) IsPopulated(group string) bool { return proc.IsPopulated(group) }

// StaysPopulated implements supervisor.ControlGroups. It waits up to dyingTime for the control
// group to be empty. The kernel reports each change of cgroup.events by POLLPRI, and zombies do not
// count (Documentation/admin-guide/cgroup-v2.rst).
func (x *Executor) StaysPopulated(group string) bool {
	events, err := os.Open(x.file(group, "cgroup.events")) //nolint:forbidigo // a file of the kernel
	if err != nil {
		return false
	}
	defer func() { _ = events.Close() }()
	text := make([]byte, 256)
	for deadline := time.Now().Add(dyingTime); ; {
		n, err := events.ReadAt(text, 0)
		if !strings.Contains(string(text[:n]), "populated 1") || err != nil && !errors.Is(err, io.EOF) {
			return false
		}
		left := time.Until(deadline)
		if left <= 0 {
			return true
		}
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}, int(left.Milliseconds())+1)
	}
}

// Capture implements supervisor.Terminals.
func (x *Executor) Capture(ctx context.Context, t supervisor.Target, lines int, escapes bool) (string, error) {
	s, err := x.session(t)
	if err != nil {
		return "", err
	}
	return x.Tmux.Capture(ctx, s, lines, escapes)
}

// IsAttached implements supervisor.Terminals: tmux makes its socket executable as long as a client
// is attached.
func (x *Executor) IsAttached(t supervisor.Target) bool {
	s, err := x.session(t)
	return err == nil && s.IsAttached()
}

// AttachCommand implements supervisor.Terminals.
func (x *Executor) AttachCommand(ctx context.Context, t supervisor.Target) ([]string, error) {
	s, err := x.session(t)
	if err != nil {
		return nil, err
	}
	return x.Tmux.AttachCommand(ctx, s), nil
}

// usageFiles maps D-Bus properties to the files of the control group that contain their values.
var usageFiles = map[string]string{
	"MemoryCurrent": "memory.current",
	"MemoryPeak":    "memory.peak",
	"TasksCurrent":  "pids.current",
}

// Usage implements supervisor.ControlGroups. A controller that is not delegated to the user's
// systemd has no files.
func (x *Executor) Usage(group string) map[string]uint64 {
	usage := map[string]uint64{}
	for property, name := range usageFiles {
		if n, err := readNumber(x.file(group, name)); err == nil {
			usage[property] = n
		}
	}
	if _, ok := usage["TasksCurrent"]; !ok {
		if pids, err := proc.Processes(group); err == nil {
			usage["TasksCurrent"] = uint64(len(pids))
		}
	}
	stat, _ := proc.ReadFile(x.file(group, "cpu.stat"))
	if n, ok := cpuUsage(string(stat)); ok {
		usage["CPUUsageNSec"] = n
	}
	return usage
}

// cpuUsage returns the CPU time in the content of cpu.stat, in nanoseconds.
func cpuUsage(stat string) (uint64, bool) {
	for line := range strings.SplitSeq(stat, "\n") {
		if v, ok := strings.CutPrefix(line, "usage_usec "); ok {
			n, err := strconv.ParseUint(v, 10, 64)
			return n * 1000, err == nil && n <= math.MaxUint64/1000
		}
	}
	return 0, false
}

// readNumber reads the number that a file of the kernel contains.
func readNumber(path string) (uint64, error) {
	b, err := proc.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
}

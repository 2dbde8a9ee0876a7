// Package ground does what the supervisor's loop decides: with systemd's scopes, tmux servers, shims and processes.
package ground

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
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/loginshell"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/tmux"
	"github.com/corrald/corral/units"
)

// Ground is the supervisor's World. Its methods may be called at the same time.
type Ground struct {
	Units      *units.Manager
	Tmux       *tmux.Tmux
	Shim       string // path of corral-shim
	RuntimeDir string // $XDG_RUNTIME_DIR/corral

	Trouble func(error) // told why not all is known of what the login shell sets, nil that it is; nil where nobody wants to know

	// TmuxConfig is called with a value of TmuxConfig= when a tmux server has read what it names, and with what is invalid there. It may be nil.
	TmuxConfig func(value string, invalid []tmux.InvalidLine)

	loginShell *loginshell.Shell
	cgroups    string // mount point of the cgroup hierarchy
	starts     chan struct{}
	expecting  atomic.Bool // ExpectStart is under way
}

var _ supervisor.World = (*Ground)(nil)

// startsAtATime bounds the starts that are under way: each one is a handful of processes and some milliseconds of the kernel's cgroup lock.
const startsAtATime = 16

// New makes a Ground of systemd and tmux.
func New(u *units.Manager, t *tmux.Tmux, shim, runtimeDir string) (*Ground, error) {
	root, err := proc.CgroupRoot()
	if err != nil {
		return nil, fmt.Errorf("cannot find the cgroup v2 hierarchy: %w", err)
	}
	g := &Ground{Units: u, Tmux: t, Shim: shim, RuntimeDir: runtimeDir, cgroups: root, starts: make(chan struct{}, startsAtATime)}
	g.loginShell = loginshell.New(g.startShell, shim)
	return g, nil
}

// Freeze holds every process of the scope.
func (g *Ground) Freeze(ctx context.Context, t supervisor.Target) error {
	return g.Units.Freeze(ctx, t.Unit)
}

// Thaw lets the processes of a scope that was frozen by itself go on. Where systemd does not do it, in time or at all, the kernel does.
func (g *Ground) Thaw(ctx context.Context, t supervisor.Target) error {
	if frozen, _ := proc.Frozen(t.ControlGroup); !frozen {
		return nil
	}
	err := g.Units.Thaw(ctx, t.Unit)
	if frozen, above := proc.Frozen(t.ControlGroup); !frozen || above {
		return nil
	}
	return errors.Join(err, g.write(t.ControlGroup, "cgroup.freeze", "0"))
}

// Follow returns where a path leads to.
func (g *Ground) Follow(path string) (string, error) { return filepath.EvalSymlinks(path) }

// Frozen tells whether the control group is frozen, by itself or with one above it.
func (g *Ground) Frozen(group string) bool {
	frozen, _ := proc.Frozen(group)
	return frozen
}

// FreezerFile is the file of which inotify tells when that changes.
func (g *Ground) FreezerFile(group string) string {
	return g.file(group, "cgroup.events")
}

// file is the path of a control group's file. A run that is not in its scope yet has no control group, and so no file: joined as it is, an empty name would
// be that of the whole hierarchy.
func (g *Ground) file(group, name string) string {
	if group = filepath.Clean("/" + group); group == "/" {
		return ""
	}
	return filepath.Join(g.cgroups, group, name)
}

// write writes to a control group's file.
func (g *Ground) write(group, name, text string) error {
	return os.WriteFile(g.file(group, name), []byte(text), 0) //nolint:forbidigo // the kernel's
}

// StopCause tells why systemd wants the scope to be stopped.
func (g *Ground) StopCause(ctx context.Context, unit string) (supervisor.StopCause, error) {
	cause, err := g.Units.StopCause(ctx, unit)
	return supervisor.StopCause(cause), err
}

// Began tells when the user manager was started, by CLOCK_MONOTONIC.
func (g *Ground) Began(ctx context.Context) (time.Duration, error) { return g.Units.StartTime(ctx) }

// Stopping tells whether the whole user manager is stopping. Where it cannot be asked, or not in time, agents are not ended for a guess: left alone
// they are at worst ended by systemd, and suspended all the same.
func (g *Ground) Stopping(ctx context.Context) bool {
	state, err := g.Units.State(ctx)
	return err == nil && state == "stopping"
}

// TmuxAnswers tells whether the session's tmux server answers.
func (g *Ground) TmuxAnswers(ctx context.Context, t supervisor.Target) bool {
	s, err := g.session(t)
	return err == nil && g.Tmux.IsResponding(ctx, s)
}

// SetDetachKey makes a key detach terminals from the session, whose tmux server runs.
func (g *Ground) SetDetachKey(ctx context.Context, t supervisor.Target, key string) error {
	s, err := g.session(t)
	if err != nil {
		return err
	}
	return g.Tmux.ChangeDetachKey(ctx, s, key)
}

func (g *Ground) session(t supervisor.Target) (tmux.Session, error) {
	s, err := tmux.NewSession(t.RuntimeDir, t.ID)
	s.ServerPID, s.AgentExited = t.Tmux.PID, t.Ended
	return s, err
}

// Release has systemd end a scope that is empty and that systemd has not noticed to be. systemd
// refuses to stop a frozen scope.
func (g *Ground) Release(ctx context.Context, t supervisor.Target) error {
	_ = g.Thaw(ctx, t)
	return g.Units.Release(ctx, t.Unit)
}

// Clear takes away what a run has left behind.
func (g *Ground) Clear(ctx context.Context, unit, dir string) {
	_ = g.Units.ResetFailed(ctx, unit)
	_ = g.Units.Unwatch(ctx, unit)
	_ = os.RemoveAll(dir)
}

// Alive tells whether exactly this tmux server lives, and gives a pidfd of it. One that has ended is collected if this daemon has started it: nobody waits
// for it.
func (g *Ground) Alive(p session.Process) (int, bool) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return -1, false
	}
	// Looked at after the open: the descriptor stays with one process, whoever gets its number.
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

// Abandon implements supervisor.World.
func (g *Ground) Abandon(ctx context.Context, units []string) ([]string, error) {
	return g.Units.Abandon(ctx, units)
}

// Scopes lists the scopes of ours that systemd knows.
func (g *Ground) Scopes(ctx context.Context) ([]supervisor.Scope, error) {
	all, err := g.Units.List(ctx, "app-corral-*.scope")
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

// PulledIn returns the ids of the sessions whose unit, corral@ID.service, a timer or another unit starts.
func (g *Ground) PulledIn(ctx context.Context) ([]string, error) {
	return g.Units.PulledIn(ctx, "corral@", ".service")
}

// Watch has systemd tell of scopes that were there already.
func (g *Ground) Watch(ctx context.Context, units []string) error {
	return g.Units.Watch(ctx, units...)
}

// Forget ends what Watch and Start have begun.
func (g *Ground) Forget(ctx context.Context, unit string) error { return g.Units.Unwatch(ctx, unit) }

// ControlGroup tells in which control group a process is, "" if it is gone.
func (g *Ground) ControlGroup(pid int) string {
	group, err := proc.Cgroup(pid)
	if err != nil {
		return ""
	}
	return group
}

// Shown tells what a process shows of itself.
func (g *Ground) Shown(pid int) (args []string, dir string, err error) {
	args, err = proc.Arguments(pid)
	if err == nil && len(args) == 0 {
		err = fmt.Errorf("process %d has ended", pid)
	}
	if err != nil {
		return nil, "", err
	}
	dir, err = os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))
	return args, strings.TrimSuffix(dir, " (deleted)"), err
}

// dyingTime is how long processes that were killed, one after the other, may take to be gone.
const dyingTime = 250 * time.Millisecond

// Occupied tells whether the control group has processes at this moment.
func (g *Ground) Occupied(group string) bool { return proc.IsPopulated(group) }

// Populated tells whether the control group has processes, other than those that are about to die: it waits until it is empty, for dyingTime at
// most. The kernel tells of each change of cgroup.events by POLLPRI, and zombies do not count (its cgroup-v2 document).
func (g *Ground) Populated(group string) bool {
	events, err := os.Open(g.file(group, "cgroup.events")) //nolint:forbidigo // the kernel's
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

// Capture reads the session's screen.
func (g *Ground) Capture(ctx context.Context, t supervisor.Target, lines int, escapes bool) (string, error) {
	s, err := g.session(t)
	if err != nil {
		return "", err
	}
	return g.Tmux.Capture(ctx, s, lines, escapes)
}

// Attached tells whether somebody is attached to the session's terminal: tmux lets its socket be executed for as long as somebody is.
func (g *Ground) Attached(t supervisor.Target) bool {
	s, err := g.session(t)
	return err == nil && s.IsAttached()
}

// AttachCommand returns the argument vector that attaches a terminal.
func (g *Ground) AttachCommand(ctx context.Context, t supervisor.Target) ([]string, error) {
	s, err := g.session(t)
	if err != nil {
		return nil, err
	}
	return g.Tmux.AttachCommand(ctx, s), nil
}

// usageFiles maps the D-Bus properties to the files of the control group that have them.
var usageFiles = map[string]string{
	"MemoryCurrent": "memory.current",
	"MemoryPeak":    "memory.peak",
	"TasksCurrent":  "pids.current",
}

// Usage reads what a control group uses. A controller that the user's systemd was not given has no files.
func (g *Ground) Usage(group string) map[string]uint64 {
	usage := map[string]uint64{}
	for property, name := range usageFiles {
		if n, err := readNumber(g.file(group, name)); err == nil {
			usage[property] = n
		}
	}
	if _, ok := usage["TasksCurrent"]; !ok {
		if pids, err := proc.Processes(group); err == nil {
			usage["TasksCurrent"] = uint64(len(pids))
		}
	}
	stat, _ := proc.ReadFile(g.file(group, "cpu.stat"))
	if n, ok := cpuUsage(string(stat)); ok {
		usage["CPUUsageNSec"] = n
	}
	return usage
}

// cpuUsage finds the processor's time in the text of cpu.stat, in nanoseconds.
func cpuUsage(stat string) (uint64, bool) {
	for line := range strings.SplitSeq(stat, "\n") {
		if v, ok := strings.CutPrefix(line, "usage_usec "); ok {
			n, err := strconv.ParseUint(v, 10, 64)
			return n * 1000, err == nil && n <= math.MaxUint64/1000
		}
	}
	return 0, false
}

func readNumber(path string) (uint64, error) {
	b, err := proc.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
}

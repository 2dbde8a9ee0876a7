package supervisor

import (
	"context"
	"errors"
	"time"

	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/sandbox"
	"github.com/corrald/corral/supervisor/conversations"
	"github.com/corrald/corral/supervisor/environments"
	"github.com/corrald/corral/supervisor/session"
)

// System is the machine as the event loop uses it: Executor changes what belongs to a session, the
// others read and watch. There are exceptions: Systemd.Abandon gives scopes back to systemd,
// Systemd.SetContinueTimer sets timers, Processes reaps tmux servers that have exited, and
// Environments may run the login shell and updates the link to the user's ssh-agent. All of them
// are called at the same time by several goroutines. A method without a context does not block,
// unless its comment states that.
type System struct {
	Executor      Executor
	Systemd       Systemd
	Processes     Processes
	ControlGroups ControlGroups
	Terminals     Terminals
	Environments  Environments
	Conversations Conversations
	// Confine returns the command that sets a sandbox up, and the variables that its programs get. The
	// Workspace of the request, and what the program needs beyond that, is set by the caller. Without
	// a confinement, there is no such command, and the variables are unchanged.
	Confine func(
		c *Confinement, r sandbox.Request, variables []environment.Variable,
	) (sandbox.Command, []environment.Variable, error)
	// ResolvePath returns the path without symbolic links. It blocks as long as a file system does not
	// respond. Nil stands for filepath.EvalSymlinks.
	ResolvePath func(path string) (string, error)
}

// Executor carries out effects.
type Executor interface {
	// Execute carries out the effect of the task and returns once that is done. It calls report for
	// each step of an effect that has steps worth recording (StartScope, RejoinTmux,
	// CreateConversationID), before the next step. The error is nil if the effect was carried out;
	// the loop turns it into the result of the effect. After an error, nothing of StartScope is left,
	// and RejoinTmux has changed nothing. Errors that callers distinguish: *Error (SetProperties with
	// a property that systemd rejects), *ForeignSocketError and unix.ENOENT for the shim's socket
	// (TypeText, PressKeys), *NotAskedError and ErrOldShim (PressKeys with Asked). A text and keys are
	// sent to no process but the run's shim.
	Execute(ctx context.Context, t Task, report func(session.Event)) error
}

// Task is an effect with all that is necessary to carry it out.
type Task struct {
	Effect session.Effect
	Target Target // the run whose processes are concerned
	Plan   Plan   // of StartScope, RejoinTmux and CreateConversationID
}

// ErrNoShim is returned by ReopenSockets if the shim of the run does not run.
var ErrNoShim = errors.New("the shim does not run")

// Systemd reads and watches the scopes that the user's systemd has, and gives them back to it
// (Abandon) or sets timers (SetContinueTimer).
type Systemd interface {
	// Scopes lists the scopes of sessions.
	Scopes(ctx context.Context) ([]Scope, error)
	// Watch makes systemd report the ends of scopes that an earlier daemon has started.
	Watch(ctx context.Context, units ...string) error
	// Unwatch ends that, and the watch of each start: the scopes have ended.
	Unwatch(ctx context.Context, units ...string) error
	// Abandon leaves these scopes to systemd: if they are stopped from now on, systemd sends SIGTERM
	// itself, instead of leaving that to the daemon. It returns the names of those that systemd has
	// begun to stop before.
	Abandon(ctx context.Context, units []string) (stopping []string, err error)
	// PulledIn returns the ids of the sessions whose unit, corral@ID.service, is started by a timer or
	// by another unit.
	PulledIn(ctx context.Context) ([]string, error)
	// StopCause returns why systemd stops the scope.
	StopCause(ctx context.Context, unit string) (StopCause, error)
	// SetContinueTimer sets the timer that continues a session after its usage limit has reset, also
	// if the daemon does not run by then. A zero time removes it.
	SetContinueTimer(ctx context.Context, id string, at time.Time) error
	// StartTime returns when the user manager was started, by CLOCK_MONOTONIC.
	StartTime(ctx context.Context) (time.Duration, error)
	// IsStopping reports whether the whole user manager is stopping. If that cannot be determined,
	// the result is false.
	IsStopping(ctx context.Context) bool
}

// systemdTimeout limits a query to systemd that is not part of a client's call.
const systemdTimeout = 30 * time.Second

// Scope is a session's scope that systemd has.
type Scope struct {
	Name, InvocationID, ControlGroup string
	Active                           bool
	Stopping                         bool // it is being stopped, and is not empty yet
	Result                           string
	TimedOut                         time.Duration // by CLOCK_MONOTONIC: when RuntimeMaxSec= ended it, 0 if it did not
}

// StopCause is what systemd knows about why it stops a scope.
type StopCause struct {
	Result string // so far: timeout for RuntimeMaxSec=; "" if it is unknown
	// Since is the earliest time, by CLOCK_MONOTONIC, at which systemd may have sent SIGTERM to the
	// processes. It is 0 if only the daemon sends signals, or if the time is unknown.
	Since time.Duration
}

// Processes reads what the kernel knows about processes.
type Processes interface {
	// OpenPidfd returns a pidfd of exactly this process, which the caller owns; alive is false if it
	// has exited.
	OpenPidfd(p session.Process) (pidfd int, alive bool)
	// Reap reaps a tmux server that has exited, if this daemon has started it. A server that an
	// earlier daemon has started is a child of systemd by now.
	Reap(pid int)
	// IsRunning reports whether exactly this process has not exited, false if that cannot be
	// determined.
	IsRunning(p session.Process) bool
	// Parent returns the parent of a process, 0 if the process has exited.
	Parent(pid int) int
	// ControlGroup returns the control group of a process, "" if the process has exited.
	ControlGroup(pid int) string
	// CommandLine returns the arguments and the working directory of a process.
	CommandLine(pid int) (args []string, dir string, err error)
}

// ControlGroups reads the control groups of scopes, which are named as in /proc/PID/cgroup.
type ControlGroups interface {
	// IsPopulated reports whether the control group has processes at this moment.
	IsPopulated(group string) bool
	// StaysPopulated is IsPopulated, but blocks for a moment until processes that were just killed are
	// gone.
	StaysPopulated(group string) bool
	// IsFrozen reports whether the control group is frozen, by itself or with one above it.
	IsFrozen(group string) bool
	// EventsFile returns the path of the file that inotify reports as modified if one of the above
	// changes.
	EventsFile(group string) string
	// Usage returns what the control group uses. It returns false if there is no such group.
	Usage(group string) (u proc.Usage, exists bool)
}

// Terminals finds and reads the tmux servers and the shims of sessions.
type Terminals interface {
	// FindTmux finds the session's tmux server in the run's control group, or anywhere if the target
	// has none. The process is zero if there is no server. HasPane reports whether the server has a
	// pane.
	FindTmux(t Target) (server session.Process, hasPane bool)
	// IsTmuxResponding reports whether the session's tmux server responds.
	IsTmuxResponding(ctx context.Context, t Target) bool
	// IsAttached reports whether a client is attached to the session's terminal.
	IsAttached(t Target) bool
	// Capture returns the screen and the last lines of the history.
	Capture(ctx context.Context, t Target, lines int, escapes bool) (string, error)
	// AttachCommand returns the command that attaches a terminal.
	AttachCommand(ctx context.Context, t Target) ([]string, error)
	// DialShim connects to the run's shim. It returns the socket, which the caller owns, and the
	// process that listens there. If that is another process, the error is a *ForeignSocketError.
	DialShim(t Target) (fd int, shim session.Process, err error)
}

// Environments composes the environments of runs, and finds programs in them: an
// environments.Composer, whose methods these are. It may run the login shell.
type Environments interface {
	Compose(ctx context.Context, s environments.Sources, session, dir string) ([]environment.Variable, error)
	FindProgram(ctx context.Context, program, dir string, s environments.Sources) error
}

// Conversations detects which conversation an agent has: a conversations.Detector, whose methods
// these are. It reads files of the agent, and may block like ResolvePath.
type Conversations interface {
	DetectOpen(group string, agent int, file conversations.OpenFile) conversations.Opened
	DetectPrinted(dir string, p conversations.Printed, variables conversations.Variables) string
}

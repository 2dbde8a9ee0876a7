// Package supervisor owns all sessions: it decides, saves, publishes, and starts effects.
//
// One goroutine, the event loop, owns all state; others post functions to its mailbox. One
// iteration drains the mailbox, applies the events, saves, publishes, and then starts effects. The
// loop waits for nothing but the store: whatever takes time is an effect. Another goroutine carries
// it out, and posts the result as an event. The effects that the loop decides for one session run
// one after the other, except for immediate ones (session.IsImmediate).
//
// Supervisor is the interface of the package: its methods are the calls of clients and the events
// of the machine. loop is the event loop, and entry is one session in it; what they consist of has
// types of its own. Their methods are called by the event loop only, unless a comment on the method
// or its type permits other goroutines.
package supervisor

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/corrald/corral/internal/clock"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/setup"
	"github.com/corrald/corral/internal/trust"
	"github.com/corrald/corral/internal/worktree"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/sources"
)

// Records stores the records of sessions. SyncExit makes the record of an exit durable, and
// KeepExit writes one that was found elsewhere. Save, SyncExit and KeepExit are called for
// different sessions at the same time.
type Records interface {
	Create(id string) error
	Save(rec *session.Session, writer string) error
	SyncExit(id string) error
	KeepExit(id string, status exitstatus.Status) error
	Remove(id string) error
	SessionDir(id string) string
}

// Options configures a Supervisor.
type Options struct {
	System    System
	Config    config.Config
	Agents    config.Agents
	Records   Records
	Publisher Publisher
	// OpenWatchers is called again after an error; nil for sources.Open.
	OpenWatchers func() (sources.Inotify, sources.Notifier, error)
	Poller       sources.Poller // closed by Run, like the results of OpenWatchers
	Log          *slog.Logger
	Version      string
	BootID       string
	RuntimeDir   string       // $XDG_RUNTIME_DIR/corral
	Home         string       // for specifiers
	ConfigHome   string       // for specifiers: $XDG_CONFIG_HOME or ~/.config
	ShareDir     string       // for specifiers: the directory of the files that Corral provides for agents
	WorktreeDir  string       // of the sessions' git worktrees: $XDG_DATA_HOME/corral/worktrees
	SandboxDir   string       // of the sandboxes' private directories: $XDG_CACHE_HOME/corral/sandboxes
	Git          worktree.Git // creates, examines and removes them
	RunSetup     setup.Runner // runs the commands that set them up and tear them down
	Approvals    trust.Approvals
	Clocks       Clocks
	Callbacks    Callbacks
}

// Clocks are the clocks and timers of a Supervisor. Each of them may be nil.
type Clocks struct {
	SinceBoot func() time.Duration // a clock that cannot be set; nil for clock.SinceBoot
	Monotonic func() time.Duration // a clock that stops while the machine sleeps; nil for clock.Monotonic
	AfterFunc deadline.Start       // nil for deadline.Real
}

// Callbacks are the functions by which the event loop reports what concerns the daemon as a whole,
// and how often it calls one of them. Each function may be nil. They must not block, and must not
// call the Supervisor.
type Callbacks struct {
	KeepAlive         func()              // notifies the watchdog, at least every KeepAliveInterval
	KeepAliveInterval time.Duration       // half of the watchdog's timeout; 0 if there is no watchdog
	IterationBegins   func()              // called at the beginning of each iteration
	SetAlarm          func(time.Time)     // AlarmRang is to be called at this time, not at all if it is zero
	SetStatus         func(text string)   // called when the counts have changed: "3 running, 1 failed"
	AnnounceShutdown  func(bool)          // called if the machine, or login session, is about to end (or no longer is)
	SetAnyAgentAlive  func(bool)          // called when the first agent is alive, and when the last one is gone
	StopDelayed       func(time.Duration) // called if the daemon waits for agents before it exits, at most this long
}

// Supervisor supervises all sessions. Its methods may be called from any goroutine, but not from
// the event loop.
type Supervisor struct {
	loop *loop
}

// New returns a Supervisor. Run starts it.
func New(o Options) *Supervisor {
	if o.System.ResolvePath == nil {
		o.System.ResolvePath = filepath.EvalSymlinks
	}
	if o.OpenWatchers == nil {
		o.OpenWatchers = sources.Open
	}
	if o.Clocks.SinceBoot == nil {
		o.Clocks.SinceBoot = clock.SinceBoot
	}
	if o.Clocks.Monotonic == nil {
		o.Clocks.Monotonic = clock.Monotonic
	}
	if o.Clocks.AfterFunc == nil {
		o.Clocks.AfterFunc = deadline.Real
	}
	return &Supervisor{newLoop(o)}
}

// Run is the event loop. It returns when ctx is done and everything was saved, or an error that
// names the sessions whose last changes could not be saved.
func (s *Supervisor) Run(ctx context.Context) error { return s.loop.run(ctx) }

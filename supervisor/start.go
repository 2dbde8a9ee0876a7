package supervisor

import (
	"cmp"
	"context"
	"encoding/hex"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"crypto/rand"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/session"
)

// startTimeout bounds the time from the run's scope to its agent: what hangs for longer is ended.
const startTimeout = 30 * time.Second

// readyTimeout bounds the time from there until an agent that says so itself is ready (Type=notify): systemd's default for its services.
const readyTimeout = 90 * time.Second

// World is what effects do outside of the loop: with systemd, tmux and processes. Its methods may wait, and may be called at the same time.
type World interface {
	// ExpectStart is called before the record of a run is saved whose Start follows, so that both can be prepared at the same time. It does not wait.
	ExpectStart()
	// Start starts a scope with a tmux server in it, and in that a pane with the shim; tell is told of each step that was done, and first if there is
	// nothing for the run to go on with. The agent itself is told of by the shim. After an error nothing of it is left.
	Start(ctx context.Context, p Plan, tell func(session.Event)) error
	// Rejoin puts a new tmux server into the scope of a run whose server is gone, and shows the agent there, which lives under its shim. After an
	// error it is as it was.
	Rejoin(ctx context.Context, t Target, p Plan, tell func(session.Event)) error
	// MakeConversation has a command make an id for the conversation of a run that is about to begin, in its workspace and environment.
	MakeConversation(ctx context.Context, p Plan, command []string) (id string, err error)
	// OpenConversation returns the id of the conversation that the agent, or a process of its, holds open, "" if there is none.
	OpenConversation(t Target, file OpenFile) string
	// Hint returns the id that the pattern finds in what a run's agent has printed at its end, "" if there is none, or nothing was saved by it.
	Hint(ctx context.Context, p Plan, c Conversation, pattern *regexp.Regexp) string
	// End asks the agent to end, by SIGTERM, and by SIGHUP if it ignores that; where the target says so, each process of its is asked.
	End(ctx context.Context, t Target) error
	// HangUp sends SIGHUP to an agent that ignores SIGTERM by now, and nothing to any other.
	HangUp(ctx context.Context, t Target) error
	// Continue lets the run's shim and its tmux server go on if they are stopped (SIGSTOP): a shim
	// that is stopped records no exit.
	Continue(ctx context.Context, t Target) error
	// Signal sends a signal to one of the Whom constants.
	Signal(ctx context.Context, t Target, whom string, signal unix.Signal) error
	// Kill ends every process of the scope at once, also frozen ones.
	Kill(ctx context.Context, t Target) error
	// Follow returns where a path leads to once every symbolic link on the way was followed. It waits for as long as a file system does not answer.
	Follow(path string) (string, error)
	// FindProgram returns why a program, a path or a name in the PATH of that environment, could not be executed in dir. It returns nil where this cannot be
	// found out before the start, as for a path below a workspace that is not known yet, for which dir is empty.
	FindProgram(ctx context.Context, program, dir string, env Environment) error
	// Freeze holds every process of the scope, and returns once none of them runs.
	Freeze(ctx context.Context, t Target) error
	// Thaw lets the processes of a scope go on that was frozen by itself; one that was not is left alone.
	Thaw(ctx context.Context, t Target) error
	// Frozen tells whether the control group is frozen, by itself or with one above it. It does not wait.
	Frozen(group string) bool
	// FreezerFile is the file of which inotify tells when that changes.
	FreezerFile(group string) string
	// SetProperties changes properties of the scope with this InvocationID, all or none of them. Where there is none any more, or the id is empty, it
	// only finds out whether a scope could be started with them. The error is an *Error where systemd does not take one of them.
	SetProperties(ctx context.Context, invocationID string, properties []session.Property) error
	// StopCause tells why systemd wants the scope to be stopped.
	StopCause(ctx context.Context, unit string) (StopCause, error)
	// Began tells when the user manager was started, by CLOCK_MONOTONIC.
	Began(ctx context.Context) (time.Duration, error)
	// Stopping tells whether the whole user manager is stopping.
	Stopping(ctx context.Context) bool
	// DialShim connects to the run's shim, and returns the socket, which the caller owns, and the process that listens there. Where that is another process
	// the error is a *ForeignSocketError. It does not wait.
	DialShim(t Target) (fd int, shim session.Process, err error)
	// Reopen has a shim that lives, and its tmux server, make their sockets anew where somebody has removed or replaced them, and tells whether the shim
	// lives.
	Reopen(t Target) bool
	// Reap has the session's tmux server notice that programs of its panes have ended. It takes some seconds where there are other panes.
	Reap(ctx context.Context, t Target) error
	// SetDetachKey makes a key, by tmux's name, detach terminals from the session, whose tmux server runs; "" is for none.
	SetDetachKey(ctx context.Context, t Target, key string) error
	// TmuxAnswers tells whether the session's tmux server is there and answers.
	TmuxAnswers(ctx context.Context, t Target) bool
	// Clear takes away what a run has left behind: the failed unit and the runtime directory.
	Clear(ctx context.Context, unit, dir string)
	// Release has systemd end a scope that is empty and that systemd has not noticed to be, so that
	// its name can be used again.
	Release(ctx context.Context, t Target) error
	// TmuxServer finds the session's tmux server in the run's control group, or anywhere if there is none, and tells whether it shows anything.
	// The process is zero if there is no server.
	TmuxServer(t Target) (server session.Process, shows bool)
	// Alive tells whether exactly this process lives, and gives a pidfd of it, which the caller owns.
	Alive(p session.Process) (pidfd int, alive bool)
	// Scopes lists the scopes of ours that systemd knows.
	Scopes(ctx context.Context) ([]Scope, error)
	// Abandon leaves these scopes to systemd: if they are stopped from now on, systemd sends SIGTERM itself, instead of leaving that to the daemon. It
	// returns the names of those that systemd has begun to stop before.
	Abandon(ctx context.Context, units []string) (stopping []string, err error)
	// PulledIn returns the ids of the sessions whose unit, corral@ID.service, a timer or another unit starts.
	PulledIn(ctx context.Context) ([]string, error)
	// Watch has systemd tell of scopes that were there already. Forget ends that.
	Watch(ctx context.Context, units []string) error
	Forget(ctx context.Context, unit string) error
	// ControlGroup tells in which control group a process is, "" if it is gone.
	ControlGroup(pid int) string
	// Parent returns the parent of a process, 0 if the process has ended.
	Parent(pid int) int
	// Running tells whether exactly this process has not ended; false where that cannot be found out. It does not wait.
	Running(p session.Process) bool
	// Shown tells what a process shows of itself: its arguments, and its working directory.
	Shown(pid int) (args []string, dir string, err error)
	// Populated tells whether the control group has processes, other than those that are about to die: it gives them a moment.
	Populated(group string) bool
	// Occupied tells whether the control group has processes at this moment. It does not wait.
	Occupied(group string) bool
	// Send has the agent's terminal take the text, whole. It sends nothing to a process that is not the run's shim: see DialShim.
	Send(ctx context.Context, t Target, text string, enter bool) error
	// Attached tells whether somebody is attached to the session's terminal. It does not wait.
	Attached(t Target) bool
	// Keys has the agent's terminal take keys, by their names in tmux, in order with texts. If asked is not nil they are pressed only while the agent asks
	// that: else the error is a *NotAskedError, or ErrOldShim where the shim cannot check it. They reach no process that is not the run's shim.
	Keys(ctx context.Context, t Target, keys []string, asked *session.PermissionRequest) error
	// Capture reads the screen; AttachCommand tells how to attach.
	Capture(ctx context.Context, t Target, lines int, escapes bool) (string, error)
	AttachCommand(ctx context.Context, t Target) ([]string, error)
	// Usage reads what a control group uses, by the names of the D-Bus properties. What cannot be told is missing.
	Usage(group string) map[string]uint64
}

// StopCause is what systemd knows of why a scope ends.
type StopCause struct {
	Result string        // so far: timeout for RuntimeMaxSec; "" if it is not known
	Since  time.Duration // by CLOCK_MONOTONIC: when its processes were told at the earliest, 0 if nobody but us tells them, or it is not known
}

// Scope is a scope of ours that systemd knows.
type Scope struct {
	Name, InvocationID, ControlGroup string
	Active                           bool
	Stopping                         bool // somebody stops it, and it is not empty yet
	Result                           string
	TimedOut                         time.Duration // by CLOCK_MONOTONIC: when its time was up, 0 if that is not what ends it
}

// Plan is what World.Start needs to know of a run.
type Plan struct {
	ID           string // the session's
	Unit         string
	Description  string
	RuntimeDir   string // of the session; made if it is not there
	TmuxConfig   string // an extra configuration, or config.TmuxConfigUser, "" for none
	Spec         shimwire.Spec
	Conversation *Conversation      // what Spec.Args is replaced by, if there is a conversation to go on with; nil for a run that is fresh in any case
	Environment  Environment        // of the agent: what becomes Spec.Env
	Into         *Into              // the scope to start in, nil for a new one
	Properties   []session.Property // of the scope
	Scope        []string           // NAME=VALUE: the same from the agent's definition, which these replace
	StopTimeout  time.Duration
}

// Into is a scope that is there already, with the leftovers of an agent in it.
type Into struct {
	InvocationID, ControlGroup string
	Agent                      session.Process // that of the run before: it has lost its terminal, and is ended if it is still there
}

// Target is a run whose processes something is done with.
type Target struct {
	ID           string // the session's
	RuntimeDir   string
	Unit         string
	ControlGroup string
	Agent        session.Process
	Shim         session.Process
	Tmux         session.Process
	Frozen       bool // when this was asked for
	AskAll       bool // each process of the agent's is to be asked to end, not its own alone
	Ended        bool // the end of the agent is known
}

// ShimSocket is the path of the shim's socket.
func (t Target) ShimSocket() string { return filepath.Join(t.RuntimeDir, shimSocket) }

func (s *Supervisor) target(e *entry) Target {
	r := e.rec.Run
	return Target{
		e.rec.ID, s.runtimeDir(e.rec.ID), r.Unit, r.ControlGroup, r.Agent, r.ShimProc, r.TmuxProc, e.rec.Frozen,
		s.Agents[e.rec.Agent].StopTarget == config.StopAll, r.Ended(),
	}
}

// UnitName returns the name of the session's scope.
func UnitName(agent, id string) string { return "app-corral-" + agent + "-" + id + ".scope" }

// start begins a run in a new scope, on the loop. The run before it is over.
func (s *Supervisor) start(e *entry, resumed bool, caller []string) { s.begin(e, resumed, caller, nil) }

// begin begins a run with the caller's environment, in the scope that is there if into is not nil.
func (s *Supervisor) begin(e *entry, resumed bool, caller []string, into *Into) {
	run, prompt := newRunID(), ""
	if into == nil {
		s.World.ExpectStart()
	}
	resumed = goesOn(e.rec, resumed)
	if e.rec.GivesPrompt(resumed) {
		prompt = e.rec.Prompt
	}
	s.unwatch(e)
	s.unwatchWorkspace(e)
	e.run = runtime{caller: caller, starting: true}
	def := s.Agents[e.rec.Agent]
	lost := resumed && !e.rec.Resumable() && len(def.ResumeCommand) > 0
	s.apply(e, session.RunAsked{
		Run: run, BootID: s.BootID, Unit: UnitName(e.rec.Agent, e.rec.ID), Resumed: resumed && !lost,
		Notify: def.Type == config.TypeNotify, Sources: def.Status.Sources, At: time.Now(),
	})
	if lost {
		s.Log.Warn("the agent's conversation is unknown; it starts a new one", "session", e.rec.ID, "agent", e.rec.Agent)
	}
	e.stray = false
	s.watchRecord(e)
	e.begun, e.into = true, into != nil
	s.launch(e, resumed, into, prompt)
}

// startDone takes what has come of a start, and then the end of its scope if there was one meanwhile: it is the failure that tells why.
func (s *Supervisor) startDone(e *entry, run string, err error, leftovers bool) {
	if e.removed || e.rec.Run.ID != run {
		return
	}
	ended := e.run.ended
	e.run.starting, e.run.ended = false, nil
	if err != nil {
		s.failStart(e, run, err, leftovers)
	}
	for _, end := range ended {
		s.scopeEnded(e, end)
	}
}

func (s *Supervisor) plan(e *entry, resumed bool) Plan {
	rec := e.rec
	def := s.Agents[rec.Agent]
	command, resume := s.commands(rec)
	var conversation *Conversation
	if resumed {
		conversation = s.conversation(rec, resume)
	}
	dir := s.runtimeDir(rec.ID)
	description := rec.Description
	if description == "" {
		description = programName(rec.Agent, rec.Command) + " in " + rec.WorkingDirectory
	}
	extra := def.TmuxConfig
	if extra == "" {
		extra = s.Config.TmuxConfig
	}
	notify := ""
	if rec.Run.Notify {
		notify = dir + "/" + notifySocket
	}
	return Plan{
		ID:          rec.ID,
		Unit:        rec.Run.Unit,
		Description: description,
		RuntimeDir:  dir,
		TmuxConfig:  extra,
		Spec: shimwire.Spec{
			RunID:     rec.Run.ID,
			Dir:       rec.WorkingDirectory,
			Args:      command,
			StateDir:  s.Records.SessionDir(rec.ID),
			Socket:    dir + "/" + shimSocket,
			LogMax:    s.Config.LogMaxSize,
			IdleAfter: cmp.Or(def.IdleAfter, s.Config.IdleAfter),
			HoldInput: def.NoTypeAhead,
			Notify:    notify,

			IgnoreOSC7501: def.Status.Sources != nil && !slices.Contains(def.Status.Sources, string(session.FromOSC7501)),
			TitleReady:    def.Status.TitleReady,
			TitleWorking:  def.Status.TitleWorking,
			TitleBlocked:  def.Status.TitleBlocked,
			SetupPattern:  def.Status.SetupPattern,
			ReadyTimeout:  def.Status.ReadyTimeout,
			Session:       rec.ID,
			Program:       programName(rec.Agent, command),
		},
		Conversation: conversation,
		Environment:  s.environment(rec, def, e.run.caller),
		Properties:   slices.Clone(rec.UnitProperties),
		Scope:        slices.Clone(def.Properties),
		StopTimeout:  s.stopTimeout(rec),
	}
}

// programName returns the name of a session's program: the agent, or what a command of one's own executes, with "?" for what is not
// printable ASCII.
func programName(agent string, command []string) string {
	if agent != config.CommandAgent || len(command) == 0 {
		return agent
	}
	return strings.Map(func(c rune) rune {
		if c <= ' ' || c > '~' {
			return '?'
		}
		return c
	}, filepath.Base(command[0]))
}

// failStart ends a run that did not get as far as its agent. Nothing of it is left, but what was in the scope before.
func (s *Supervisor) failStart(e *entry, run string, err error, leftovers bool) {
	s.apply(e, session.StartFailed{Run: run, Reason: err.Error(), At: time.Now(), Monotonic: s.Monotonic()})
	if !leftovers {
		s.apply(e, session.ScopeEnded{Run: run, At: time.Now()})
	}
}

// appearTime is how long a shim may take to report its agent. It does so within milliseconds; one that takes longer may be stopped (SIGSTOP).
const appearTime = 2 * time.Second

// armStart bounds the time that the run's agent may take to appear. After appearTime the shim and the tmux server are continued, in case they are stopped.
func (s *Supervisor) armStart(e *entry) {
	run, limit := e.rec.Run.ID, startTimeout
	if e.rec.Run.Notify {
		limit = readyTimeout
	}
	if e.run.timer == nil {
		e.run.timer = s.AfterFunc(appearTime, func() {
			s.post(func() {
				if !s.isStarting(e, run) {
					return
				}
				peer := e.run.peer // of the connection: it has not said yet who it is
				s.direct(e, "continue", func(t Target) error {
					if t.Shim.PID == 0 {
						t.Shim = peer
					}
					return s.World.Continue(s.ctx, t)
				})
				e.run.timer = s.AfterFunc(limit-appearTime, func() { s.post(func() { s.startTimedOut(e, run, limit) }) })
			})
		})
	}
}

// isStarting tells whether the session is still in this run, whose agent has not appeared or is not ready, and which nobody ends.
func (s *Supervisor) isStarting(e *entry, run string) bool {
	return !e.removed && e.rec.Run.ID == run && !e.rec.Run.Begun() && !e.rec.Run.Ended() && e.run.stage == notEnding
}

// startTimedOut gives up on a run whose agent has not appeared. One whose agent was there and has lost its workspace, or its terminal, is left alone until that is
// back.
func (s *Supervisor) startTimedOut(e *entry, run string, limit time.Duration) {
	if !s.isStarting(e, run) {
		return
	}
	if !e.rec.Awaited() {
		e.run.timer = nil
		s.armStart(e)
		return
	}
	reason := "its agent did not appear within " + limit.String()
	if !e.rec.Run.Started.IsZero() {
		reason = "its agent did not report that it is ready within " + limit.String()
	}
	s.apply(e, session.StartFailed{Run: run, Reason: reason, At: time.Now(), Monotonic: s.Monotonic()})
	s.end(e, time.Second)
}

func newRunID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

package supervisor

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/conversations"
	"github.com/corrald/corral/supervisor/environments"
	"github.com/corrald/corral/supervisor/session"
)

// systemdTimeout limits a query to systemd that is not part of a client's call.
const systemdTimeout = 30 * time.Second

// StopCause is what systemd knows about why it stops a scope.
type StopCause struct {
	Result string // so far: timeout for RuntimeMaxSec=; "" if it is unknown
	// Since is the earliest time, by CLOCK_MONOTONIC, at which systemd may have sent SIGTERM to the
	// processes. It is 0 if only the daemon sends signals, or if the time is unknown.
	Since time.Duration
}

// Scope is a session's scope that systemd has.
type Scope struct {
	Name, InvocationID, ControlGroup string
	Active                           bool
	Stopping                         bool // it is being stopped, and is not empty yet
	Result                           string
	TimedOut                         time.Duration // by CLOCK_MONOTONIC: when RuntimeMaxSec= ended it, 0 if it did not
}

// Plan contains what the executor needs to start a run.
type Plan struct {
	ID          string // the session's
	Unit        string
	Description string
	RuntimeDir  string // of the session; created if it does not exist
	TmuxConfig  string // an additional configuration, or config.TmuxConfigUser, "" for none
	Spec        shimwire.Spec
	// Conversation replaces Spec.Args if there is a conversation to continue. It is nil for a run that
	// is fresh in any case.
	Conversation  *conversations.Continuation
	Environment   environments.Sources // of Spec.Env
	ExistingScope *ExistingScope       // the scope to start in, nil for a new one
	Properties    []session.Property   // of the scope; they replace ScopeSettings
	ScopeSettings []string             // the scope's properties in the agent's definition, as NAME=VALUE
	StopTimeout   time.Duration
	IDCommand     []string // of CreateConversationID
}

// ExistingScope is a scope that still has leftover processes of an earlier run.
type ExistingScope struct {
	InvocationID, ControlGroup string
	// Agent is the agent of that run. It has lost its terminal, and is killed if it still runs.
	Agent session.Process
}

// Target is the run that an effect is carried out on, or that something is read about.
type Target struct {
	ID           string // the session's
	RuntimeDir   string
	Unit         string
	ControlGroup string
	Agent        session.Process
	Shim         session.Process
	Tmux         session.Process
	Frozen       bool // the scope was frozen when the effect was decided
	StopAll      bool // the first signals of a stop are sent to all of its processes: StopWhom=all
	AgentEnded   bool // its agent is known to have ended
}

// ShimSocket returns the path of the shim's socket.
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

// plan returns the plan for the session's current run. Resumed is whether the run continues a
// conversation.
func (s *Supervisor) plan(e *entry, resumed bool) Plan {
	rec := e.rec
	def := s.Agents[rec.Agent]
	rules := s.conversationRules(rec)
	command := rules.FreshCommand()
	var conversation *conversations.Continuation
	if resumed {
		conversation = rules.Continuation()
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
		Conversation:  conversation,
		Environment:   s.environment(rec, def, e.run.callerEnvironment),
		Properties:    slices.Clone(rec.UnitProperties),
		ScopeSettings: slices.Clone(def.Properties),
		StopTimeout:   s.stopTimeout(rec),
	}
}

// programName returns the name of a session's program: that of the agent, or the program of a
// user's own command, with "?" for characters that are not printable ASCII.
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

func newRunID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

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

// Plan contains what the executor needs to start a run.
type Plan struct {
	ID          string // the session's
	Unit        string
	Description string
	RuntimeDir  string // of the session; created if it does not exist
	TmuxConfig  string // an additional configuration, or config.TmuxConfigUser, "" for none
	Spec        shimwire.Spec
	// Conversation replaces Spec.Args if there is a conversation to continue. It is nil for a run that
	// is fresh in any case, unless that begins a copy of a conversation.
	Conversation  *conversations.Continuation
	Environment   environments.Sources // of Spec.Env
	ExistingScope *ExistingScope       // the scope to start in, nil for a new one
	Properties    []session.Property   // of the scope; they replace ScopeSettings
	ScopeSettings []string             // the scope's properties in the agent's definition, as NAME=VALUE
	StopTimeout   time.Duration
	IDCommand     []string // of CreateConversationID

	Confinement *Confinement // the agent's sandbox, nil for none
}

// ExistingScope is a scope that still has leftover processes of an earlier run.
type ExistingScope struct {
	InvocationID, ControlGroup string
	// Agent is the agent of that run. It has lost its terminal, and is killed if it still runs.
	Agent session.Process
}

// plan returns the plan for the session's current run. Resumed is whether the run continues a
// conversation.
func (e *entry) plan(resumed bool) Plan {
	rec, def, set := e.rec, e.definition(), &e.loop.settings
	rules := set.conversationRules(rec)
	command := rules.FreshCommand()
	var conversation *conversations.Continuation
	if resumed {
		conversation = rules.Continuation()
	}
	if conversation == nil {
		conversation = rules.Copy()
	}
	dir, status := set.runtimeDir(rec.ID), def.Status
	description := rec.Description
	if description == "" {
		description = programName(rec.Agent, rec.Command) + " in " + rec.WorkingDirectory
	}
	notify := ""
	if rec.Run.Notify || rec.Sandbox != "" { // the hooks in a sandbox report there
		notify = dir + "/" + notifySocket
	}
	return Plan{
		ID:          rec.ID,
		Unit:        rec.Run.Unit,
		Description: description,
		RuntimeDir:  dir,
		TmuxConfig:  cmp.Or(def.TmuxConfig, set.config.TmuxConfig),
		Spec: shimwire.Spec{
			RunID:     rec.Run.ID,
			Dir:       rec.WorkingDirectory,
			Args:      command,
			StateDir:  e.loop.records.SessionDir(rec.ID),
			Socket:    dir + "/" + shimSocket,
			LogMax:    set.config.LogMaxSize,
			IdleAfter: cmp.Or(def.IdleAfter, set.config.IdleAfter),
			HoldInput: def.NoTypeAhead,
			Notify:    notify,
			OnlyHooks: !rec.Run.Notify,

			IgnoreOSC7501:     status.Sources != nil && !slices.Contains(status.Sources, string(session.FromOSC7501)),
			TitleReady:        status.TitleReady,
			TitleWorking:      status.TitleWorking,
			TitleBlocked:      status.TitleBlocked,
			SetupPattern:      status.SetupPattern,
			LimitPattern:      status.LimitPattern,
			IdlePattern:       status.IdlePattern,
			WorkingPattern:    status.WorkingPattern,
			RetryPattern:      status.RetryPattern,
			BackgroundPattern: status.BackgroundPattern,
			ClearKeys:         strings.Join(def.ClearKeys, " "),
			ReadyTimeout:      status.ReadyTimeout,
			Session:           rec.ID,
			Program:           programName(rec.Agent, command),
			Sandbox:           rec.Sandbox,
		},
		Confinement:   e.loop.confinement(rec),
		Conversation:  conversation,
		Environment:   e.environment(e.run.start.callerEnvironment),
		Properties:    slices.Clone(rec.UnitProperties),
		ScopeSettings: slices.Clone(def.Properties),
		StopTimeout:   set.stopTimeout(rec),
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

// target returns the target of effects on the session's current run.
func (e *entry) target() Target {
	r := e.rec.Run
	return Target{
		ID: e.rec.ID, RuntimeDir: e.loop.settings.runtimeDir(e.rec.ID), Unit: r.Unit, ControlGroup: r.ControlGroup,
		Agent: r.Agent, Shim: r.ShimProc, Tmux: r.TmuxProc, Frozen: e.rec.Frozen,
		StopAll: e.definition().StopTarget == config.StopAll, AgentEnded: r.Ended(),
	}
}

func newRunID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Package session is what Corral knows of one session, and what follows from it. It is pure: no clock, no file, no process.
//
// A Session holds wishes (what the user asked for) and, in its Run, facts (what became of it), each with one source. Its State is derived from
// them by View and assigned by nobody. Events change the facts; they may arrive in any order, and again, with the same result.
package session

import (
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/exitstatus"
)

// MaxPast bounds how many earlier runs a session remembers.
const MaxPast = 20

// Session is one supervised instance of an agent. The wishes come first, then the facts.
type Session struct {
	ID               string            `json:"id"`
	Agent            string            `json:"agent"`
	Description      string            `json:"description,omitempty"`
	Command          []string          `json:"command"` // the argument vector of a fresh run, specifiers expanded as far as they were known when it was created
	ResumeCommand    []string          `json:"resume_command,omitempty"`
	Continues        bool              `json:"continues,omitempty"` // its first run goes on with the conversation, which the client knows of
	Defined          bool              `json:"defined,omitempty"`   // both are what the agent's definition was then: it is asked again for each run
	Arguments        []string          `json:"arguments,omitempty"` // given by the client: they follow the definition's Command
	WorkingDirectory string            `json:"working_directory"`
	Workspace        string            `json:"workspace,omitempty"`   // where WorkingDirectory led to when the last run began, symbolic links resolved
	Environment      []string          `json:"environment,omitempty"` // NAME=VALUE, given by the client for every run
	Prompt           string            `json:"prompt,omitempty"`
	Labels           map[string]string `json:"labels,omitempty"`
	OnLogin          string            `json:"on_login,omitempty"`
	Exclusive        bool              `json:"exclusive,omitempty"`
	ConversationID   string            `json:"conversation_id,omitempty"`       // what ResumeCommand goes on with: the last that is known, never forgotten
	Earlier          []string          `json:"earlier_conversations,omitempty"` // ids of those before it, the oldest first
	UnitProperties   []Property        `json:"unit_properties,omitempty"`
	Created          time.Time         `json:"created"`
	Archived         time.Time         `json:"archived,omitzero"`

	Worktree *Worktree `json:"worktree,omitempty"` // that was made for it, and has WorkingDirectory in it; never changed

	Prompted bool `json:"prompted,omitempty"` // by the shim: an agent of this session was told the Prompt, or the first of it

	NRuns        uint32    `json:"n_runs"`
	Run          *Run      `json:"run,omitempty"`   // the current run, or the last one
	Past         []Run     `json:"past,omitempty"`  // those before it, the oldest first
	State        State     `json:"state,omitempty"` // by View, when it was last looked at
	StateChanged time.Time `json:"state_changed"`   // when State last became what it is
	ChangedOn    Boot      `json:"changed_on,omitzero"`

	ChangedMonotonic time.Duration `json:"changed_monotonic,omitzero"` // by CLOCK_MONOTONIC of ChangedOn: when it was known that State had changed

	Forgotten time.Duration `json:"forgotten,omitzero"` // how long all runs have lived that are not in Past any more

	Seen   State     `json:"seen,omitempty"`   // a state of the current run that a person has taken note of
	SeenAt time.Time `json:"seen_at,omitzero"` // when a person first took note of it; zero in a record of an older version
	SeenOn Boot      `json:"seen_on,omitzero"` // the boot of SeenAt

	PulledIn   bool      `json:"pulled_in,omitempty"`  // by systemd: a timer or another unit starts corral@ID.service
	Released   time.Time `json:"released,omitzero"`    // when it last ceased to be wanted: see Wanted
	ReleasedOn Boot      `json:"released_on,omitzero"` // the boot of Released

	WorkspaceInode Inode `json:"workspace_inode,omitzero"` // by the kernel: of the workspace when it was last at its place; of a run that lives
	WorkspaceGone  bool  `json:"-"`                        // by inotify: it is not at its place
	Frozen         bool  `json:"-"`                        // by the kernel: no process in the current run's scope gets any processor time

	heard words // by the shim, which tells it again to each daemon: of the agent that is alive now
}

// Boot is one boot of the machine, with what the clock on the wall said of it at some moment: whether that clock was set since can be told by it.
type Boot struct {
	ID    string    `json:"id"`
	Began time.Time `json:"began"` // by the clock of that moment
}

// Inode identifies a directory on one boot, wherever it is moved.
type Inode struct {
	Device uint64 `json:"device"`
	Number uint64 `json:"number"`
}

// Worktree is a git worktree, as package worktree has it.
type Worktree struct {
	Repository string `json:"repository"`     // its git directory
	Path       string `json:"path"`           // of the worktree
	Branch     string `json:"branch"`         // that it was made with
	Made       bool   `json:"made,omitempty"` // the branch was made for it, too
	Base       string `json:"base"`           // the commit that it began with
}

// Property is a property of the session's scope, in a form that can be saved: the value as D-Bus text with its signature.
type Property struct {
	Name      string `json:"name"`
	Signature string `json:"signature"`
	Value     string `json:"value"`
}

// ScopePhase tells how far the scope of a run has come. It only ever goes forward.
type ScopePhase int

const (
	ScopeNone   ScopePhase = iota // not asked for yet
	ScopeActive                   // systemd says that it runs
	ScopeGone                     // its last process is gone, and so is the unit
)

// Liveness is what is known of a process. It only ever goes forward.
type Liveness int

const (
	NotSeen Liveness = iota
	Alive
	Dead
)

// Process identifies a process on one boot, also after its number was used again.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot: field 22 of /proc/PID/stat
}

// Intent is what was asked of a run that lives.
type Intent string

const (
	NoIntent Intent = ""
	Stop     Intent = "stop"
	Suspend  Intent = "suspend"
)

// Run is one life of the agent's process.
type Run struct {
	ID      string    `json:"id"`
	BootID  string    `json:"boot_id"`
	Unit    string    `json:"unit"`
	Resumed bool      `json:"resumed,omitempty"` // it went on with the conversation of the run before it
	Asked   time.Time `json:"asked"`

	WasSuspended bool `json:"was_suspended,omitempty"` // the session was, when it was asked for

	Scope        ScopePhase `json:"scope"`
	InvocationID string     `json:"invocation_id,omitempty"` // by systemd
	ControlGroup string     `json:"control_group,omitempty"` // by systemd
	ScopeResult  string     `json:"scope_result,omitempty"`  // by systemd: success, resources, timeout, oom-kill; "" while it runs
	ScopeGone    time.Time  `json:"scope_gone,omitzero"`
	TimedOut     time.Time  `json:"timed_out,omitzero"` // when the scope's time was up, by systemd, zero if it did not tell us

	Tmux     Liveness `json:"tmux"` // its server
	TmuxProc Process  `json:"tmux_process,omitzero"`

	Shim     Liveness  `json:"shim"`
	ShimProc Process   `json:"shim_process,omitzero"`
	ShimDied time.Time `json:"shim_died,omitzero"`
	Outlived bool      `json:"outlived,omitempty"` // tmux still answered when the shim had died

	Agent   Process            `json:"agent_process,omitzero"`
	Started time.Time          `json:"started,omitzero"`  // when the agent was executed
	Notify  bool               `json:"notify,omitempty"`  // it is there only once it says that it is ready
	Ready   time.Time          `json:"ready,omitzero"`    // when it said so
	Sources string             `json:"sources,omitempty"` // by the agent's definition: who is heard, the strongest first; "" for everybody
	Exit    *exitstatus.Status `json:"exit,omitempty"`    // by the shim

	Conversation     string    `json:"conversation,omitempty"` // the agent's id of what it is in, "" if it is not known
	ConversationFrom Teller    `json:"conversation_from,omitempty"`
	ConversationAt   time.Time `json:"conversation_at,omitzero"` // when that was told

	StartError string    `json:"start_error,omitempty"` // what kept the run from getting as far as its agent
	StartEnded time.Time `json:"start_ended,omitzero"`

	StartInterrupted bool `json:"start_interrupted,omitempty"` // that was the end of a daemon, and nothing else

	Intent      Intent    `json:"intent,omitempty"`
	IntentAt    time.Time `json:"intent_at,omitzero"`
	Why         string    `json:"why,omitempty"`          // for a person: where the intent came from
	IdledOut    bool      `json:"idled_out,omitempty"`    // it was suspended for being idle: whoever wants it has it resumed
	SystemdTold bool      `json:"systemd_told,omitempty"` // it is systemd that told the agent of the intent, by IntentAt

	Reported     Word   `json:"reported,omitzero"`     // by the agent's hooks
	Acknowledged Seqs   `json:"acknowledged,omitzero"` // the last words that a person has taken note of
	Answered     Seqs   `json:"answered,omitzero"`     // the last words that were answered by input
	Overtaken    uint64 `json:"overtaken,omitempty"`   // the Seq of the last report after which a stronger source has said that the agent works, 0 if there is none

	// The same moments by CLOCK_MONOTONIC, which nobody can set: what came first is decided by it. Zero in a record of an older version.
	TimedOutMonotonic     time.Duration `json:"timed_out_monotonic,omitzero"`
	StartEndedMonotonic   time.Duration `json:"start_ended_monotonic,omitzero"`
	IntentMonotonic       time.Duration `json:"intent_monotonic,omitzero"`
	ConversationMonotonic time.Duration `json:"conversation_monotonic,omitzero"`

	Left        time.Time `json:"left,omitzero"`         // when a daemon that was told to end has left it running; zero again once it was found
	MachineDown time.Time `json:"machine_down,omitzero"` // when it was found that its boot is over
}

// Clone returns a copy that shares nothing with s.
func (s *Session) Clone() *Session {
	c := *s
	c.Command = slices.Clone(s.Command)
	c.ResumeCommand = slices.Clone(s.ResumeCommand)
	c.Arguments = slices.Clone(s.Arguments)
	c.Earlier = slices.Clone(s.Earlier)
	c.Environment = slices.Clone(s.Environment)
	c.Labels = maps.Clone(s.Labels)
	c.UnitProperties = slices.Clone(s.UnitProperties)
	if s.Worktree != nil {
		w := *s.Worktree
		c.Worktree = &w
	}
	c.Past = slices.Clone(s.Past)
	if s.Run != nil {
		r := *s.Run
		if r.Exit != nil {
			e := *r.Exit
			r.Exit = &e
		}
		c.Run = &r
	}
	return &c
}

// Resumable tells whether a resume would go on with the agent's conversation.
func (s *Session) Resumable() bool {
	return len(s.ResumeCommand) > 0
}

// Ignore is the OnLogin of a session that is not enabled: nothing is done about it at a login.
const Ignore = "ignore"

// Wanted tells whether the session is a definition of what is to run again: it is enabled, or a timer or another unit starts it.
func (s *Session) Wanted() bool {
	return s.PulledIn || s.OnLogin != "" && s.OnLogin != Ignore
}

// Live tells whether the run has, or may still get, processes: its scope is not known to be gone.
func (r *Run) Live() bool {
	return r != nil && r.Scope != ScopeGone
}

// AgentAlive tells whether the agent was executed and nothing has told of its end.
func (r *Run) AgentAlive() bool {
	return r != nil && !r.Started.IsZero() && r.Exit == nil && r.Shim != Dead && r.Scope != ScopeGone
}

// Begun tells whether the run's agent has been there: executed, and ready if it is one that says so.
func (r *Run) Begun() bool {
	return !r.Started.IsZero() && (!r.Notify || !r.Ready.IsZero())
}

// intended tells whether the run's end, if it has one, is what was asked for: that of an agent that had ended by itself, or whose time was up,
// before anybody asked, is not.
func (r *Run) intended() bool {
	switch {
	case r.Intent == NoIntent, !r.TimedOut.IsZero() && r.timedOut().before(r.asked()):
		return false
	}
	return r.Exit == nil || !r.exitedBefore(r.asked(), r.SystemdTold)
}

// exitedBefore tells whether the agent's end, which is known, came before it was told to end.
func (r *Run) exitedBefore(asked moment, bySystemd bool) bool {
	if bySystemd && r.Exit.Code == exitstatus.Killed && r.Exit.Value == int(unix.SIGTERM) {
		asked = asked.earlier(noteTime)
	}
	return r.exited().before(asked)
}

// noteTime is how long systemd may take, on a machine that has much to do, from the SIGTERM to noting when it was: an agent that has died of one so shortly
// before has died of this one.
const noteTime = 2 * time.Second

// outOfTime tells whether it was RuntimeMaxSec that ended the agent. A scope whose agent has ended lives on with its tmux session, and its time
// runs on too, which says nothing of the agent. Where nobody can tell when the time was up, an agent that ended well counts as one of these.
func (r *Run) outOfTime() bool {
	switch {
	case r.ScopeResult != Timeout:
		return false
	case r.Exit == nil:
		return true
	case r.TimedOut.IsZero():
		return r.Exit.Code != exitstatus.Exited || r.Exit.Value != 0
	}
	return !r.exited().before(r.timedOut())
}

// Ended tells whether the run has come to its end, as far as its state is concerned; processes may be left in its scope.
func (r *Run) Ended() bool {
	return r == nil || r.Exit != nil || r.Scope == ScopeGone || r.StartError != "" || r.Outlived
}

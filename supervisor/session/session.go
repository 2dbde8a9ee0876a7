// Package session contains what Corral knows about one session, and the rules that derive its state
// from that. It is pure: it uses no clock, no file and no process.
//
// A Session consists of requests (what the user asked for) and of facts (what happened to its
// runs). Each fact has one source. View derives the State from the facts; nothing else sets it.
// Events change the facts. They may arrive in any order and repeatedly, with the same result. Next
// decides what to do after an event.
package session

import (
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/exitstatus"
)

// MaxPast is the greatest number of earlier runs in a session's record.
const MaxPast = 20

// Fork describes a conversation that begins as a copy of another session's. It never changes.
type Fork struct {
	From         string `json:"from"`           // the id of that session
	Conversation string `json:"conversation"`   // the id of its conversation
	Copy         string `json:"copy,omitempty"` // the id of the copy, "" if the agent chooses it
}

// Session is one supervised instance of an agent. The requests come first, then the facts.
type Session struct {
	ID          string `json:"id"`
	Agent       string `json:"agent"`
	Description string `json:"description,omitempty"`

	// Command is the argument vector of a fresh run. The specifiers that were known when the session
	// was created are expanded.
	Command       []string `json:"command"`
	ResumeCommand []string `json:"resume_command,omitempty"`
	// Continues reports that the first run continues a conversation that the client specified.
	Continues bool `json:"continues,omitempty"`
	// Defined reports that Command and ResumeCommand were copied from the agent's definition when
	// the session was created. Each run reads that definition again.
	Defined bool `json:"defined,omitempty"`
	// Arguments are the client's; they are appended to the Command of the definition.
	Arguments []string `json:"arguments,omitempty"`

	WorkingDirectory string `json:"working_directory"`
	// Workspace is the resolved path of WorkingDirectory when the last run began.
	Workspace string `json:"workspace,omitempty"`
	// Environment has the variables that the client set for every run, as NAME=VALUE.
	Environment []string          `json:"environment,omitempty"`
	Prompt      string            `json:"prompt,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	OnLogin     string            `json:"on_login,omitempty"`
	Exclusive   bool              `json:"exclusive,omitempty"`

	// ConversationID is the conversation that ResumeCommand continues: the last known one. It is
	// never deleted, only replaced.
	ConversationID string `json:"conversation_id,omitempty"`
	// Fork is the conversation that the session's first one is a copy of, nil if it is none.
	Fork *Fork `json:"fork,omitempty"`
	// EarlierConversations has the ids of the conversations before that one, the oldest first.
	EarlierConversations []string `json:"earlier_conversations,omitempty"`

	// Parent is the id of the session in which the client was that created this one, "" if it was in
	// none. It never changes, also if that session is removed.
	Parent string `json:"parent,omitempty"`

	UnitProperties []Property `json:"unit_properties,omitempty"`
	Created        time.Time  `json:"created"`
	Archived       time.Time  `json:"archived,omitzero"`

	// Sandbox is the sandbox profile in which each run's agent is confined, "" for none. It never
	// changes.
	Sandbox string `json:"sandbox,omitempty"`

	// Worktree was created for the session, and contains its WorkingDirectory. It never changes.
	Worktree *Worktree `json:"worktree,omitempty"`

	Setup Setup `json:"setup,omitzero"` // of the Worktree, before the first run

	// Ports are reserved for the session. They never change.
	Ports Ports `json:"ports,omitzero"`

	// Prompted reports that an agent of this session was given the Prompt, or a part of it. Source:
	// the shim.
	Prompted bool `json:"prompted,omitempty"`
	// Unsent is a text that was to be sent to an agent which could not be started. The agent of the
	// next run is given it, with the Prompt if it is given that too, if it continues the conversation.
	Unsent string `json:"unsent,omitempty"`

	// Limit is the usage limit that the agent has reached. It remains if the session is suspended.
	Limit Limit `json:"limit,omitzero"`
	// Continued is the reset of the limit after which the agent was last given ContinueText=.
	Continued time.Time `json:"continued,omitzero"`

	// Queued is the run that waits until MaxRunning= permits it.
	Queued QueuedRun `json:"queued,omitzero"`

	NRuns uint32 `json:"n_runs"`
	Run   *Run   `json:"run,omitempty"`  // the current run, or the last one
	Past  []Run  `json:"past,omitempty"` // the runs before Run, the oldest first

	State        State     `json:"state,omitempty"` // the result of the last evaluation of View
	StateChanged time.Time `json:"state_changed"`   // when State got its present value
	// ChangedOn is the boot of StateChanged. ChangedMonotonic is the time at which the daemon noticed
	// the change, by CLOCK_MONOTONIC of that boot.
	ChangedOn        Boot          `json:"changed_on,omitzero"`
	ChangedMonotonic time.Duration `json:"changed_monotonic,omitzero"`

	// Forgotten is the total duration of the runs that Past no longer has.
	Forgotten time.Duration `json:"forgotten,omitzero"`

	// Seen is the state of the current run that a person has acknowledged, "" if there is none.
	Seen State `json:"seen,omitempty"`
	// SeenAt is the time of the first acknowledgement of that state. Records of older versions do
	// not have it.
	SeenAt time.Time `json:"seen_at,omitzero"`
	SeenOn Boot      `json:"seen_on,omitzero"` // the boot of SeenAt

	// PulledIn reports that a timer or another unit starts corral@ID.service. Source: systemd.
	PulledIn   bool      `json:"pulled_in,omitempty"`
	Released   time.Time `json:"released,omitzero"`    // when Wanted last changed to false
	ReleasedOn Boot      `json:"released_on,omitzero"` // the boot of Released

	// WorkspaceInode identifies the workspace's directory as it was last found at its path while a run
	// was live. Source: the kernel.
	WorkspaceInode Inode `json:"workspace_inode,omitzero"`
	// WorkspaceGone reports that the workspace is not at its path. Source: inotify.
	WorkspaceGone bool `json:"-"`
	// Frozen reports that no process in the current run's scope gets processor time. Source: the
	// kernel.
	Frozen bool `json:"-"`

	// received are the last status reports of the agent that is alive now. Source: the shim, which
	// sends them again to each new daemon.
	received reports
}

// Boot is one boot of the machine, with its start by the wall clock. If two values for the same
// boot differ in Began, the wall clock was set in between.
type Boot struct {
	ID    string    `json:"id"`
	Began time.Time `json:"began"` // as calculated from the wall clock at some moment
}

// Inode identifies a directory during one boot, also after it was moved.
type Inode struct {
	Device uint64 `json:"device"`
	Number uint64 `json:"number"`
}

// Worktree describes a git worktree, in the terms of package worktree.
type Worktree struct {
	Repository string `json:"repository"`     // the git directory
	Path       string `json:"path"`           // the directory of the worktree
	Branch     string `json:"branch"`         // the branch that the worktree was created with
	Made       bool   `json:"made,omitempty"` // the branch was created together with the worktree
	Base       string `json:"base"`           // the commit at which the worktree was created
}

// Directory returns the directory of the repository, as a person knows it.
func (w Worktree) Directory() string { return strings.TrimSuffix(w.Repository, "/.git") }

// Property is a property of the session's scope, in a form that can be saved: Value is D-Bus text,
// Signature its type.
type Property struct {
	Name      string `json:"name"`
	Signature string `json:"signature"`
	Value     string `json:"value"`
}

// ScopePhase is the progress of a run's scope. It only increases.
type ScopePhase int

const (
	ScopeNone   ScopePhase = iota // not started yet
	ScopeActive                   // active, as reported by systemd
	ScopeGone                     // without processes, and unloaded by systemd
)

// Liveness is what is known about a process. It only increases.
type Liveness int

const (
	NotSeen Liveness = iota
	Alive
	Dead
)

// Process identifies a process during one boot, also if its PID was reused.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot: field 22 of /proc/PID/stat
}

// Intent is what was requested of a run that has not ended.
type Intent string

const (
	NoIntent Intent = ""
	Stop     Intent = "stop"
	Suspend  Intent = "suspend"
)

// Run is one execution of the agent.
type Run struct {
	ID        string    `json:"id"`
	BootID    string    `json:"boot_id"`
	Unit      string    `json:"unit"`
	Resumed   bool      `json:"resumed,omitempty"` // it continues the conversation of the run before it
	Requested time.Time `json:"asked"`

	WasSuspended bool `json:"was_suspended,omitempty"` // the session was suspended at that time

	Scope        ScopePhase `json:"scope"`
	InvocationID string     `json:"invocation_id,omitempty"` // source: systemd
	ControlGroup string     `json:"control_group,omitempty"` // source: systemd
	// ScopeResult is systemd's Result of the scope: success, resources, timeout or oom-kill; "" while
	// the scope is active.
	ScopeResult string    `json:"scope_result,omitempty"`
	ScopeGone   time.Time `json:"scope_gone,omitzero"`
	// TimedOut is when the scope's RuntimeMaxSec= expired. It is zero if systemd did not report that.
	TimedOut time.Time `json:"timed_out,omitzero"`

	Tmux     Liveness `json:"tmux"` // of the tmux server
	TmuxProc Process  `json:"tmux_process,omitzero"`

	Shim     Liveness  `json:"shim"`
	ShimProc Process   `json:"shim_process,omitzero"`
	ShimDied time.Time `json:"shim_died,omitzero"`
	// TmuxSurvived reports that tmux still answered after the shim had died.
	TmuxSurvived bool `json:"outlived,omitempty"`

	// ShimSendsTyped reports that the shim sends Typed. Those of older versions do not.
	ShimSendsTyped bool `json:"shim_sends_typed,omitempty"`

	Agent   Process   `json:"agent_process,omitzero"`
	Started time.Time `json:"started,omitzero"` // when the agent was executed
	Notify  bool      `json:"notify,omitempty"` // the agent reports when it is ready (Type=notify)
	Ready   time.Time `json:"ready,omitzero"`   // when it reported that
	// Sources are the sources that count, the strongest first, separated by spaces; "" stands for
	// all. Source: the agent's definition.
	Sources string             `json:"sources,omitempty"`
	Exit    *exitstatus.Status `json:"exit,omitempty"` // source: the shim

	// SandboxTool is the program that confines the agent, and SandboxNetwork what it lets through of
	// the network: a value of Network=, "" if only that program knows. Source: the sandbox profile.
	SandboxTool    string `json:"sandbox_tool,omitempty"`
	SandboxNetwork string `json:"sandbox_network,omitempty"`

	// Conversation is the id that the agent uses for its conversation, "" if it is not known.
	Conversation     string             `json:"conversation,omitempty"`
	ConversationFrom ConversationSource `json:"conversation_from,omitempty"`
	ConversationAt   time.Time          `json:"conversation_at,omitzero"` // when ConversationFrom reported it

	// StartError is why the run's agent was not started, or did not become ready.
	StartError string    `json:"start_error,omitempty"`
	StartEnded time.Time `json:"start_ended,omitzero"`
	// StartInterrupted reports that the only reason was the exit of a daemon.
	StartInterrupted bool `json:"start_interrupted,omitempty"`

	Intent   Intent    `json:"intent,omitempty"`
	IntentAt time.Time `json:"intent_at,omitzero"`
	Why      string    `json:"why,omitempty"` // the origin of the intent, for a person
	// IdledOut reports that the run was suspended because it was idle. A client that needs the
	// session resumes it.
	IdledOut bool `json:"idled_out,omitempty"`
	// SignalledBySystemd reports that systemd had signalled the agent by IntentAt.
	SignalledBySystemd bool `json:"systemd_told,omitempty"`

	Reported     Report `json:"reported,omitzero"`     // the last report of the agent's hooks
	Acknowledged Seqs   `json:"acknowledged,omitzero"` // the last reports that a person has acknowledged
	Answered     Seqs   `json:"answered,omitzero"`     // the last reports that were answered by input
	// Superseded is the Seq of the last hook report after which a stronger source has reported that
	// the agent works, 0 if there is none.
	Superseded uint64 `json:"overtaken,omitempty"`

	// These are TimedOut, StartEnded, IntentAt and ConversationAt by CLOCK_MONOTONIC, which cannot be
	// set: it decides which of two events came first. They are zero in records of older versions.
	TimedOutMonotonic     time.Duration `json:"timed_out_monotonic,omitzero"`
	StartEndedMonotonic   time.Duration `json:"start_ended_monotonic,omitzero"`
	IntentMonotonic       time.Duration `json:"intent_monotonic,omitzero"`
	ConversationMonotonic time.Duration `json:"conversation_monotonic,omitzero"`

	// LeftRunning is when a daemon exited on request and left the run running. It is zero again after
	// a daemon has found the run alive.
	LeftRunning time.Time `json:"left,omitzero"`
	MachineDown time.Time `json:"machine_down,omitzero"` // when a daemon found that the run's boot is over
}

// Resumable reports whether a resume would continue the agent's conversation.
func (s *Session) Resumable() bool {
	return len(s.ResumeCommand) > 0
}

// Wanted reports whether the session is to run again: it is enabled, queued, or a timer or another
// unit starts it.
func (s *Session) Wanted() bool {
	return s.PulledIn || s.IsQueued() || s.OnLogin != "" && s.OnLogin != word.Ignore
}

// Live reports whether the run has processes, or can still get some: its scope is not known to be
// gone.
func (r *Run) Live() bool {
	return r != nil && r.Scope != ScopeGone
}

// AgentAlive reports whether the agent was executed and is not known to have ended.
func (r *Run) AgentAlive() bool {
	return r != nil && !r.Started.IsZero() && r.Exit == nil && r.Shim != Dead && r.Scope != ScopeGone
}

// AgentAppeared reports whether the run's agent was executed and, if it reports when it is ready
// (Type=notify), became ready.
func (r *Run) AgentAppeared() bool {
	return !r.Started.IsZero() && (!r.Notify || !r.Ready.IsZero())
}

// isEndIntended reports whether a stop or a suspend was requested and has ended the run, or will
// end it. This is false if the agent had exited by itself, or RuntimeMaxSec= had expired, before
// the request.
func (r *Run) isEndIntended() bool {
	if r.Intent == NoIntent || !r.TimedOut.IsZero() && r.timedOut().before(r.intentMoment()) {
		return false
	}
	return r.Exit == nil || !r.exitedBefore(r.intentMoment(), r.SignalledBySystemd)
}

// exitedBefore reports whether the agent, whose exit is recorded, exited before the request to end.
// bySystemd means that systemd sent the signal and recorded the time of the request.
func (r *Run) exitedBefore(request Moment, bySystemd bool) bool {
	if bySystemd && r.Exit.Code == exitstatus.Killed && r.Exit.Value == int(unix.SIGTERM) {
		request = request.earlier(systemdNoteTime)
	}
	return r.exited().before(request)
}

// systemdNoteTime is how much time can pass on a busy machine between systemd's SIGTERM and the
// time that systemd records for it. If SIGTERM killed an agent within this time before the recorded
// one, it was this SIGTERM.
const systemdNoteTime = 2 * time.Second

// isEndedByTimeout reports whether RuntimeMaxSec= ended the agent. A scope stays active with its
// tmux session after the agent has exited, and RuntimeMaxSec= can still expire then: that did not
// end the agent. If it is unknown when RuntimeMaxSec= expired, an agent that exited with code 0
// counts as one that had exited before.
func (r *Run) isEndedByTimeout() bool {
	switch {
	case r.ScopeResult != word.Timeout:
		return false
	case r.Exit == nil:
		return true
	case r.TimedOut.IsZero():
		return r.Exit.Code != exitstatus.Exited || r.Exit.Value != 0
	}
	return !r.exited().before(r.timedOut())
}

// Ended reports whether the run has ended, for the purpose of its state. Leftover processes may
// still be in its scope.
func (r *Run) Ended() bool {
	return r == nil || r.Exit != nil || r.Scope == ScopeGone || r.StartError != "" || r.TmuxSurvived
}

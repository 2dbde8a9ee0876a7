// Package word has the words of the contract: the values that properties, arguments and details of
// type string have on the bus. Each word is a constant, also if several properties have it. The
// package imports nothing, so that the rules about sessions use the same constants as the clients.
package word

// The values of the State property. Package session defines what they mean.
const (
	Created   = "created"
	Starting  = "starting"
	Running   = "running"
	Stopping  = "stopping"
	Stopped   = "stopped"
	Completed = "completed"
	Failed    = "failed"
	Stale     = "stale"
	Suspended = "suspended"
	Orphaned  = "orphaned"
	Archived  = "archived"
)

// States has every value of the State property, in the order of a session's life.
var States = []string{
	Created, Starting, Running, Stopping, Stopped, Completed, Failed, Stale, Suspended, Orphaned, Archived,
}

// The values of the Activity property.
const (
	Unknown = "unknown" // no agent is alive, or nothing was reported yet
	Working = "working"
	Idle    = "idle"
	Waiting = "waiting" // for a person
)

// Activities are the activities that an agent can report.
var Activities = []string{Working, Waiting, Idle}

// The values of the Attention property, besides the states Failed, Completed, Stale and Orphaned.
const (
	Permission = "permission"
	Question   = "question"
	Auth       = "auth"
	Blocked    = "blocked" // the agent cannot continue without a person, and has not reported why
	Setup      = "setup"
	Limit      = "limit" // the agent has reached a usage limit
	TurnEnded  = "turn-ended"
	Error      = "error" // also a value of the Lifecycle property
	Bell       = "bell"  // also a source
)

// Reasons are the reasons for attention that an agent can report. Corral determines the others.
var Reasons = []string{Permission, Question, Auth, Blocked, Setup, Limit, TurnEnded, Error}

// The values of the Lifecycle property, besides Suspended, Archived and Error.
const Active = "active"

// The values of the Result property. It is empty while the agent runs.
const (
	Success     = "success"
	ExitCode    = "exit-code"
	Signal      = "signal"
	CoreDump    = "core-dump"
	OOMKill     = "oom-kill"
	Timeout     = "timeout"
	StartFailed = "start-failed"
	SessionLost = "session-lost"
	AgentLost   = "agent-lost"
)

// The values of the EndCause property, besides Idle.
const (
	Shutdown       = "shutdown"        // of corrald, the login session or the machine
	TerminalClosed = "terminal-closed" // a person closed the agent's terminal
	ScopeStopped   = "scope-stopped"   // with systemctl
	Killed         = "killed"          // all processes of the session at once, so that no exit status was saved
)

// The sources of status reports, besides Bell (the terminal's bell and its notification sequences:
// OSC 9, 99, 777), as in the AttentionSource property. It has Output for Screen.
const (
	OSC7501 = "osc7501" // the agent, by the Program Status Protocol on its terminal
	Report  = "report"  // the agent's hooks, on the bus
	Notify  = "notify"  // the agent, by sd_notify(3)
	Title   = "title"   // the terminal's title, and a shell's prompt marks (OSC 133)
	Output  = "output"  // whether the agent prints anything
	Screen  = "screen"  // the terminal's screen, for an agent that reports nothing
)

// The values of the Notification property. It is empty if nobody is to be notified.
const (
	Pending = "pending" // nobody has been notified yet
	Shown   = "shown"   // on the desktop of this machine, or of another one
)

// The subjects of Explain.
const (
	State     = "state"
	Activity  = "activity"
	Attention = "attention"
)

// The ways to begin a run, as in BeginSession. Ignore, Resume and Start are the values of the
// OnLogin property.
const (
	Start   = "start"
	Resume  = "resume"
	Restart = "restart"
	Ignore  = "ignore"
)

// LoginActions has every value of the OnLogin property.
var LoginActions = []string{Ignore, Resume, Start}

// The recipients of a signal, as in KillSession.
const (
	Agent     = "agent"
	All       = "all"
	Leftovers = "leftovers"
)

// Recipients has every recipient of a signal.
var Recipients = []string{Agent, All, Leftovers}

package session

import "time"

// Op is an operation on a session that is not finished.
type Op int

// The operations. Start, Resume and Restart begin a run; Stop to Remove end one.
const (
	NoOp      Op = iota
	OpStart      // a new run with a conversation of its own
	OpResume     // a new run that continues the conversation
	OpRestart    // OpStop, then OpStart
	OpRejoin     // a new tmux server for an agent that has lost its own
	OpStop       // end the run
	OpSuspend    // end the run, to be resumed
	OpArchive    // end what the run has left, then archive the session
	OpRemove     // end the run, then delete the session
)

// begins reports whether the operation begins a run.
func (o Op) begins() bool { return o == OpStart || o == OpResume || o == OpRestart }

// Phase is how far the pending operation of a session has come.
type Phase int

// The phases. Prepare to Continued are those of a start, TermAgent to Surviving those of the
// escalation that ends a scope.
const (
	NoPhase            Phase = iota
	Prepare                  // the event loop prepares the run
	CreateConversation       // IdCommand= runs
	Launch                   // the scope is started, and the agent is awaited
	Continued                // the same, after the shim and tmux were continued, in case they are stopped
	Rejoin                   // a tmux server is started around the agent
	TermAgent                // SIGTERM to the agent, as soon as it has appeared
	HangUpAgent              // SIGHUP to an agent that ignores SIGTERM
	TermAll                  // SIGTERM to everything in the scope
	KillAll                  // SIGKILL to everything in the scope, again at each deadline
	Surviving                // something has survived SIGKILL: the end of the scope is awaited
	Cleanup                  // what an ended session has left is removed
	SetUp                    // the worktree is set up before the first run
)

// ends reports whether the phase is one of the escalation that ends a scope.
func (p Phase) ends() bool { return p >= TermAgent && p <= Surviving }

// starts reports whether the phase is one of a start.
func (p Phase) starts() bool { return p >= Prepare && p <= Continued }

// Pending is the operation of a session that is not finished. The zero value is none. It is not
// saved: from the facts that it finds, a new daemon derives that a run starts or is to end, but not
// what was to follow that end.
type Pending struct {
	Op       Op
	Phase    Phase
	Deadline time.Duration // by CLOCK_MONOTONIC: when the phase is over at the latest, 0 if it does not end by time

	Begin Begin // the run to begin, or that begins

	Began     time.Duration // by CLOCK_MONOTONIC: when the escalation began
	Grace     time.Duration // from Began to the first SIGKILL
	Signalled bool          // the agent was sent its first signal, by corrald, systemd or the shim
	Kills     int           // how many times the scope was killed

	Starting bool // the executor is starting the run
	Inside   bool // in the scope of the run before it

	Replies []Reply // calls that wait
}

// Begin is what a run is begun with.
type Begin struct {
	Run    RunBegun
	Resume bool // it is to continue the conversation; it may turn out that it cannot
	Inside bool // it runs in the scope of the run before it
	Prompt bool // its agent is given the session's prompt; known once it begins
}

// Reply is a call that waits for the end of an operation.
type Reply struct {
	ID  ReplyID
	Op  Op     // the operation that the call waits for
	Run string // the run that the session had when the call was made
}

// ReplyID identifies a call that waits. It is chosen by the event loop and never used twice; 0
// stands for no call.
type ReplyID uint64

// Outcome is how a call is answered. The event loop turns it into an error.
type Outcome int

// The outcomes.
const (
	Done               Outcome = iota
	NotPossible                // the session's state does not allow it
	Replaced                   // another operation has replaced it
	StoppedMeanwhile           // the session was stopped before its run began
	SuspendedMeanwhile         // the same, suspended
	RemovedMeanwhile           // the same, removed
	CouldNotStart              // the session's Reason explains it
	Closing                    // the daemon or the machine is shutting down
	SurvivedKill               // processes of the scope have survived SIGKILL
	EffectFailed               // Answer.Err explains it
)

// IsNone reports whether no operation is pending.
func (p Pending) IsNone() bool {
	return p.Op == NoOp && p.Phase == NoPhase && !p.Starting && len(p.Replies) == 0
}

// WaitsToBegin reports whether a run begins once the one before it is over, or the worktree is set
// up.
func (p Pending) WaitsToBegin() bool { return p.Op.begins() && (p.Phase.ends() || p.Phase == SetUp) }

// Ending reports whether the run is being ended.
func (p Pending) Ending() bool { return p.Phase.ends() }

// Removing reports whether what the ended session has left is being removed.
func (p Pending) Removing() bool { return p.Phase == Cleanup }

// Can reports whether the operation is possible. With force, OpRemove is also possible while a run
// has not ended.
func (s *Session) Can(p Pending, op Op, force bool) bool {
	switch op {
	case OpStart, OpResume:
		return s.isAvailable(p) && s.Run.Ended()
	case OpRestart:
		return s.isAvailable(p)
	case OpRejoin:
		return s.isLeftStale(p) && s.Run.AgentAlive()
	case OpSuspend:
		return !s.Run.Ended() && s.Run.Intent != Stop
	case OpArchive:
		return s.isAvailable(p) && (s.Run.Ended() || s.CanBeginInside(p))
	case OpRemove:
		return p.Phase != Cleanup && (force || !p.WaitsToBegin() && s.Run.Ended())
	}
	return true
}

// isAvailable reports whether earlier requests permit another run, or the archival of the session:
// it is not archived, not about to be archived or removed, no run is about to begin, and no
// setup is being canceled.
func (s *Session) isAvailable(p Pending) bool {
	return s.Archived.IsZero() && !p.WaitsToBegin() && p.Phase != Cleanup && p.Phase != SetUp && p.Op < OpArchive
}

// isLeftStale reports whether the run has lost its tmux session and no operation is pending.
func (s *Session) isLeftStale(p Pending) bool { return s.Stale() && p.Phase == NoPhase }

// CanBeginInside reports whether a run can begin in the scope of the one before it: that one has
// lost its tmux session and its agent, but processes remain in the scope.
func (s *Session) CanBeginInside(p Pending) bool {
	return s.isLeftStale(p) && !s.Run.AgentAlive()
}

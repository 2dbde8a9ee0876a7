package session

import "time"

// The events that request an operation. They change no facts by themselves: Next records those.
type (
	// BeginRequested requests a new run: Op is OpStart, OpResume or OpRestart. The caller has checked
	// that no other session uses its workspace or its conversation.
	BeginRequested struct {
		Op    Op
		Begin Begin
		Reply ReplyID
	}
	// RejoinRequested requests a new tmux server around an agent that has lost its own.
	RejoinRequested struct {
		Reply ReplyID
	}
	// EndRequested requests the end of the run: Op is OpStop or OpSuspend.
	EndRequested struct {
		Op        Op
		Why       string        // for a person
		Idle      bool          // it is suspended for being idle
		Grace     time.Duration // 0 for Env.Grace
		Signalled bool          // systemd or the shim has sent the agent its first signal already
		Systemd   bool          // systemd has stopped the scope since At: the run ends in any case
		At        Now           // zero for the time of the iteration
		Reply     ReplyID
	}
	// WaitRequested requests an answer at the end of the operation that is pending: Op is OpStart to
	// wait for the start of a run, OpStop to wait for the end of one.
	WaitRequested struct {
		Op    Op
		Reply ReplyID
	}
	// ScopeStopped reports that the scope is stopped for a reason that was recorded as a fact: systemd
	// has reported that RuntimeMaxSec= has expired, that it is out of memory, or a stop that its
	// agent, which lives elsewhere, has not noticed.
	ScopeStopped struct {
		Signalled bool // as in EndRequested
	}
	// ArchiveRequested requests that the session is archived once its scope is gone.
	ArchiveRequested struct {
		Reply ReplyID
	}
	// RemoveRequested requests that the session is removed once its scope is gone. With Force, a run
	// that has not ended is ended.
	RemoveRequested struct {
		Force bool
		Reply ReplyID
	}
)

// The results of effects. Err is nil if there was no error.
type (
	// StartPrepared is the result of PrepareStart.
	StartPrepared struct {
		CreateConversation bool // a command creates the conversation first
	}
	// ConversationCreated is that of CreateConversationID. The loop has recorded the id.
	ConversationCreated struct{ Run, ID string }
	// StartReturned is that of StartScope, or of a CreateConversationID that has failed. Err is "" if
	// the scope, tmux and the shim run.
	StartReturned struct{ Run, Err string }
	// Rejoined is that of RejoinTmux.
	Rejoined struct {
		Run string
		Err error
	}
	// Cleaned is that of CleanUp.
	Cleaned struct{ Err error }
)

// Tick reports that the deadline of the pending operation has come.
type Tick struct{}

func (BeginRequested) apply(*Session)      {}
func (RejoinRequested) apply(*Session)     {}
func (EndRequested) apply(*Session)        {}
func (WaitRequested) apply(*Session)       {}
func (ScopeStopped) apply(*Session)        {}
func (ArchiveRequested) apply(*Session)    {}
func (RemoveRequested) apply(*Session)     {}
func (ConversationCreated) apply(*Session) {}
func (StartPrepared) apply(*Session)       {}
func (StartReturned) apply(*Session)       {}
func (Rejoined) apply(*Session)            {}
func (Cleaned) apply(*Session)             {}
func (Tick) apply(*Session)                {}

// Effect is a plain value that names something to be done outside of the facts. The set is closed.
type Effect interface{ effect() }

// The effects that Next decides and that the event loop carries out itself, at once.
type (
	PrepareStart         struct{}          // StartPrepared is its result
	ReleaseRun           struct{ Run Run } // releases what the daemon holds for a run whose scope is gone
	CancelConversationID struct{}          // ends CreateConversationID
)

// The recipients of a client's signal.
const (
	RecipientAgent     = "agent"
	RecipientAll       = "all"
	RecipientLeftovers = "leftovers"
)

const sigkill = 9 // signal(7)

// Answer answers a call that waits.
type Answer struct {
	ID      ReplyID
	Outcome Outcome
	Err     error // of EffectFailed
}

// The effects that Next decides and that the executor carries out on the session's run.
type (
	CreateConversationID struct{} // runs IdCommand=; ConversationCreated is its result
	StartScope           struct{} // starts the scope, tmux and the shim; StartReturned is its result
	RejoinTmux           struct{} // starts a tmux server around the agent; Rejoined is its result
	ContinueShim         struct{} // sends SIGCONT to the shim and to the tmux server, which may be stopped
	SignalAgent          struct{} // sends SIGTERM, and SIGHUP to an agent that ignores SIGTERM
	HangUp               struct{} // sends SIGHUP to an agent that ignores SIGTERM
	SignalAll            struct{} // sends SIGTERM to everything in the scope
	KillScope            struct{} // sends SIGKILL to everything in the scope
	CleanUp              struct{} // removes what an ended session has left; Cleaned is its result
)

// The effects that a call or an observation requires and that need no decision. The executor
// carries them out.
type (
	AnticipateStart struct{} // prepares the kernel for the StartScope that follows while the run is saved; does not wait
	UnwatchScope    struct{} // systemd need not report the end of the scope any more
	ReleaseScope    struct{} // has systemd end an empty scope whose end it has not noticed
	ReapTmux        struct{} // makes the tmux server notice that a program of a pane has exited
	ReopenSockets   struct{} // makes the shim and tmux recreate missing sockets
	Freeze          struct{} // returns once no process of the scope runs; after an error none is frozen
	Thaw            struct{} // does nothing if the scope itself is not frozen
	SendSignal      struct { // of a client
		Recipient string // RecipientAgent, RecipientAll or RecipientLeftovers
		Signal    int
	}
	KillProcess  struct{ Process Process } // sends SIGKILL to exactly this process
	SetDetachKey struct{ Key string }      // by tmux's name, "" for none
	TypeText     struct {                  // into the agent's terminal, as a whole
		Text  string
		Enter bool
	}
	PressKeys struct { // in the agent's terminal, in order with texts
		Keys  []string           // by tmux's names
		Asked *PermissionRequest // they are pressed only while the agent asks this, nil for always
	}
	SetProperties struct { // of the scope, all or none of them
		InvocationID string // "" only checks whether a scope could be started with them
		Properties   []Property
	}
)

// IsImmediate reports whether an effect bypasses the queue of its session, because the effect that
// the queue waits for may be the one that hangs.
func IsImmediate(e Effect) bool {
	switch e.(type) {
	case ContinueShim, KillScope, ReapTmux, SendSignal:
		return true
	}
	return false
}

// RequiresThaw reports whether the scope is thawed before the effect, because it makes processes
// exit: a frozen process exits at SIGKILL only, its shim cannot record that, and systemd refuses to
// stop the scope (since version 257). SIGKILL to leftover processes needs no thaw, because their
// exits are not recorded.
func RequiresThaw(e Effect) bool {
	switch e := e.(type) {
	case SignalAgent, SignalAll, KillScope:
		return true
	case SendSignal:
		return e.Signal == sigkill && e.Recipient != RecipientLeftovers
	}
	return false
}

func (PrepareStart) effect()         {}
func (ReleaseRun) effect()           {}
func (CreateConversationID) effect() {}
func (CancelConversationID) effect() {}
func (StartScope) effect()           {}
func (RejoinTmux) effect()           {}
func (ContinueShim) effect()         {}
func (SignalAgent) effect()          {}
func (HangUp) effect()               {}
func (SignalAll) effect()            {}
func (KillScope) effect()            {}
func (CleanUp) effect()              {}
func (Answer) effect()               {}
func (AnticipateStart) effect()      {}
func (UnwatchScope) effect()         {}
func (ReleaseScope) effect()         {}
func (ReapTmux) effect()             {}
func (ReopenSockets) effect()        {}
func (Freeze) effect()               {}
func (Thaw) effect()                 {}
func (SendSignal) effect()           {}
func (KillProcess) effect()          {}
func (SetDetachKey) effect()         {}
func (TypeText) effect()             {}
func (PressKeys) effect()            {}
func (SetProperties) effect()        {}

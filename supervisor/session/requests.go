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
		At        Moment        // zero for the time of the iteration
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
	// SetupReturned is that of SetUpWorktree. Err is "" if the worktree is set up.
	SetupReturned struct{ Err string }
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
func (SetupReturned) apply(*Session)       {}
func (Rejoined) apply(*Session)            {}
func (Cleaned) apply(*Session)             {}
func (Tick) apply(*Session)                {}

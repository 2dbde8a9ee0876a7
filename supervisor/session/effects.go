package session

import "github.com/corrald/corral/dbusapi/word"

// Effect is a plain value that names something to be done outside of the facts. The set is closed.
type Effect interface{ effect() }

// The effects that Next decides and that the event loop carries out itself, at once.
type (
	PrepareStart         struct{}          // StartPrepared is its result
	ReleaseRun           struct{ Run Run } // releases what the daemon holds for a run whose scope is gone
	CancelConversationID struct{}          // ends CreateConversationID
	SetUpWorktree        struct{}          // SetupReturned is its result; it does not wait
	CancelSetup          struct{}          // ends SetUpWorktree
)

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
	ReleaseScope    struct{} // has systemd end an empty scope whose end it has not noticed
	ReapTmux        struct{} // makes the tmux server notice that a program of a pane has exited; does not wait
	ReopenSockets   struct{} // makes the shim and tmux recreate missing sockets
	Freeze          struct{} // returns once no process of the scope runs; after an error none is frozen
	Thaw            struct{} // does nothing if the scope itself is not frozen
	SendSignal      struct { // of a client
		Recipient string // word.Agent, All or Leftovers
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

const sigkill = 9 // signal(7)

// IsImmediate reports whether an effect bypasses the queue of its session. No other effect does.
func IsImmediate(e Effect) bool {
	switch e.(type) {
	case ContinueShim, KillScope, ReapTmux, SendSignal:
		return true // the effect that the queue waits for may be the one that hangs
	case TypeText, PressKeys:
		return true // input: it begins and ends nothing, and takes as long as the agent does not read
	case AnticipateStart, ReopenSockets, SetDetachKey:
		return true // upkeep: it begins and ends nothing, and may be repeated or lost
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
		return e.Signal == sigkill && e.Recipient != word.Leftovers
	}
	return false
}

func (PrepareStart) effect()         {}
func (ReleaseRun) effect()           {}
func (CreateConversationID) effect() {}
func (CancelConversationID) effect() {}
func (SetUpWorktree) effect()        {}
func (CancelSetup) effect()          {}
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

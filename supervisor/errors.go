package supervisor

import (
	"errors"
	"fmt"
	"strings"

	"github.com/corrald/corral/supervisor/session"
)

// Kind is the kind of an Error: a caller decides by it what to do.
type Kind int

const (
	NoSuchSession Kind = iota + 1
	SessionExists
	NoSessionForPID
	NoSessionForUnit
	NoSuchAgent
	AgentNotInstalled
	InvalidState
	NotResumable
	NotWaiting
	Unsupported // the agent's definition does not specify how
	WorkspaceMissing
	WorkspaceBusy
	ConversationBusy
	StartFailed
	TmuxFailed
	TooManySessions
	ShuttingDown
	ConfigError
	NotTrusted   // the user has not approved a script that is to be executed
	Invalid      // an argument is invalid
	NotPermitted // to the agent that calls
	OverLimit    // an argument exceeds a limit
	TimedOut     // the operation was not finished in time, and may still finish
)

// Error is an error that a caller can act on. Text is one English sentence that names the session
// or the argument.
type Error struct {
	Kind Kind
	Text string
}

func (e *Error) Error() string { return e.Text }

// NoSession returns the error that there is no session with this id.
func NoSession(id string) error { return refuse(NoSuchSession, "no such session: %s", brief(id)) }

// refuse returns an *Error with a formatted text.
func refuse(kind Kind, format string, args ...any) error {
	return &Error{kind, fmt.Sprintf(format, args...)}
}

// kindOf returns the kind of an error, 0 if it is not an *Error.
func kindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return 0
}

// stateError returns the error that an operation is not possible in the session's state.
func stateError(e *entry) error {
	if e.pending.Phase == session.SetUp {
		return refuse(InvalidState, "the worktree of session %q is being set up", e.rec.ID)
	}
	clause := strings.TrimPrefix(stateClause(e.rec.View().State), "it ")
	return refuse(InvalidState, "session %q %s", e.rec.ID, clause)
}

// stateClause returns what has happened to a session in this state, as a clause of an error
// message.
func stateClause(state session.State) string {
	switch state {
	case session.Created:
		return "it was never started"
	case session.Stopped:
		return "it was stopped"
	case session.Completed:
		return "it has completed"
	case session.Failed:
		return "it has failed"
	}
	return fmt.Sprintf("it is %s", state)
}

// brief quotes a text of a client for a message, and shortens it.
func brief(text string) string {
	const maxLength = 64
	if len(text) > maxLength {
		return fmt.Sprintf("%q… (%d bytes)", text[:maxLength], len(text))
	}
	return fmt.Sprintf("%q", text)
}

// noError is a check that returns no error.
func noError(*entry) error { return nil }

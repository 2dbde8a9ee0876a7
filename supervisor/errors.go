package supervisor

import (
	"errors"
	"fmt"
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
	Invalid   // an argument is invalid
	OverLimit // an argument exceeds a limit
	TimedOut  // the operation was not finished in time, and may still finish
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

package supervisor

import (
	"errors"
	"fmt"
)

// Kind tells a caller what to do about an Error.
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
	Unsupported // the agent's definition does not say how
	WorkspaceMissing
	WorkspaceBusy
	ConversationBusy
	StartFailed
	TmuxFailed
	TooManySessions
	ShuttingDown
	ConfigError
	Invalid   // an argument is not what it should be
	OverLimit // an argument is larger than it may be
	TimedOut  // it has not happened in time, and may still
)

// Error is a refusal or a failure that a caller can act on. Text is one English sentence that names the session or the argument.
type Error struct {
	Kind Kind
	Text string
}

func (e *Error) Error() string { return e.Text }

// NoSession is the error for an id that no session has.
func NoSession(id string) error { return refuse(NoSuchSession, "no such session: %s", brief(id)) }

func refuse(kind Kind, format string, args ...any) error {
	return &Error{kind, fmt.Sprintf(format, args...)}
}

// kindOf returns what a caller is to do about an error, 0 if it is none of these.
func kindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return 0
}

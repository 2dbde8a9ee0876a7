package notify

import (
	"context"
	"errors"
	"time"
)

// Session is a session as it was published. It is not changed after it was passed to a Notifier.
// Times are of the wall clock, zero if there is none. Fields without a comment are properties of
// the session on the bus.
type Session struct {
	ID               string
	Agent            string
	Description      string
	Labels           map[string]string
	WorkingDirectory string
	State            string
	StateChanged     time.Time
	Result           string
	Reason           string
	EndCause         string
	Run
	Attached  bool
	Resumable bool

	Attention             string
	AttentionMessage      string
	AttentionSource       string
	AttentionSince        time.Time
	AttentionUntil        time.Time
	AttentionAcknowledged bool
	ContinueAt            time.Time // ContinueTimestamp

	// Interrupted: it is suspended, neither on request nor for being idle.
	Interrupted bool
	// ByRequest: its result is the consequence of a client's request, and that client knows it.
	ByRequest bool
	// Notification, of a session on another machine, is what the corrald there has decided.
	Notification string
}

// Run is the last run of a session.
type Run struct {
	ExecMainCode   int32
	ExecMainStatus int32
	Started        time.Time // ExecMainStartTimestamp
	Exited         time.Time // ExecMainExitTimestamp
	AgentAlive     bool
}

// since returns what identifies a notification about the session as it is now: since when it has
// needed attention or, without Attention, has been in its state.
func (n *Session) since() time.Time {
	if n.Attention != "" {
		return n.AttentionSince
	}
	return n.StateChanged
}

// Change is a change of a session. Session is nil if it was removed.
type Change struct {
	ID      string
	Session *Session
}

// Sessions carries out the actions of notices.
type Sessions interface {
	Resume(ctx context.Context, id string) error
	Restart(ctx context.Context, id string) error
	Acknowledge(ctx context.Context, id string) error
	// AcknowledgeState acknowledges the state of the session, but no request of its agent.
	AcknowledgeState(ctx context.Context, id string) error
	// Reply types a text and presses Enter, if the agent waits for input.
	Reply(ctx context.Context, id, text string) error
	// AnswerPermission approves or denies the permission that the agent has asked for at that time.
	AnswerPermission(ctx context.Context, id string, deny bool, since time.Time) error
}

// ErrClosed is returned by a Notifier that was closed.
var ErrClosed = errors.New("the notifier is closed")

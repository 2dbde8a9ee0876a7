package supervisor

import (
	"context"
	"errors"
	"time"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/corrald/corral/supervisor/session"
)

// Answer is a person's answer to a permission request of an agent.
type Answer struct {
	Deny bool // deny permission, instead of granting it

	// Since is AttentionSince of the request that the person has seen, compared to the microsecond;
	// zero for the current request.
	Since time.Time
}

// AnswerPermission grants or denies the permission that the session's agent requests: it presses
// the keys of ApproveKeys= or DenyKeys= in the agent's definition. They are pressed only while the
// agent makes the request: the event loop refuses if it knows that the request is over, and the
// shim, which is the first to see what the agent prints, checks again before each key that it
// writes. Errors: NoSuchSession, InvalidState, NotWaiting, Unsupported.
func (s *Supervisor) AnswerPermission(ctx context.Context, id string, answer Answer) error {
	return s.loop.operations.giveInput(ctx, id, "answer", func(e *entry) (session.Effect, time.Duration, error) {
		keys, err := answerKeys(e, answer.Deny)
		if err != nil {
			return nil, 0, err
		}
		request, err := e.run.reports.permissionRequest(answer.Since)
		return session.PressKeys{Keys: keys, Asked: &request}, keysTimeout(len(keys)), err
	})
}

// NotAskedError is returned if the agent no longer makes the request that keys should have
// answered. No key was pressed.
type NotAskedError struct{ Why string }

func (e *NotAskedError) Error() string { return e.Why }

// ErrOldShim is returned if the shim cannot check whether its agent still makes the request,
// because an older version of Corral has started it.
var ErrOldShim = errors.New("its shim was started by an older version of Corral")

// answerKeys returns the keys that answer the permission requests of the session's agent. Errors:
// Unsupported.
func answerKeys(e *entry, deny bool) ([]string, error) {
	def, name := e.definition(), "ApproveKeys="
	keys := def.ApproveKeys
	if deny {
		keys, name = def.DenyKeys, "DenyKeys="
	}
	if len(keys) == 0 {
		return nil, refuse(Unsupported, "session %q cannot be answered: the definition of agent %q has no %s; "+
			"answer in its terminal", e.rec.ID, e.rec.Agent, name)
	}
	return keys, nil
}

// permissionRequest returns the permission request of the session's agent, if it was made at
// the time since (zero: any time) and was not answered just now. Errors: NotWaiting.
func (r *statusReports) permissionRequest(since time.Time) (session.PermissionRequest, error) {
	e := r.e
	request, ok := e.rec.PermissionRequest()
	switch {
	case !ok:
		return request, notWaiting(e.rec.ID, activityClause(e.rec))
	case r.isJustAnswered():
		return request, notWaiting(e.rec.ID, "it was answered just now")
	case !since.IsZero() && since.UnixMicro() != request.Since.UnixMicro():
		return request, refuse(NotWaiting, "session %q now asks for something else", e.rec.ID)
	}
	return request, nil
}

// activityClause returns what an agent does that requests no permission, as a clause of an error
// message.
func activityClause(rec *session.Session) string {
	switch activity, _, _ := rec.Activity(); activity {
	case word.Waiting:
		return "its agent waits for something else"
	case word.Unknown:
		return "what its agent does is unknown"
	default:
		return "its agent is " + activity
	}
}

// notWaiting returns the error that the session's agent requests no permission.
func notWaiting(id, why string) error {
	return refuse(NotWaiting, "session %q does not wait for a permission: %s", id, why)
}

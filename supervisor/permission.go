package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/corrald/corral/supervisor/session"
)

// Answer is what a person says to what an agent asks permission for.
type Answer struct {
	Deny  bool      // the agent may not do it; else it may
	Since time.Time // AttentionSince of the question that the person has seen, as exact as a microsecond; zero for whatever is asked now
}

// NotAskedError is returned where an agent does not ask any more what keys were to answer. None was pressed.
type NotAskedError struct{ Why string }

func (e *NotAskedError) Error() string { return e.Why }

// ErrOldShim is returned where a shim cannot check that its agent still asks: it was started by an older version.
var ErrOldShim = errors.New("its shim was started by an older version of Corral")

// Approve presses the keys by which the session's agent is permitted what it asks for: ApproveKeys= of its definition. Errors: NoSuchSession,
// InvalidState, NotWaiting, Unsupported.
func (s *Supervisor) Approve(ctx context.Context, id string) error {
	return s.AnswerPermission(ctx, id, Answer{})
}

// Deny presses the keys by which it is denied: DenyKeys=. Errors: as Approve.
func (s *Supervisor) Deny(ctx context.Context, id string) error {
	return s.AnswerPermission(ctx, id, Answer{Deny: true})
}

// AnswerPermission is Approve or Deny. The keys are pressed only while the agent asks: the loop refuses what it knows to be over, and the shim, which
// sees what the agent prints first, checks again at each key that it writes. Errors: as Approve.
func (s *Supervisor) AnswerPermission(ctx context.Context, id string, answer Answer) error {
	var keys []string
	var asked session.PermissionRequest
	check := func(e *entry) (err error) {
		if keys, err = s.answerKeys(e, answer.Deny); err == nil {
			asked, err = s.permissionOf(e, answer.Since)
		}
		return err
	}
	return s.give(ctx, id, "answer", check, func(t Target) error {
		ctx, cancel := s.AfterFunc.Context(ctx, keysTime(len(keys)))
		defer cancel()
		err := s.World.Keys(ctx, t, keys, &asked)
		var over *NotAskedError
		switch {
		case errors.As(err, &over):
			return notAsked(id, over.Why)
		case errors.Is(err, ErrOldShim):
			return refuse(InvalidState, "cannot answer session %q: %v and cannot check whether the agent still asks; answer in its terminal", id, err)
		case err != nil:
			s.lostSocket(t, err)
			return refuse(InvalidState, "cannot answer session %q: %v", id, err)
		}
		return nil
	})
}

// answerKeys returns the keys by which the session's agent is answered.
func (s *Supervisor) answerKeys(e *entry, deny bool) ([]string, error) {
	def, name := s.Agents[e.rec.Agent], "ApproveKeys="
	keys := def.ApproveKeys
	if deny {
		keys, name = def.DenyKeys, "DenyKeys="
	}
	if len(keys) == 0 {
		return nil, refuse(Unsupported, "session %q cannot be answered: the definition of agent %q has no %s; answer in its terminal", e.rec.ID, e.rec.Agent, name)
	}
	return keys, nil
}

// permissionOf returns what the session's agent asks permission for, if it does so since then, and was not answered just now.
func (s *Supervisor) permissionOf(e *entry, since time.Time) (session.PermissionRequest, error) {
	asked, ok := e.rec.PermissionRequest()
	switch {
	case !ok:
		return asked, notAsked(e.rec.ID, doing(e.rec))
	case e.rec.Answered() && s.Monotonic()-e.run.answered < answerTime:
		return asked, notAsked(e.rec.ID, "it was answered just now")
	case !since.IsZero() && since.UnixMicro() != asked.Since.UnixMicro():
		return asked, refuse(NotWaiting, "session %q now asks for something else", e.rec.ID)
	}
	return asked, nil
}

// doing returns, as part of a sentence, what an agent does that asks for no permission.
func doing(rec *session.Session) string {
	switch activity, _, _ := rec.Active(); activity {
	case session.Waiting:
		return "its agent waits for something else"
	case session.Unknown:
		return "what its agent does is unknown"
	default:
		return "its agent is " + activity
	}
}

func notAsked(id, why string) error {
	return refuse(NotWaiting, "session %q does not wait for a permission: %s", id, why)
}

// keysTime returns how long an agent may take to read so many keys: the shim has some programs rest between two of them.
func keysTime(n int) time.Duration {
	return min(sendTime+time.Duration(n)*200*time.Millisecond, firstSendTime)
}

// notIn is the refusal of what a session in this state cannot do.
func notIn(id string, state session.State) error {
	return refuse(InvalidState, "session %q %s", id, strings.TrimPrefix(stateClause(state), "it "))
}

// stateClause says of a session in this state, as part of a sentence, what has become of it.
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

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/corrald/corral/internal/outcome"
	"github.com/corrald/corral/supervisor/retention"
	"github.com/corrald/corral/supervisor/session"
)

// idleLimit returns how long the session's agent may be idle.
func (s *Supervisor) idleLimit(rec *session.Session) time.Duration {
	return retention.IdleLimit(rec, s.Agents[rec.Agent].IdleSuspend, s.Config.IdleSuspend)
}

// suspendsAt returns when the session is to be suspended for being idle, by CLOCK_MONOTONIC, 0 if
// never.
func (s *Supervisor) suspendsAt(e *entry) time.Duration {
	return retention.SuspendsAt(e.rec, retention.Idleness{
		Limit: s.idleLimit(e.rec), Attached: e.run.attached, DetachedAt: e.run.detachedAt,
		Pending: e.pending.Op, DaemonStarted: s.startTime,
	})
}

// suspendTime returns the time of the wall clock at which the session is to be suspended for being
// idle, zero if never. It is correct if until then the clock is not set and the machine does not
// sleep.
func (s *Supervisor) suspendTime(e *entry) time.Time {
	at := s.suspendsAt(e)
	if at == 0 {
		return time.Time{}
	}
	return time.Now().Round(0).Add(at - s.Monotonic())
}

// suspendIdle suspends the sessions that have been idle for too long.
func (s *Supervisor) suspendIdle() {
	now := s.Monotonic()
	for _, e := range s.sorted() {
		at := s.suspendsAt(e)
		if at == 0 || at > now {
			continue
		}
		s.apply(e, session.EndRequested{
			Op: session.OpSuspend, Why: fmt.Sprintf("%s%v", outcome.ReasonIdle, s.idleLimit(e.rec)), Idle: true,
		})
	}
}

// wake resumes a session that was suspended, or is being suspended, for being idle. If another
// caller is resuming the session, wake waits for that. With anyReason, it resumes a session that
// was suspended for any reason, and also waits for a start. It returns once the session runs, and
// reports whether it did not run before.
func (s *Supervisor) wake(ctx context.Context, id string, anyReason bool) (woken bool, err error) {
	for {
		var state session.State
		mustWake, starting, stopping := false, false, false
		if err := s.withSession(ctx, id, func(e *entry) (<-chan error, error) {
			state, mustWake = e.rec.View().State, anyReason || e.isIdleSuspended()
			switch {
			case !mustWake:
			case e.pending.WaitsToBegin() || e.rec.AwaitsAgent():
				starting = true
				return s.waitFor(e, session.OpStart), nil
			case state == session.Stopping && e.rec.Run.Intent == session.Suspend: // input to the stopping agent is lost
				stopping = true
				return s.waitFor(e, session.OpStop), nil
			}
			return nil, nil
		}); err != nil {
			return false, err
		}
		switch {
		case stopping:
		case starting, err != nil && state == session.Running:
			return true, nil
		case !mustWake || state != session.Suspended || err != nil:
			return false, err
		default:
			if err = s.Resume(ctx, id); kindOf(err) != InvalidState {
				return err == nil, err
			} // otherwise another caller was faster, or the state has other reasons: look again
		}
	}
}

// isIdleSuspended reports whether the session's run was ended, or is being ended, for being idle,
// or is about to begin after such a run.
func (e *entry) isIdleSuspended() bool {
	past := e.rec.Past
	return e.rec.Run != nil && e.rec.Run.IdledOut ||
		e.rec.AwaitsAgent() && len(past) > 0 && past[len(past)-1].IdledOut
}

// quietTimeout limits how long input waits for an agent that was just started to fall silent: a
// text that arrives while the agent still draws its first screen can be lost.
const quietTimeout = 15 * time.Second

// waitForQuiet waits until the session's agent is idle, or waits for a person, for at most
// quietTimeout. It does not wait for an agent whose shim holds input back until the agent can read
// it (TypeAhead=no).
func (s *Supervisor) waitForQuiet(ctx context.Context, id string) error {
	short, cancel := s.AfterFunc.Context(ctx, quietTimeout)
	defer cancel()
	err := s.withSession(short, id, func(e *entry) (<-chan error, error) {
		return s.waitUntil(e, func(e *entry) bool {
			activity, _, _ := e.rec.Activity()
			return e.removed || !e.rec.Run.AgentAlive() || s.Agents[e.rec.Agent].NoTypeAhead ||
				activity == session.Idle || activity == session.Waiting
		}, noError), nil
	})
	var late *Error
	if errors.As(err, &late) && late.Kind == TimedOut && ctx.Err() == nil {
		return nil
	}
	return err
}

// LastOutput returns when the session's agent last printed something: when its log was last
// modified. It returns zero if the agent has printed nothing. It does not use the event loop.
func (s *Supervisor) LastOutput(id string) time.Time {
	info, err := os.Stat(filepath.Join(s.Records.SessionDir(id), LogName))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/outcome"
	"github.com/corrald/corral/supervisor/session"
)

// idleLimit is how long the session's agent may be idle (IdleSuspendSec=). What is configured for all agents is not meant for one that would not go on
// where it was.
func (s *Supervisor) idleLimit(rec *session.Session) time.Duration {
	if own := s.Agents[rec.Agent].IdleSuspend; own != 0 {
		return own
	}
	if s.Config.IdleSuspend == 0 || !rec.Resumable() {
		return config.Infinity
	}
	return s.Config.IdleSuspend
}

// suspendsAt returns when the session will have been idle for too long, by CLOCK_MONOTONIC: 0 if it will not. One that somebody looks at is not idle,
// and one that waits for an answer is not either, but one whose turn has just ended is. While the machine sleeps nobody is idle: who opens a laptop in the
// morning finds the agents as they were.
func (s *Supervisor) suspendsAt(e *entry) time.Duration {
	limit := s.idleLimit(e.rec)
	if limit == config.Infinity || e.run.attached || e.leaving || e.then != nil || e.rec.Frozen || e.rec.View().State != session.Running {
		return 0
	}
	activity, since := e.rec.ActiveSince()
	if activity == session.Working || activity == session.Unknown || activity == session.Waiting && !e.rec.TurnEnded() {
		return 0
	}
	if since == 0 {
		since = s.began // an older version has recorded what it says
	}
	return max(since, e.run.detached) + limit
}

// suspension returns the time of day at which the session will have been idle for too long if nobody sets the clock and the machine does not sleep until
// then, zero if never.
func (s *Supervisor) suspension(e *entry) time.Time {
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
		run := e.rec.Run
		s.apply(e, session.EndAsked{
			Run: run.ID, Intent: session.Suspend, Why: fmt.Sprintf("%s%v", outcome.ReasonIdle, s.idleLimit(e.rec)), Idle: true, At: time.Now(), Monotonic: s.Monotonic(),
		})
		s.end(e, 0)
	}
}

// wake resumes a session that is suspended, or about to be, if that is so for its being idle, or for whatever reason; and waits for one that somebody else
// has begun to resume, or, whatever the reason, to start. It returns once the session runs, and whether it did not before.
func (s *Supervisor) wake(ctx context.Context, id string, whatever bool) (woken bool, err error) {
	for {
		var state session.State
		wanted, begins, ends := false, false, false
		if err := s.with(ctx, id, func(e *entry) (<-chan error, error) {
			state, wanted = e.rec.View().State, whatever || e.idledOut()
			switch {
			case !wanted:
			case e.starts || e.rec.Awaited():
				begins = true
				return s.wait(e, started, s.startError), nil
			case state == session.Stopping && e.rec.Run.Intent == session.Suspend: // what it is told until then is lost
				ends = true
				return s.wait(e, runGone(e), noError), nil
			}
			return nil, nil
		}); err != nil {
			return false, err
		}
		switch {
		case ends:
		case begins, err != nil && state == session.Running:
			return true, nil
		case !wanted || state != session.Suspended || err != nil:
			return false, err
		default:
			if err = s.Resume(ctx, id); kindOf(err) != InvalidState {
				return err == nil, err
			} // else somebody else was faster, or it has other reasons
		}
	}
}

// idledOut tells whether the session's run has ended, or is to end, for being idle, or begins where one has.
func (e *entry) idledOut() bool {
	past := e.rec.Past
	return e.rec.Run != nil && e.rec.Run.IdledOut ||
		e.rec.Awaited() && len(past) > 0 && past[len(past)-1].IdledOut
}

// calmTime is how long an agent that was just started has to fall silent: a text that comes while it still makes its screen can be lost.
const calmTime = 15 * time.Second

// calm waits until the session's agent is idle, or waits for a person. One that does not come to rest is not waited for any longer, and one whose shim holds
// back what it would lose (TypeAhead=no) not at all.
func (s *Supervisor) calm(ctx context.Context, id string) error {
	short, cancel := s.AfterFunc.Context(ctx, calmTime)
	defer cancel()
	err := s.with(short, id, func(e *entry) (<-chan error, error) {
		return s.wait(e, func(e *entry) bool {
			activity, _, _ := e.rec.Active()
			return e.removed || !e.rec.Run.AgentAlive() || s.Agents[e.rec.Agent].NoTypeAhead || activity == session.Idle || activity == session.Waiting
		}, noError), nil
	})
	var late *Error
	if errors.As(err, &late) && late.Kind == TimedOut && ctx.Err() == nil {
		return nil
	}
	return err
}

// LastOutput returns when the session's agent has last printed something, by its log; zero if it never has. It does not ask the loop.
func (s *Supervisor) LastOutput(id string) time.Time {
	info, err := os.Stat(filepath.Join(s.Records.SessionDir(id), LogName))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

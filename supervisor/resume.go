package supervisor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/supervisor/session"
)

// resumesAtATime bounds how many sessions ResumeAll brings back at the same time: each is a program that starts up.
const resumesAtATime = 4

// Resume goes on where the session's last run ended. A stale one, whose agent lives, gets a new tmux session around the same process; where only
// leftovers of its agent are there, a new run begins in the scope that they are in. Any other gets a new run with the agent's ResumeCommand, or
// Command where it has none, or no conversation was saved yet. It returns when it runs. Errors: NoSuchSession, InvalidState, NotResumable, WorkspaceMissing,
// WorkspaceBusy, ConversationBusy, StartFailed, TmuxFailed, ShuttingDown.
func (s *Supervisor) Resume(ctx context.Context, id string) error { return s.resumeBy(ctx, id, nil) }

// resumeBy is Resume by a caller whose environment came along.
func (s *Supervisor) resumeBy(ctx context.Context, id string, caller []string) error {
	if err := s.settled(ctx, id); err != nil {
		return err
	}
	w, err := s.wayIn(ctx, id, startable)
	if err != nil {
		return err
	}
	return s.with(ctx, id, func(e *entry) (<-chan error, error) {
		if err := s.mayBegin(); err != nil {
			return nil, err
		}
		r := e.rec.Run
		if r == nil && e.rec.Archived.IsZero() {
			return nil, refuse(NotResumable, "session %q has never run: there is nothing to resume", id)
		}
		switch stale := e.rec.Stale() && e.run.stage == notEnding; {
		case stale && e.run.joining:
			return nil, refuse(InvalidState, "session %q is being resumed", id)
		case stale && e.rec.Frozen:
			return nil, refuse(InvalidState, "session %q is frozen: thaw it first", id)
		case stale && r.AgentAlive():
			return s.rejoin(e), nil
		case stale && e.rec.View().State == session.Orphaned:
			return nil, refuse(WorkspaceMissing, "workspace %q is gone", e.rec.WorkingDirectory)
		case stale:
			s.begin(e, true, caller, &Into{r.InvocationID, r.ControlGroup, r.Agent})
			return s.wait(e, started, s.startError), nil
		}
		if err := s.mayStart(e, true, w); err != nil {
			return nil, err
		}
		return s.replace(e, true, caller, w), nil
	})
}

// rejoin has a new tmux session show the agent that lives.
func (s *Supervisor) rejoin(e *entry) <-chan error {
	e.run.joining = true
	reply := make(chan error, 1)
	t, plan := s.target(e), s.plan(e, false)
	s.effect(e, func() {
		failpoint.Hit("rejoin.asked")
		err := s.World.Rejoin(s.ctx, t, plan, func(ev session.Event) { s.event(e, ev) })
		s.post(func() {
			e.run.joining = false
			s.after = append(s.after, func() {
				if err != nil {
					err = refuse(TmuxFailed, "cannot resume %q: %v", t.ID, err)
				}
				reply <- err
			})
		})
	})
	return reply
}

// Suspend ends the session politely, to be resumed. It returns when the scope is empty. Errors: NoSuchSession, InvalidState.
func (s *Supervisor) Suspend(ctx context.Context, id string) error {
	return s.with(ctx, id, func(e *entry) (<-chan error, error) { return s.suspend(e, "") })
}

// suspend begins to suspend the session, on the loop. It returns where it will be told how that went.
func (s *Supervisor) suspend(e *entry, why string) (<-chan error, error) {
	if e.rec.Run.Ended() || e.rec.Run.Intent == session.Stop {
		return nil, notIn(e.rec.ID, e.rec.View().State)
	}
	s.ask(e, session.Suspend, why)
	s.end(e, 0)
	return s.wait(e, runGone(e), suspendError), nil
}

// suspendError tells what became of a session that was to be suspended: its agent may have ended by itself just before, and somebody else may have had another
// wish meanwhile.
func suspendError(e *entry) error {
	switch state := e.rec.View().State; {
	case e.removed || e.leaving:
		return refuse(InvalidState, "session %q was removed meanwhile", e.rec.ID)
	case state != session.Suspended:
		return notIn(e.rec.ID, state)
	}
	return nil
}

// SuspendAll suspends every session whose agent lives, all at the same time, and returns their ids once their scopes are empty.
func (s *Supervisor) SuspendAll(ctx context.Context) ([]string, error) {
	return s.suspendAll(ctx, "", func() {})
}

// suspendAll is SuspendAll, with something that is done on the loop before. All sessions are asked by one function on the loop: they are saved together, at the
// cost of about one sync, and none is asked before all are saved.
func (s *Supervisor) suspendAll(ctx context.Context, why string, before func()) ([]string, error) {
	var ids []string
	var replies []<-chan error
	err := s.do(func() {
		before()
		for _, e := range s.sorted() {
			if reply, err := s.suspend(e, why); err == nil {
				ids, replies = append(ids, e.rec.ID), append(replies, reply)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	accepted(ctx)
	errs := make([]error, len(ids))
	for i, reply := range replies {
		errs[i] = s.await(ctx, reply)
	}
	return succeeded(ids, errs)
}

// ResumeAll resumes every suspended session, the oldest first and a few at a time, and returns the ids of those that run. One that fails does not
// stop the others: its state says why. Errors: ShuttingDown.
func (s *Supervisor) ResumeAll(ctx context.Context) ([]string, error) {
	var ids []string
	var refused error
	err := s.do(func() {
		refused = s.mayBegin()
		ids = s.idsOf(func(e *entry) bool { return e.rec.View().State == session.Suspended })
	})
	if err = errors.Join(err, refused); err != nil {
		return nil, err
	}
	return s.eachOf(ctx, ids, resumesAtATime, s.Resume)
}

func (s *Supervisor) idsWhere(is func(*entry) bool) (ids []string, err error) {
	err = s.do(func() { ids = s.idsOf(is) })
	return ids, err
}

// idsOf is idsWhere on the loop.
func (s *Supervisor) idsOf(is func(*entry) bool) (ids []string) {
	for _, e := range s.sorted() {
		if is(e) {
			ids = append(ids, e.rec.ID)
		}
	}
	return ids
}

// letInTime is how long those that come after a session wait until it has been let in, such as for a workspace that does not answer.
const letInTime = time.Second

// eachOf calls f for every id, most of them at a time, and returns those for which it succeeded, in their order, which is that in which they are let in too: of
// two that want one thing the first gets it. Errors: those of succeeded.
func (s *Supervisor) eachOf(ctx context.Context, ids []string, most int, f func(context.Context, string) error) ([]string, error) {
	errs := make([]error, len(ids))
	slots := make(chan struct{}, max(most, 1))
	var all sync.WaitGroup
	for i, id := range ids {
		slots <- struct{}{}
		in := make(chan struct{})
		letIn := sync.OnceFunc(func() { close(in) })
		late := s.AfterFunc(letInTime, letIn)
		all.Go(func() {
			errs[i] = f(WhenAccepted(ctx, letIn), id)
			letIn()
			<-slots
		})
		<-in
		late.Stop()
	}
	all.Wait()
	return succeeded(ids, errs)
}

// succeeded returns the ids without an error. A session that is not as it was any more is none of the caller's trouble; that the time is over, or the daemon
// going, is.
func succeeded(ids []string, errs []error) ([]string, error) {
	done := []string{}
	var failed error
	for i, id := range ids {
		var refused *Error
		switch {
		case errs[i] == nil:
			done = append(done, id)
		case !errors.As(errs[i], &refused) || refused.Kind == TimedOut:
			failed = errs[i]
		}
	}
	return done, failed
}

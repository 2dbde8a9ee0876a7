package supervisor

import (
	"context"
	"errors"
	"slices"

	"github.com/corrald/corral/supervisor/session"
)

// calls are the calls that wait for the end of an operation.
type calls struct {
	waiting map[session.ReplyID]chan<- error
	last    session.ReplyID
}

// ErrClosed is returned for calls after the event loop has ended.
var ErrClosed = errors.New("corrald is shutting down")

// withSession calls f with the session on the event loop. Then it waits for an answer on the
// channel that f has returned, unless that is nil. Any goroutine but the event loop may call it.
func (l *loop) withSession(ctx context.Context, id string, f func(*entry) (<-chan error, error)) error {
	var reply <-chan error
	err := l.try(func() error {
		e, err := l.sessions.find(id)
		if err == nil {
			reply, err = f(e)
		}
		return err
	})
	if err != nil || reply == nil {
		return err
	}
	accepted(ctx)
	return l.awaitReply(ctx, reply)
}

// doWith is do for a function that is called with the session, and whose error it returns. Any
// goroutine but the event loop may call it. Errors: NoSuchSession, those of f.
func (l *loop) doWith(id string, f func(*entry) error) error {
	return l.withSession(l.ctx, id, func(e *entry) (<-chan error, error) { return nil, f(e) })
}

// awaitReply waits for the answer to a call. An answer of the last iteration of the event loop
// counts, although the loop has ended. Any goroutine but the event loop may call it. Errors: those
// of the call, TimedOut, ErrClosed.
func (l *loop) awaitReply(ctx context.Context, reply <-chan error) error {
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
	case <-l.ctx.Done():
	}
	select {
	case err := <-reply:
		return err
	default:
	}
	if l.ctx.Err() != nil {
		return ErrClosed
	}
	return refuse(TimedOut, "timed out; the operation may still complete")
}

// request applies the event that the function returns for a call, and returns the channel on which
// the call is answered.
func (e *entry) request(event func(session.ReplyID) session.Event) <-chan error {
	e.loop.calls.last++
	reply := make(chan error, 1)
	e.loop.calls.waiting[e.loop.calls.last] = reply
	e.apply(event(e.loop.calls.last))
	return reply
}

// waitFor returns the channel on which a call is answered that waits for the start
// (session.OpStart) or the end (session.OpStop) that another call has requested.
func (e *entry) waitFor(op session.Op) <-chan error {
	return e.request(func(reply session.ReplyID) session.Event { return session.WaitRequested{Op: op, Reply: reply} })
}

// answer answers a call once everything that was decided in this iteration is published.
func (e *entry) answer(a session.Answer) {
	reply, err := e.loop.calls.waiting[a.ID], e.outcomeError(a)
	delete(e.loop.calls.waiting, a.ID)
	e.loop.answerAfterPublish(reply, err)
}

// answerAfterPublish answers a call once everything that was decided in this iteration is
// published.
func (l *loop) answerAfterPublish(reply chan<- error, err error) {
	l.iteration.afterPublish = append(l.iteration.afterPublish, func() { reply <- err })
}

// outcomeError returns the error for the outcome of a call, nil if it has succeeded.
func (e *entry) outcomeError(a session.Answer) error {
	id, state := e.rec.ID, e.rec.View().State
	switch a.Outcome {
	case session.NotPossible:
		if e.removed || e.pending.Removing() {
			return refuse(InvalidState, "session %q was removed meanwhile", id)
		}
		return stateError(e)
	case session.Replaced:
		return refuse(InvalidState, "session %q: another operation has replaced this one", id)
	case session.StoppedMeanwhile:
		return refuse(InvalidState, "session %q was stopped meanwhile", id)
	case session.SuspendedMeanwhile:
		return refuse(InvalidState, "session %q was suspended meanwhile", id)
	case session.RemovedMeanwhile:
		return refuse(InvalidState, "session %q was removed meanwhile", id)
	case session.CouldNotStart:
		if !e.client.unattended && e.rec.Run != nil {
			e.client.run = e.rec.Run.ID
		}
		kind := StartFailed
		if e.rec.Run == nil && e.setup.untrusted {
			kind = NotTrusted
		}
		return refuse(kind, "cannot start %q: %s", id, e.rec.View().Reason)
	case session.Closing:
		return e.loop.shutdown.check()
	case session.SurvivedKill:
		return refuse(TimedOut, "session %q is still %s: some of its processes have survived SIGKILL", id, state)
	case session.EffectFailed:
		return a.Err
	}
	return nil
}

// waiter is a call that is answered once ready returns true.
type waiter struct {
	ready func(*entry) bool
	reply chan error
}

// waitUntil returns a channel that receives nil once ready returns true, at the end of this
// iteration at the earliest.
func (e *entry) waitUntil(ready func(*entry) bool) <-chan error {
	reply := make(chan error, 1)
	e.waiting = append(e.waiting, waiter{ready, reply})
	e.markDirty()
	return reply
}

// whenPublished returns a channel that receives nil once the changes of this iteration are
// published, after an attempt to save them.
func (e *entry) whenPublished() <-chan error {
	return e.waitUntil(func(*entry) bool { return true })
}

// answerWaiters answers the calls whose condition has come true, after the changes are published.
func (e *entry) answerWaiters() {
	e.waiting = slices.DeleteFunc(e.waiting, func(w waiter) bool {
		if !w.ready(e) {
			return false
		}
		e.loop.answerAfterPublish(w.reply, nil)
		return true
	})
}

package supervisor

import (
	"context"
	"sync"
	"time"

	"github.com/corrald/corral/supervisor/session"
)

// SuspendAll suspends all sessions whose agents are alive, at the same time, and returns their ids
// once their scopes are empty.
func (s *Supervisor) SuspendAll(ctx context.Context) ([]string, error) {
	return s.loop.operations.suspendAll(ctx, "", func() {})
}

// ResumeAll resumes all suspended sessions, a few at the same time, the oldest first, and returns
// the ids of those that run. It continues if a session cannot be resumed: that session's state
// contains the reason. Errors: ShuttingDown.
func (s *Supervisor) ResumeAll(ctx context.Context) ([]string, error) {
	var ids []string
	if err := s.loop.try(func() error {
		ids = s.loop.sessions.idsWhere(func(e *entry) bool { return e.rec.View().State == session.Suspended })
		return s.loop.shutdown.check()
	}); err != nil {
		return nil, err
	}
	return s.loop.operations.forEachID(ctx, ids, maxResumes, s.Resume)
}

// maxResumes limits how many sessions are resumed or started at the same time by one call: each of
// them starts a program.
const maxResumes = 4

// suspendAll is SuspendAll, but first calls before on the event loop. One function on the loop
// decides all suspensions: the sessions are saved together, which costs about as much as one sync,
// and no agent is signalled before all are saved.
func (o *operations) suspendAll(ctx context.Context, why string, before func()) ([]string, error) {
	var ids []string
	var replies []<-chan error
	if err := o.loop.do(func() {
		before()
		for _, e := range o.loop.sessions.sorted() {
			if reply, err := e.requestSuspend(why); err == nil {
				ids, replies = append(ids, e.rec.ID), append(replies, reply)
			}
		}
	}); err != nil {
		return nil, err
	}
	accepted(ctx)
	errs := make([]error, len(ids))
	for i, reply := range replies {
		errs[i] = o.loop.awaitReply(ctx, reply)
	}
	return succeededIDs(ids, errs)
}

// idsWhere returns the ids of the sessions for which matches returns true, the oldest first.
func (o *operations) idsWhere(matches func(*entry) bool) (ids []string, err error) {
	err = o.loop.do(func() { ids = o.loop.sessions.idsWhere(matches) })
	return ids, err
}

// idsWhere returns the ids of the sessions for which matches returns true, the oldest first.
func (x *index) idsWhere(matches func(*entry) bool) (ids []string) {
	for _, e := range x.sorted() {
		if matches(e) {
			ids = append(ids, e.rec.ID)
		}
	}
	return ids
}

// forEachID calls f for every id, at most limit of them at the same time, and returns the ids for
// which f succeeded, in their order. The operations are also accepted in this order: of two
// sessions that need the same workspace or conversation, the first one gets it. Errors: those of
// succeededIDs.
func (o *operations) forEachID(
	ctx context.Context, ids []string, limit int, f func(context.Context, string) error,
) ([]string, error) {
	errs := make([]error, len(ids))
	slots := make(chan struct{}, limit)
	var all sync.WaitGroup
	for i, id := range ids {
		slots <- struct{}{}
		accepted := make(chan struct{})
		accept := sync.OnceFunc(func() { close(accepted) })
		timer := o.loop.clocks.AfterFunc(acceptTimeout, accept)
		all.Go(func() {
			errs[i] = f(WhenAccepted(ctx, accept), id)
			accept()
			<-slots
		})
		<-accepted
		timer.Stop()
	}
	all.Wait()
	return succeededIDs(ids, errs)
}

// acceptTimeout limits how long forEachID waits until the operation on one session is accepted
// before it begins with the next one: for example, a file system with a workspace may not respond.
const acceptTimeout = time.Second

// succeededIDs returns the ids whose operations have succeeded. It ignores errors that concern only
// one session, whose state shows them; it returns the last of the others, such as the error for an
// expired time limit, or for a daemon that exits.
func succeededIDs(ids []string, errs []error) ([]string, error) {
	done := []string{}
	var failed error
	for i, id := range ids {
		switch err := errs[i]; {
		case err == nil:
			done = append(done, id)
		case kindOf(err) == 0, kindOf(err) == TimedOut:
			failed = err
		}
	}
	return done, failed
}

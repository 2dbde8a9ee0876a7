package supervisor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/corrald/corral/supervisor/session"
)

// maxResumes limits how many sessions ResumeAll resumes at the same time: each of them starts a
// program.
const maxResumes = 4

// Resume continues where the session's last run ended. If a stale session's agent is alive, it gets
// a new tmux session around the same process. If only leftover processes of the agent exist, a new
// run begins in their scope. Any other session gets a new run with the agent's ResumeCommand=, or
// with Command= if there is none, or if no conversation was saved yet. Resume returns once the
// session runs. Errors: NoSuchSession, InvalidState, NotResumable, WorkspaceMissing, WorkspaceBusy,
// ConversationBusy, StartFailed, TmuxFailed, ShuttingDown.
func (s *Supervisor) Resume(ctx context.Context, id string) error { return s.resumeBy(ctx, id, nil) }

// resumeBy is Resume with the environment of the caller, nil if it is unknown.
func (s *Supervisor) resumeBy(ctx context.Context, id string, caller []string) error {
	if err := s.awaitDetection(ctx, id); err != nil {
		return err
	}
	workspace, err := s.resolveExclusive(ctx, id, checkStartable)
	if err != nil {
		return err
	}
	return s.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if err := s.checkNotShuttingDown(); err != nil {
			return nil, err
		}
		r := e.rec.Run
		if r == nil && e.rec.Archived.IsZero() {
			return nil, refuse(NotResumable, "session %q has never run: there is nothing to resume", id)
		}
		switch stale := e.rec.Stale() && !e.pending.Ending(); {
		case stale && e.pending.Phase == session.Rejoin:
			return nil, refuse(InvalidState, "session %q is being resumed", id)
		case stale && e.rec.Frozen:
			return nil, refuse(InvalidState, "session %q is frozen: thaw it first", id)
		case stale && r.AgentAlive():
			return s.request(e, func(reply session.ReplyID) session.Event {
				return session.RejoinRequested{Reply: reply}
			}), nil
		case stale && e.rec.View().State == session.Orphaned:
			return nil, refuse(WorkspaceMissing, "workspace %q is gone", e.rec.WorkingDirectory)
		case stale:
			return s.beginRun(e, session.OpResume, true, claim{caller: caller}), nil
		}
		if err := s.checkCanStart(e, true, workspace); err != nil {
			return nil, err
		}
		return s.beginRun(e, session.OpResume, false, claim{resolution: workspace, caller: caller}), nil
	})
}

// Suspend stops the session so that it can be resumed. It returns once the scope is empty. Errors:
// NoSuchSession, InvalidState.
func (s *Supervisor) Suspend(ctx context.Context, id string) error {
	return s.withSession(ctx, id, func(e *entry) (<-chan error, error) { return s.suspend(e, "") })
}

// suspend begins to suspend the session. It returns a channel that receives the result. It is
// called on the event loop.
func (s *Supervisor) suspend(e *entry, why string) (<-chan error, error) {
	if !e.rec.Can(e.pending, session.OpSuspend, false) {
		return nil, refuseIn(e.rec.ID, e.rec.View().State)
	}
	return s.request(e, func(reply session.ReplyID) session.Event {
		return session.EndRequested{Op: session.OpSuspend, Why: why, Reply: reply}
	}), nil
}

// SuspendAll suspends all sessions whose agents are alive, at the same time, and returns their ids
// once their scopes are empty.
func (s *Supervisor) SuspendAll(ctx context.Context) ([]string, error) {
	return s.suspendAll(ctx, "", func() {})
}

// suspendAll is SuspendAll, but first calls before on the event loop. One function on the loop
// decides all suspensions: the sessions are saved together, which costs about as much as one sync,
// and no agent is signaled before all are saved.
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
		errs[i] = s.awaitReply(ctx, reply)
	}
	return succeededIDs(ids, errs)
}

// ResumeAll resumes all suspended sessions, a few at the same time, the oldest first, and returns
// the ids of those that run. It continues if a session cannot be resumed: that session's state
// contains the reason. Errors: ShuttingDown.
func (s *Supervisor) ResumeAll(ctx context.Context) ([]string, error) {
	var ids []string
	var refused error
	err := s.do(func() {
		refused = s.checkNotShuttingDown()
		ids = s.idsOnLoop(func(e *entry) bool { return e.rec.View().State == session.Suspended })
	})
	if err = errors.Join(err, refused); err != nil {
		return nil, err
	}
	return s.forEachID(ctx, ids, maxResumes, s.Resume)
}

// idsWhere returns the ids of the sessions for which matches returns true, the oldest first.
func (s *Supervisor) idsWhere(matches func(*entry) bool) (ids []string, err error) {
	err = s.do(func() { ids = s.idsOnLoop(matches) })
	return ids, err
}

// idsOnLoop is idsWhere for callers on the event loop.
func (s *Supervisor) idsOnLoop(matches func(*entry) bool) (ids []string) {
	for _, e := range s.sorted() {
		if matches(e) {
			ids = append(ids, e.rec.ID)
		}
	}
	return ids
}

// acceptTimeout limits how long forEachID waits until the operation on one session is accepted
// before it begins with the next one: for example, a file system with a workspace may not respond.
const acceptTimeout = time.Second

// forEachID calls f for every id, at most limit of them at the same time, and returns the ids for
// which f succeeded, in their order. The operations are also accepted in this order: of two
// sessions that need the same workspace or conversation, the first one gets it. Errors: those of
// succeededIDs.
func (s *Supervisor) forEachID(
	ctx context.Context, ids []string, limit int, f func(context.Context, string) error,
) ([]string, error) {
	errs := make([]error, len(ids))
	slots := make(chan struct{}, max(limit, 1))
	var all sync.WaitGroup
	for i, id := range ids {
		slots <- struct{}{}
		accepted := make(chan struct{})
		accept := sync.OnceFunc(func() { close(accepted) })
		timer := s.AfterFunc(acceptTimeout, accept)
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

// succeededIDs returns the ids whose operations have succeeded. It ignores errors of sessions whose
// state has changed meanwhile; it returns the error that the time was over, or that the daemon
// exits.
func succeededIDs(ids []string, errs []error) ([]string, error) {
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

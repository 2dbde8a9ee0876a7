package supervisor

import (
	"context"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/supervisor/session"
)

// AtLogin returns the ids of the sessions that Login would resume or start: suspended sessions with
// OnLogin "resume", then sessions with OnLogin "start" that do not run; in both cases the oldest
// first.
func (s *Supervisor) AtLogin() ([]string, error) {
	resume, err := s.loop.operations.idsWhere(func(e *entry) bool { return loginAction(e) == word.Resume })
	if err != nil {
		return nil, err
	}
	start, err := s.loop.operations.idsWhere(func(e *entry) bool { return loginAction(e) == word.Start })
	return append(resume, start...), err
}

// Login resumes or starts these sessions, as their OnLogin specifies, in this order and a few at
// the same time, unless nothing is to be done with them any more. It calls done for each session
// that it has finished, also for one that failed, from several goroutines. It continues if a
// session fails: that session's state contains the reason.
func (s *Supervisor) Login(ctx context.Context, ids []string, done func(id string)) error {
	_, err := s.loop.operations.forEachID(ctx, ids, maxResumes, func(ctx context.Context, id string) error {
		err := s.loop.operations.loginSession(ctx, id)
		if kind := kindOf(err); err == nil || kind != 0 && kind != ShuttingDown && kind != TimedOut {
			done(id)
		}
		return err
	})
	return err
}

// loginSession resumes or starts one session.
func (o *operations) loginSession(ctx context.Context, id string) error {
	action := ""
	if err := o.loop.doWith(id, func(e *entry) error {
		action = loginAction(e)
		e.client.unattended = action != ""
		return nil
	}); err != nil || action == "" {
		return err
	}
	defer func() {
		_ = o.loop.doWith(id, func(e *entry) error { // it may have been removed
			e.client.unattended = false
			return nil
		})
	}()
	if action == word.Start {
		return o.start(ctx, id, BeginOptions{})
	}
	return o.resume(ctx, id, BeginOptions{})
}

// loginAction returns what is to be done with the session at login: "resume", "start", or "" for
// nothing.
func loginAction(e *entry) string {
	if e.rec.OnLogin == word.Resume && e.rec.View().State == session.Suspended ||
		e.rec.OnLogin == word.Start && checkStartable(e) == nil {
		return e.rec.OnLogin
	}
	return ""
}

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/inotify"
	"github.com/corrald/corral/supervisor/session"
)

// Freeze freezes every process of the session's scope until the session is thawed or ended. It
// returns once none of them runs. It does nothing if the session is frozen already. Errors:
// NoSuchSession, InvalidState, TimedOut.
func (s *Supervisor) Freeze(ctx context.Context, id string) error {
	return s.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		r := e.rec.Run
		if r == nil || r.Scope != session.ScopeActive || r.Started.IsZero() || e.pending.Ending() {
			return nil, refuse(InvalidState, "cannot freeze session %q: %s", id, stateClause(e.rec.View().State))
		}
		return s.setFrozen(e, "freeze", true), nil
	})
}

// Thaw lets the processes of a frozen session continue. It does nothing if the session is not
// frozen. Errors: NoSuchSession, InvalidState, TimedOut.
func (s *Supervisor) Thaw(ctx context.Context, id string) error {
	return s.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if r := e.rec.Run; r == nil || r.Scope != session.ScopeActive {
			return nil, refuse(InvalidState, "cannot thaw session %q: %s", id, stateClause(e.rec.View().State))
		}
		return s.setFrozen(e, "thaw", false), nil
	})
}

// setFrozen freezes or thaws the session after the effects that are queued for it, and returns the
// channel on which the call is answered.
func (s *Supervisor) setFrozen(e *entry, verb string, freeze bool) <-chan error {
	reply := make(chan error, 1)
	t, run := s.target(e), e.rec.Run.ID
	var effect session.Effect = session.Thaw{}
	if freeze {
		effect = session.Freeze{}
	}
	s.queueAfterSave(e, func() {
		err := s.executeOn(s.ctx, t, effect)
		s.post(func() {
			if !e.removed {
				s.checkFrozen(e)
				err = freezeResult(e, run, verb, freeze, err)
				s.markDirty(e)
			}
			s.afterPublish = append(s.afterPublish, func() { reply <- err })
		})
	})
	return reply
}

// freezeResult returns the answer to a freeze or a thaw of this run, whose effect returned err.
func freezeResult(e *entry, run, verb string, freeze bool, err error) error {
	r := e.rec.Run
	switch {
	case r.ID != run || !r.Live():
		return refuse(InvalidState, "cannot %s session %q: %s", verb, e.rec.ID, stateClause(e.rec.View().State))
	case errors.Is(err, context.DeadlineExceeded):
		return refuse(TimedOut, "cannot %s session %q: systemd does not answer in time", verb, e.rec.ID)
	case err != nil:
		return fmt.Errorf("cannot %s session %q: %w", verb, e.rec.ID, err)
	case e.rec.Frozen && !freeze:
		return refuse(InvalidState,
			"cannot thaw session %q: its slice is frozen; run: systemctl --user thaw app-corral.slice", e.rec.ID)
	}
	return nil
}

// watchScope is watchControlGroup for a scope that has just become active. If the control group
// cannot be watched, this is a problem of the session, and is tried again.
func (s *Supervisor) watchScope(e *entry) {
	if err := s.watchControlGroup(e); err != nil {
		s.recordWatchError(e.rec.ID, &e.watchErr, err)
	}
}

// watchControlGroup watches whether the scope is frozen or thawed, by any program, or becomes
// empty, and checks both once. It returns an error if the control group cannot be watched, but nil
// if it does not exist.
func (s *Supervisor) watchControlGroup(e *entry) error {
	r := e.rec.Run
	if e.run.controlGroupWatch != 0 || !r.Live() || r.Scope != session.ScopeActive || r.ControlGroup == "" {
		return nil
	}
	onEvent, rewatch := func(inotify.Event) { s.checkControlGroup(e) }, func() { s.rewatchRunFiles(e) }
	number, err := s.files.Watch(s.ControlGroups.EventsFile(r.ControlGroup), unix.IN_MODIFY, onEvent, rewatch)
	if errors.Is(err, errNotExist) { // systemd reports the end of the scope
		return nil
	}
	e.run.controlGroupWatch = number
	s.checkControlGroup(e)
	return err
}

// checkControlGroup reads everything whose change is reported by the file that inotify watches.
func (s *Supervisor) checkControlGroup(e *entry) {
	s.checkFrozen(e)
	s.checkEmpty(e)
}

// emptyScopeTimeout is how long systemd may take to report the end of a scope that is empty. It
// needs milliseconds. It never reports the end if it has taken the scope for dead too early and has
// forgotten it, which may happen to a new scope (systemd#36781) or to one that takes longer to stop
// than it has time; nor if systemd had no inotify watch left for the scope when that started.
const emptyScopeTimeout = 2 * time.Second

// checkEmpty starts a timer if the scope is empty, so that its end is noticed even if systemd does
// not report it.
func (s *Supervisor) checkEmpty(e *entry) {
	r := e.rec.Run
	if e.run.emptyTimer != nil || !r.Live() || r.Scope != session.ScopeActive || r.ControlGroup == "" ||
		s.ControlGroups.IsPopulated(r.ControlGroup) {
		return
	}
	run := r.ID
	e.run.emptyTimer = s.AfterFunc(emptyScopeTimeout, func() {
		s.post(func() {
			if e.removed || e.rec.Run.ID != run || !e.rec.Run.Live() {
				return
			}
			e.run.emptyTimer = nil
			if e.run.stayedEmpty = !s.ControlGroups.IsPopulated(e.rec.Run.ControlGroup); e.run.stayedEmpty {
				go s.Resync()
			}
		})
	})
}

// isEndUnnoticed reports whether the run's scope, which systemd lists as active, has been empty for
// emptyScopeTimeout: the scope has then ended, and systemd has not noticed.
func (s *Supervisor) isEndUnnoticed(e *entry) bool {
	e.run.stayedEmpty = e.run.stayedEmpty && !s.ControlGroups.IsPopulated(e.rec.Run.ControlGroup)
	return e.run.stayedEmpty
}

// releaseScope has systemd end the run's scope, which is empty. The session's next effects, which
// may need the scope's name, wait for that.
func (s *Supervisor) releaseScope(e *entry) {
	s.Log.Warn("systemd has not noticed that a scope is empty; stopping it",
		"session", e.rec.ID, "unit", e.rec.Run.Unit)
	s.queueEffect(e, session.ReleaseScope{})
}

// checkFrozen reads from the kernel whether the session's scope is frozen.
func (s *Supervisor) checkFrozen(e *entry) {
	r := e.rec.Run
	if !r.Live() || r.ControlGroup == "" {
		return
	}
	if frozen := s.ControlGroups.IsFrozen(r.ControlGroup); frozen != e.rec.Frozen {
		s.apply(e, session.FreezeObserved{Run: r.ID, Frozen: frozen})
	}
}

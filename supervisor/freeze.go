package supervisor

import (
	"context"
	"errors"
	"fmt"

	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/supervisor/session"
)

// Freeze freezes every process of the session's scope until the session is thawed or ended. It
// returns once none of them runs. It does nothing if the session is frozen already. Errors:
// NoSuchSession, InvalidState, TimedOut.
func (s *Supervisor) Freeze(ctx context.Context, id string) error {
	return s.loop.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		r := e.rec.Run
		if r == nil || r.Scope != session.ScopeActive || r.Started.IsZero() || e.pending.Ending() {
			return nil, refuse(InvalidState, "cannot freeze session %q: %s", id, stateClause(e.rec.View().State))
		}
		return e.setFrozen(true), nil
	})
}

// Thaw lets the processes of a frozen session continue. It does nothing if the session is not
// frozen. Errors: NoSuchSession, InvalidState, TimedOut.
func (s *Supervisor) Thaw(ctx context.Context, id string) error {
	return s.loop.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if r := e.rec.Run; r == nil || r.Scope != session.ScopeActive {
			return nil, refuse(InvalidState, "cannot thaw session %q: %s", id, stateClause(e.rec.View().State))
		}
		return e.setFrozen(false), nil
	})
}

// setFrozen freezes or thaws the session after the effects that are queued for it, and returns the
// channel on which the call is answered.
func (e *entry) setFrozen(freeze bool) <-chan error {
	reply := make(chan error, 1)
	t, run := e.target(), e.rec.Run.ID
	verb, effect := "thaw", session.Effect(session.Thaw{})
	if freeze {
		verb, effect = "freeze", session.Freeze{}
	}
	e.effects.afterSave(func() {
		err := e.loop.execute(t, effect)
		e.loop.post(func() {
			if !e.removed {
				e.run.scope.checkFrozen()
				err = freezeResult(e, run, verb, err)
				e.markDirty()
			}
			e.loop.answerAfterPublish(reply, err)
		})
	})
	return reply
}

// freezeResult returns the answer to a freeze or a thaw of this run, whose effect returned err.
func freezeResult(e *entry, run, verb string, err error) error {
	switch r := e.rec.Run; {
	case r.ID != run || !r.Live():
		return refuse(InvalidState, "cannot %s session %q: %s", verb, e.rec.ID, stateClause(e.rec.View().State))
	case errors.Is(err, context.DeadlineExceeded):
		return refuse(TimedOut, "cannot %s session %q: systemd does not answer in time", verb, e.rec.ID)
	case err != nil:
		return fmt.Errorf("cannot %s session %q: %w", verb, e.rec.ID, err)
	case e.rec.Frozen && verb == "thaw":
		return refuse(InvalidState,
			"cannot thaw session %q: its slice is frozen; run: systemctl --user thaw %s", e.rec.ID, unitname.Slice)
	}
	return nil
}

// checkFrozen reads from the kernel whether the run's scope is frozen.
func (w *scopeWatch) checkFrozen() {
	e, r := w.e, w.e.rec.Run
	if !r.Live() || r.ControlGroup == "" {
		return
	}
	if frozen := e.loop.system.ControlGroups.IsFrozen(r.ControlGroup); frozen != e.rec.Frozen {
		e.apply(session.FreezeObserved{Run: r.ID, Frozen: frozen})
	}
}

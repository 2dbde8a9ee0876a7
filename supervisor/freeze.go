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

// Freeze holds every process of the session's scope until it is thawed or ended. It returns once none of them runs. Freezing what is frozen does
// nothing. Errors: NoSuchSession, InvalidState, TimedOut.
func (s *Supervisor) Freeze(ctx context.Context, id string) error {
	return s.with(ctx, id, func(e *entry) (<-chan error, error) {
		r := e.rec.Run
		if r == nil || r.Scope != session.ScopeActive || r.Started.IsZero() || e.run.stage != notEnding {
			return nil, refuse(InvalidState, "cannot freeze session %q: %s", id, stateClause(e.rec.View().State))
		}
		return s.freezer(e, "freeze", true), nil
	})
}

// Thaw lets the processes of a frozen session go on. Thawing what is not frozen does nothing. Errors: NoSuchSession, InvalidState, TimedOut.
func (s *Supervisor) Thaw(ctx context.Context, id string) error {
	return s.with(ctx, id, func(e *entry) (<-chan error, error) {
		if r := e.rec.Run; r == nil || r.Scope != session.ScopeActive {
			return nil, refuse(InvalidState, "cannot thaw session %q: %s", id, stateClause(e.rec.View().State))
		}
		return s.freezer(e, "thaw", false), nil
	})
}

// freezer freezes or thaws the session, after what is being done with it.
func (s *Supervisor) freezer(e *entry, verb string, freeze bool) <-chan error {
	reply := make(chan error, 1)
	t, run := s.target(e), e.rec.Run.ID
	s.effect(e, func() {
		var err error
		if freeze {
			if err = s.World.Freeze(s.ctx, t); err != nil { // half of it may be
				_ = s.World.Thaw(s.ctx, t)
			}
		} else {
			err = s.World.Thaw(s.ctx, t)
		}
		s.post(func() {
			if !e.removed {
				s.lookFrozen(e)
				err = froze(e, run, verb, freeze, err)
				s.touch(e)
			}
			s.after = append(s.after, func() { reply <- err })
		})
	})
	return reply
}

// froze tells what became of a freeze or a thaw of this run.
func froze(e *entry, run, verb string, freeze bool, err error) error {
	r := e.rec.Run
	switch {
	case r.ID != run || !r.Live():
		return refuse(InvalidState, "cannot %s session %q: %s", verb, e.rec.ID, stateClause(e.rec.View().State))
	case errors.Is(err, context.DeadlineExceeded):
		return refuse(TimedOut, "cannot %s session %q: systemd does not answer in time", verb, e.rec.ID)
	case err != nil:
		return fmt.Errorf("cannot %s session %q: %w", verb, e.rec.ID, err)
	case e.rec.Frozen && !freeze:
		return refuse(InvalidState, "cannot thaw session %q: its slice is frozen; run: systemctl --user thaw app-corral.slice", e.rec.ID)
	}
	return nil
}

// watchScope is watchGroup for a scope that has just become active. What cannot be watched is tried
// again, as a problem of the session.
func (s *Supervisor) watchScope(e *entry) {
	if err := s.watchGroup(e); err != nil {
		s.noteWatched(e.rec.ID, &e.watchErr, err)
	}
}

// watchGroup begins to wait for the scope to be frozen or thawed, by whomever, or to be empty, and
// looks whether it is. The error is why that cannot be watched; a control group that is not there
// needs no watch.
func (s *Supervisor) watchGroup(e *entry) error {
	r := e.rec.Run
	if e.run.group != 0 || !r.Live() || r.Scope != session.ScopeActive || r.ControlGroup == "" {
		return nil
	}
	look, anew := func(inotify.Event) { s.lookAtGroup(e) }, func() { s.watchAnew(e) }
	number, err := s.watchPath(s.World.FreezerFile(r.ControlGroup), unix.IN_MODIFY, look, anew)
	if errors.Is(err, errNotExist) { // systemd reports its end
		return nil
	}
	e.run.group = number
	s.lookAtGroup(e)
	return err
}

// lookAtGroup asks the kernel all that it tells of by the file that inotify watches.
func (s *Supervisor) lookAtGroup(e *entry) {
	s.lookFrozen(e)
	s.lookEmpty(e)
}

// emptyTime is how long systemd has to report that a scope which is empty has ended. It does so
// within milliseconds; not at all if it has taken the scope for dead before it was, and knows it no
// more, as it may do with one that is new (systemd#36781), or that outlives the time it has to
// stop; nor if no inotify watch was left for it when the scope started.
const emptyTime = 2 * time.Second

// lookEmpty sees to it that the end of a scope is noticed if systemd does not report it.
func (s *Supervisor) lookEmpty(e *entry) {
	r := e.rec.Run
	if e.run.emptied != nil || !r.Live() || r.Scope != session.ScopeActive || r.ControlGroup == "" || s.World.Occupied(r.ControlGroup) {
		return
	}
	run := r.ID
	e.run.emptied = s.AfterFunc(emptyTime, func() {
		s.post(func() {
			if e.removed || e.rec.Run.ID != run || !e.rec.Run.Live() {
				return
			}
			e.run.emptied = nil
			if e.run.empty = !s.World.Occupied(e.rec.Run.ControlGroup); e.run.empty {
				go s.Resync()
			}
		})
	})
}

// unnoticed tells whether the run's scope, which systemd lists as active, has been empty for
// emptyTime: that is its end, whatever systemd believes.
func (s *Supervisor) unnoticed(e *entry) bool {
	e.run.empty = e.run.empty && !s.World.Occupied(e.rec.Run.ControlGroup)
	return e.run.empty
}

// release has systemd end the run's scope, which is empty. What is done next with the session waits
// for that: it may need the scope's name.
func (s *Supervisor) release(e *entry) {
	s.Log.Warn("systemd has not noticed that a scope is empty; stopping it",
		"session", e.rec.ID, "unit", e.rec.Run.Unit)
	s.effect(e, s.directly(e, "release", func(t Target) error { return s.World.Release(s.ctx, t) }))
}

// lookFrozen asks the kernel whether the session's scope is frozen.
func (s *Supervisor) lookFrozen(e *entry) {
	r := e.rec.Run
	if !r.Live() || r.ControlGroup == "" {
		return
	}
	if frozen := s.World.Frozen(r.ControlGroup); frozen != e.rec.Frozen {
		s.apply(e, session.FrozenSeen{Run: r.ID, Frozen: frozen})
	}
}

// thawed makes of what ends processes one that thaws them first: a process that is frozen ends for SIGKILL alone, its shim cannot record that, and
// systemd refuses to stop the scope (since version 257). That it cannot be thawed does not keep anything from being ended.
func (s *Supervisor) thawed(f func(Target) error) func(Target) error {
	return func(t Target) error {
		return errors.Join(s.World.Thaw(s.ctx, t), f(t))
	}
}

// thaws tells whether a client's signal has to reach processes that run: SIGKILL ends frozen ones too, and then the shim has to record the end of the
// agent. That of leftovers nobody records, and the agent stays frozen.
func thaws(whom string, signal unix.Signal) bool {
	return signal == unix.SIGKILL && whom != WhomLeftovers
}

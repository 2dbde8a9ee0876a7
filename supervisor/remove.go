package supervisor

import (
	"context"

	"github.com/corrald/corral/supervisor/session"
)

// removal is what a pending OpRemove does before the session is deleted, once nothing of it runs.
// If one of the functions fails, the session stays.
type removal struct {
	check  func(*entry) error // called first, by the event loop
	before func() error       // called next, outside of the event loop
	dir    string             // resolved path of the worktree that is being removed, with a final slash; "" for none
}

// Remove deletes a session and its log, and ends leftover processes of its scope. If the session
// has not ended, Remove stops it first if force is set, and otherwise returns an error. Errors:
// NoSuchSession, InvalidState.
func (s *Supervisor) Remove(ctx context.Context, id string, force bool) error {
	return s.loop.operations.remove(ctx, id, force)
}

func (o *operations) remove(ctx context.Context, id string, force bool) error {
	return o.removeAfter(ctx, id, force, removal{check: noError, before: func() error { return nil }})
}

// removeAfter is Remove, but calls the functions of r before it deletes the session.
func (o *operations) removeAfter(ctx context.Context, id string, force bool, r removal) error {
	return o.loop.withSession(ctx, id, func(e *entry) (<-chan error, error) {
		if err := checkRemovable(e, force); err != nil {
			return nil, err
		}
		e.removal = r
		return e.request(func(reply session.ReplyID) session.Event {
			return session.RemoveRequested{Force: force, Reply: reply}
		}), nil
	})
}

// checkRemovable returns an error if the session is being removed, or, unless force is set, if it
// has not ended or is about to run again.
func checkRemovable(e *entry, force bool) error {
	switch {
	case force:
	case e.pending.WaitsToBegin():
		return refuse(InvalidState, "session %q is being started", e.rec.ID)
	case !e.rec.Run.Ended():
		return stateError(e)
	}
	if e.pending.Removing() {
		return refuse(InvalidState, "session %q is being removed", e.rec.ID)
	}
	return nil
}

// cleanUp removes what the session's runs have left, and then the session. Only then can its id be
// used again.
func (e *entry) cleanUp() {
	if err := e.removal.check(e); err != nil {
		e.apply(session.Cleaned{Err: err})
		return
	}
	id := e.rec.ID
	t := Target{ID: id, Unit: scopeName(e.rec), RuntimeDir: e.loop.settings.runtimeDir(id)}
	before := e.removal.before
	e.effects.afterSave(func() {
		err := before()
		if err == nil {
			_ = e.loop.execute(t, session.CleanUp{})
		}
		e.loop.post(func() {
			e.removal.dir = ""
			if err == nil {
				err = e.remove()
			}
			e.apply(session.Cleaned{Err: err})
		})
	})
}

// remove deletes the record and the log of a session that has nothing else any more.
func (e *entry) remove() error {
	e.markDirty()
	if err := e.loop.records.Remove(e.rec.ID); err != nil {
		return err
	}
	e.unwatchRun()
	e.unwatchWorkspace()
	e.loop.problems.drop(func(p Problem) bool { return p.Session == e.rec.ID })
	e.loop.problems.stale = true // it may have had other problems than those that add has added
	e.removed = true
	delete(e.loop.sessions.byID, e.rec.ID)
	delete(e.loop.sessions.byUnit, scopeName(e.rec))
	return nil
}

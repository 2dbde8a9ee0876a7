package supervisor

import (
	"os"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

// removal is what a pending OpRemove does before the session is deleted, once nothing of it runs.
// If one of the functions fails, the session stays.
type removal struct {
	check  func(*entry) error // called first, by the event loop
	before func() error       // called next, by the session's goroutine
	dir    string             // the worktree that is being removed, resolved, with a slash at the end; "" if there is none
}

// releaseRun releases what the daemon holds for a run whose scope is gone.
func (s *Supervisor) releaseRun(e *entry, r *session.Run) {
	if e.run.stateDirWatch != 0 || e.watchErr != nil || e.run.watchesPaused { // else it was never watched
		s.discardRecord(e, r)
		s.queueAfterSave(e, func() { _ = s.executeOn(s.ctx, Target{Unit: r.Unit}, session.UnwatchScope{}) })
	}
	s.unwatchRun(e)
	s.clearFileProblem(e, s.target(e).ShimSocket())
	s.unwatchWorkspace(e)
	if r.StartInterrupted { // there was no agent that could use its sockets
		_ = os.RemoveAll(s.runtimeDir(e.rec.ID))
	}
	if e.run.emptyTimer != nil {
		e.run.emptyTimer.Stop()
	}
	ended := e.run.earlyEnds
	e.run = runtime{earlyEnds: ended}
}

// discardRecord removes the files that were prepared for the record of an agent's exit, if its shim
// has exited without writing it.
func (s *Supervisor) discardRecord(e *entry, r *session.Run) {
	if r.Live() || r.Exit != nil {
		return
	}
	for _, dir := range []string{s.Records.SessionDir(e.rec.ID), s.runtimeDir(e.rec.ID)} {
		if err := exitstatus.Discard(dir); err != nil {
			s.Log.Warn("cannot remove the file in which an exit was to be recorded", "session", e.rec.ID, "err", err)
		}
	}
}

// cleanUp removes what the session's runs have left, and then the session. Only then can its id be
// used again.
func (s *Supervisor) cleanUp(e *entry) {
	if err := e.removal.check(e); err != nil {
		s.apply(e, session.Cleaned{Err: err})
		return
	}
	t := Target{ID: e.rec.ID, Unit: UnitName(e.rec.Agent, e.rec.ID), RuntimeDir: s.runtimeDir(e.rec.ID)}
	before := e.removal.before
	s.queueAfterSave(e, func() {
		err := before()
		if err == nil {
			_ = s.executeOn(s.ctx, t, session.CleanUp{})
		}
		s.post(func() {
			e.removal.dir = ""
			if err == nil {
				err = s.remove(e)
			}
			s.apply(e, session.Cleaned{Err: err})
		})
	})
}

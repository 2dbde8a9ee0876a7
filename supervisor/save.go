package supervisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/journal"
)

// save makes what has changed in these sessions durable. Of an exit that is recorded already, only that record is made sure of: it is told so much the
// sooner, and saveExits saves the rest.
func (s *Supervisor) save(entries []*entry) {
	s.inParallel(entries, func(e *entry) error {
		switch {
		case e.stray && s.Records.KeepExit(e.rec.ID, *e.rec.Run.Exit) == nil && e.exited:
			return nil
		case !e.stray && e.exited:
			return s.Records.SyncExit(e.rec.ID)
		}
		return s.Records.Save(e.rec, s.Version)
	}, func(e *entry, err error) {
		e.unsaved, e.exited = e.exited || err != nil, e.exited && err == nil
		if e.stray && err == nil {
			e.stray = false
			_ = os.Remove(filepath.Join(s.runtimeDir(e.rec.ID), exitstatus.FileName))
		}
	})
}

// Settle returns once everything that has come in until now is applied, saved and published. What could not be saved before is tried again; that it fails
// again is told as ever, and is no error here.
func (s *Supervisor) Settle(ctx context.Context) error {
	settled := make(chan struct{})
	err := s.do(func() {
		for _, e := range s.sessions {
			if savable(e) {
				s.touch(e)
			}
		}
		s.after = append(s.after, func() { close(settled) })
	})
	if err != nil {
		return err
	}
	select {
	case <-settled:
		return s.do(func() {}) // the turn is over, too
	case <-s.done:
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("cannot save what has changed: %w", ctx.Err())
	}
}

// giveUpUnsaved gives up the runs that were to begin in this turn and could not be saved: an agent of which no record knows would be lost with the daemon.
func (s *Supervisor) giveUpUnsaved(entries []*entry) {
	for _, e := range entries {
		if e.begun && e.unsaved && !e.removed {
			e.held = slices.DeleteFunc(e.held, func(f effect) bool { return f.starts })
			if e.run.making != nil {
				e.run.making()
				e.run.making = nil
			}
			s.forgetCaller(e, e.rec.Run.ID)
			s.startDone(e, e.rec.Run.ID, e.saveErr, e.into)
			s.react(e)
			s.stamp(e)
		}
		e.begun = false
	}
}

// saveExits saves the sessions whose exits others have been told of.
func (s *Supervisor) saveExits(entries []*entry) {
	exits := slices.DeleteFunc(slices.Clone(entries), func(e *entry) bool { return !e.exited })
	s.inParallel(exits, func(e *entry) error { return s.Records.Save(e.rec, s.Version) },
		func(e *entry, err error) { e.unsaved, e.exited = err != nil, false })
}

// inParallel does something durable for those of the sessions that have changed, at the same time: a file system commits them together. What fails
// is told in the journal and tried again, with the session's next change and by itself; supervision goes on.
func (s *Supervisor) inParallel(entries []*entry, do func(*entry) error, done func(*entry, error)) {
	const most = 16 // at a time
	type result struct {
		e   *entry
		err error
	}
	var changed []*entry
	for _, e := range entries {
		if e.unsaved && !e.removed {
			changed = append(changed, e)
		}
	}
	results := make(chan result, len(changed))
	slots := make(chan struct{}, most)
	for _, e := range changed {
		slots <- struct{}{}
		one := func() {
			results <- result{e, do(e)}
			<-slots
		}
		if len(changed) == 1 {
			one()
		} else {
			go one()
		}
	}
	for range changed {
		r := <-results
		done(r.e, r.err)
		s.noteSaved(r.e, r.err)
	}
}

// noteSaved keeps what has become of an attempt to save a session. The journal is told once of what goes wrong, and once that it is over.
func (s *Supervisor) noteSaved(e *entry, err error) {
	if err == nil {
		s.endFound(func(p Problem) bool { return p.UntilSaved && p.Session == e.rec.ID })
	}
	before := e.saveErr
	if e.saveErr = err; sameCause(before, err) {
		return
	}
	s.unsure = true
	if err != nil {
		s.retryAfter = 0
		s.Log.Error("cannot save session", "session", e.rec.ID, "err", err, "message_id", journal.RecordNotSaved)
	} else {
		s.Log.Info("the session is saved again", "session", e.rec.ID, "message_id", journal.RecordSavedAgain)
	}
}

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

// save makes the changes of these sessions durable. If all changes of a session follow from the
// shim's record of an exit, save only makes that record durable, so that the exit is published
// sooner; saveExits saves the session after that.
func (s *Supervisor) save(entries []*entry) {
	s.saveInParallel(entries, func(e *entry) error {
		switch {
		case e.exitInRuntimeDir && s.Records.KeepExit(e.rec.ID, *e.rec.Run.Exit) == nil && e.onlyExitUnsaved:
			return nil
		case !e.exitInRuntimeDir && e.onlyExitUnsaved:
			return s.Records.SyncExit(e.rec.ID)
		}
		return s.Records.Save(e.rec, s.Version)
	}, func(e *entry, err error) {
		e.unsaved, e.onlyExitUnsaved = e.onlyExitUnsaved || err != nil, e.onlyExitUnsaved && err == nil
		if e.exitInRuntimeDir && err == nil {
			e.exitInRuntimeDir = false
			_ = os.Remove(filepath.Join(s.runtimeDir(e.rec.ID), exitstatus.FileName))
		}
	})
}

// Flush returns once everything that the mailbox contains is applied, saved and published. It also
// retries failed saves. If these fail again, they are reported as usual, but Flush returns no
// error.
func (s *Supervisor) Flush(ctx context.Context) error {
	published := make(chan struct{})
	err := s.do(func() {
		for _, e := range s.sessions {
			if canRetrySave(e) {
				s.markDirty(e)
			}
		}
		s.afterPublish = append(s.afterPublish, func() { close(published) })
	})
	if err != nil {
		return err
	}
	select {
	case <-published:
		return s.do(func() {}) // wait for the end of that iteration
	case <-s.done:
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("cannot save what has changed: %w", ctx.Err())
	}
}

// cancelUnsavedStarts cancels the starts of this iteration whose records could not be saved: an
// agent that is in no record would be lost when the daemon exits.
func (s *Supervisor) cancelUnsavedStarts(entries []*entry) {
	for _, e := range entries {
		starts := slices.ContainsFunc(e.held, func(q queueEntry) bool { return q.startsRun })
		if starts && e.unsaved && !e.removed {
			e.held = slices.DeleteFunc(e.held, func(q queueEntry) bool { return q.startsRun })
			if e.run.cancelConversation != nil {
				e.run.cancelConversation()
				e.run.cancelConversation = nil
			}
			s.dropCallerEnvironment(e, e.rec.Run.ID)
			s.startReturned(e, e.rec.Run.ID, e.saveErr)
			s.updateWatches(e)
			s.recordState(e)
		}
	}
}

// saveExits saves the sessions whose exits were published before their records were saved.
func (s *Supervisor) saveExits(entries []*entry) {
	exits := slices.DeleteFunc(slices.Clone(entries), func(e *entry) bool { return !e.onlyExitUnsaved })
	s.saveInParallel(exits, func(e *entry) error { return s.Records.Save(e.rec, s.Version) },
		func(e *entry, err error) { e.unsaved, e.onlyExitUnsaved = err != nil, false })
}

// saveInParallel calls save for the unsaved sessions, for several at the same time: a file system
// commits them together. It then calls done with each result, on the event loop. Failures are
// logged and retried, with the session's next change and by a timer. Supervision continues
// meanwhile.
func (s *Supervisor) saveInParallel(entries []*entry, save func(*entry) error, done func(*entry, error)) {
	const limit = 16
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
	slots := make(chan struct{}, limit)
	for _, e := range changed {
		slots <- struct{}{}
		one := func() {
			results <- result{e, save(e)}
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
		s.recordSaveResult(r.e, r.err)
	}
}

// recordSaveResult stores the result of an attempt to save a session. It logs a failure, unless
// the attempt before it has failed for the same reason, and the first success after a failure.
func (s *Supervisor) recordSaveResult(e *entry, err error) {
	if err == nil {
		s.dropProblems(func(p Problem) bool { return p.UntilSaved && p.Session == e.rec.ID })
	}
	before := e.saveErr
	if e.saveErr = err; isSameError(before, err) {
		return
	}
	s.problemsStale = true
	if err != nil {
		s.retryDelay = 0
		s.Log.Error("cannot save session", "session", e.rec.ID, "err", err, "message_id", journal.RecordNotSaved)
	} else {
		s.Log.Info("the session is saved again", "session", e.rec.ID, "message_id", journal.RecordSavedAgain)
	}
}

package supervisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/journal"
)

// save makes the changes of these sessions durable. If all changes of a session follow from the
// shim's record of an exit, save only makes that record durable, so that the exit is published
// sooner: saveExits saves the session later. While the daemon starts or exits, it is saved at once.
func (l *loop) save(entries []*entry) {
	if !l.started || l.shutdown.stopping {
		for _, e := range entries {
			e.saving.onlyExit = false
		}
	}
	l.saveInParallel(entries, func(e *entry) error {
		switch {
		case e.saving.exitInRuntimeDir && l.records.KeepExit(e.rec.ID, *e.rec.Run.Exit) == nil && e.saving.onlyExit:
			return nil
		case !e.saving.exitInRuntimeDir && e.saving.onlyExit:
			return l.records.SyncExit(e.rec.ID)
		}
		return l.records.Save(e.rec, l.settings.version)
	}, func(e *entry, err error) {
		e.saving.later = e.saving.onlyExit && err == nil
		e.saving.unsaved, e.saving.onlyExit = err != nil, false
		if e.saving.exitInRuntimeDir && err == nil {
			e.saving.exitInRuntimeDir = false
			_ = os.Remove(filepath.Join(l.settings.runtimeDir(e.rec.ID), exitstatus.FileName))
		}
	})
}

// exitSaveDelay is how long after the publication of an exit its session is saved. Until then, it
// would compete with the publication for CPUs and the disk. Most scopes of stopped sessions end
// within this time, which is saved, too.
const exitSaveDelay = 100 * time.Millisecond

// saveExitsLater starts a timer for saveExits if one of the sessions of this iteration needs it.
func (l *loop) saveExitsLater(entries []*entry) {
	if slices.ContainsFunc(entries, func(e *entry) bool { return e.saving.later }) {
		l.clocks.AfterFunc(exitSaveDelay, func() { l.post(l.saveExits) })
	}
}

// saveExits has the sessions saved whose exits are durable only in exit_status, from which a new
// daemon would read them.
func (l *loop) saveExits() {
	for _, e := range l.sessions.byID {
		if e.saving.later {
			e.saving.unsaved = true
			e.markDirty()
		}
	}
}

// saveInParallel calls save for the unsaved sessions, for several at the same time: a file system
// commits them together. It then calls done with each result, on the event loop. Failures are
// logged and retried, with the session's next change and by a timer. Supervision continues
// meanwhile.
func (l *loop) saveInParallel(entries []*entry, save func(*entry) error, done func(*entry, error)) {
	const limit = 16
	isSaved := func(e *entry) bool { return !e.saving.unsaved || e.removed }
	changed := slices.DeleteFunc(slices.Clone(entries), isSaved)
	errs := make([]error, len(changed))
	if len(changed) == 1 {
		errs[0] = save(changed[0])
	} else {
		indices := make(chan int)
		var all sync.WaitGroup
		for range min(limit, len(changed)) {
			all.Go(func() {
				for i := range indices {
					errs[i] = save(changed[i])
				}
			})
		}
		for i := range changed {
			indices <- i
		}
		close(indices)
		all.Wait()
	}
	for i, e := range changed {
		done(e, errs[i])
		l.recordSaveResult(e, errs[i])
	}
}

// recordSaveResult stores the result of an attempt to save a session. It logs a failure, unless
// the attempt before it has failed for the same reason, and the first success after a failure.
func (l *loop) recordSaveResult(e *entry, err error) {
	if err == nil {
		l.problems.drop(func(p Problem) bool { return p.UntilSaved && p.Session == e.rec.ID })
	}
	before := e.saving.err
	if e.saving.err = err; isSameError(before, err) {
		return
	}
	l.problems.stale = true
	if err != nil {
		l.problems.retries.retrySoon()
		l.log.Error("the session is not saved", "session", e.rec.ID, "err", err, "message_id", journal.RecordNotSaved)
	} else {
		l.log.Info("the session is saved again", "session", e.rec.ID, "message_id", journal.RecordSavedAgain)
		l.sessions.queue.recheck()
	}
}

// Flush returns once everything that the mailbox contains is applied, saved and published. It also
// retries failed saves. If these fail again, they are reported as usual, but Flush returns no
// error.
func (s *Supervisor) Flush(ctx context.Context) error {
	published := make(chan struct{})
	err := s.loop.do(func() {
		s.loop.problems.retries.retrySaves()
		s.loop.iteration.afterPublish = append(s.loop.iteration.afterPublish, func() { close(published) })
	})
	if err != nil {
		return err
	}
	select {
	case <-published:
		return s.loop.do(func() {}) // wait for the end of that iteration
	case <-s.loop.ctx.Done():
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("cannot save what has changed: %w", ctx.Err())
	}
}

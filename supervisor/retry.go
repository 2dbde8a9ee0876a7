package supervisor

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/journal"
	"github.com/corrald/corral/supervisor/sources"
	"github.com/corrald/corral/supervisor/store"
)

// retrier repeats the saves of sessions and the watches of files that have failed. The errors are
// stored where they occur: in the saving and the run of an entry, and in workspaces.
type retrier struct {
	loop         *loop
	openWatchers func() (sources.Inotify, sources.Notifier, error)
	timer        deadline.Stopper // of the next retry, nil if none is scheduled
	delay        time.Duration    // of the last timer, 0 if the next one is to have the shortest delay
}

// Delays before failed saves and watches are retried: the delay doubles from firstRetry to
// maxRetry. No timer runs while there is nothing to retry. Each retry also examines the files of a
// session that cannot be watched: its end may be noticed as late as watchRetry.
const (
	firstRetry = time.Second
	watchRetry = 5 * time.Second
	maxRetry   = time.Minute
)

// openFiles creates what watches files, if there is nothing yet. After an error, it sets a problem,
// and retry calls openFiles again.
func (r *retrier) openFiles() {
	if r.loop.files.Inotify() != nil {
		return
	}
	in, notifier, err := r.openWatchers()
	if err != nil {
		if r.loop.problems.daemon["inotify"] == "" {
			r.loop.log.Error("changes of files are reported late", "err", err, "message_id", journal.NotWatched)
		}
		r.loop.problems.set("inotify", err.Error()+
			": close programs that use many, or raise fs.inotify.max_user_instances; "+
			"until then, ends of sessions and changes of workspaces may be reported late")
		return
	}
	r.loop.files.SetWatchers(in, notifier)
	r.loop.problems.set("inotify", "")
	if r.loop.started {
		r.loop.watchFiles()
	}
}

// recordWatchError stores in *before the result of an attempt to watch a file of the session, and
// logs a new error. *before is the result of the previous attempt.
func (r *retrier) recordWatchError(id string, before *error, err error) {
	if isSameError(*before, err) {
		return
	}
	*before = err
	r.loop.problems.stale = true
	if err == nil {
		return
	}
	r.retrySoon()
	if !errors.Is(err, sources.ErrNoInotify) { // openFiles logs this once, not for each session
		r.loop.log.Warn("cannot watch the files of a session", "session", id, "err", err,
			"message_id", journal.NotWatched)
	}
}

// retrySoon is called after a new failure: the next retry does not wait as long as for old ones.
func (r *retrier) retrySoon() {
	r.delay = 0
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
}

// isSameError reports whether two attempts have failed for the same reason, or have both succeeded.
func isSameError(a, b error) bool {
	if a == nil || b == nil {
		return a == b //nolint:errorlint // both are nil, or one is
	}
	return errnoOf(a) == errnoOf(b) && (errnoOf(a) != 0 || a.Error() == b.Error())
}

// errnoOf returns the system's error number, 0 if the error has none.
func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	_ = errors.As(err, &errno)
	return errno
}

// schedule starts the timer of the next retry, if there is anything to retry.
func (r *retrier) schedule() {
	if r.timer != nil {
		return
	}
	limit := r.longestDelay()
	if limit == 0 {
		r.delay = 0
		return
	}
	r.delay = min(max(2*r.delay, firstRetry), limit)
	r.timer = r.loop.clocks.AfterFunc(r.delay, func() { r.loop.post(r.retry) })
}

// longestDelay returns the longest delay until the next retry, 0 if there is nothing to retry.
func (r *retrier) longestDelay() (limit time.Duration) {
	if r.loop.files.Inotify() == nil {
		limit = maxRetry
	}
	for _, e := range r.loop.sessions.byID {
		switch {
		case e.run.files.err != nil && e.rec.Run.Live():
			return watchRetry
		case canRetrySave(e) || e.watchError() != nil:
			limit = maxRetry
		}
	}
	return limit
}

// canRetrySave reports whether the session could not be saved, and another attempt may succeed.
func canRetrySave(e *entry) bool {
	return e.saving.err != nil && e.saving.unsaved && !errors.Is(e.saving.err, store.ErrNewer)
}

// watchError returns why the files of a running session are not watched, nil if they are.
func (e *entry) watchError() error {
	if !e.rec.Run.Live() {
		return nil
	}
	if e.run.files.err != nil {
		return e.run.files.err
	}
	return e.loop.workspaces.Err(workspaceKeyOf(e))
}

// retry repeats the saves and watches that have failed.
func (r *retrier) retry() {
	r.timer = nil
	r.loop.problems.stale = true // publish schedules the next retry, if one of them fails again
	r.openFiles()
	r.retrySaves()
	for _, e := range r.loop.sessions.byID {
		if e.run.files.err != nil {
			e.run.files.rewatch()
		}
	}
	r.loop.workspaces.Retry()
}

// retrySaves has the sessions that could not be saved saved again at the end of this iteration.
func (r *retrier) retrySaves() {
	for _, e := range r.loop.sessions.byID {
		if canRetrySave(e) {
			e.markDirty()
		}
	}
}

package supervisor

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/journal"
	"github.com/corrald/corral/supervisor/sources"
	"github.com/corrald/corral/supervisor/store"
)

// Problem is a condition that an operator can fix, or has to know of. It is published on the bus.
type Problem struct {
	Session string // id, "" for the daemon itself
	Text    string // one English sentence: what is wrong, and what to do

	// Path is the file that the problem is about: the problem ends once the file is gone. It is "" if
	// the problem ends in another way.
	Path string

	UntilSaved bool // the problem ends once the session is saved
}

// AddProblem adds a problem that was found in a saved record, or with a file of a session. It is
// called before Run, or on the event loop.
func (s *Supervisor) AddProblem(p Problem) {
	s.addedProblems = append(s.addedProblems, p)
	s.problemsStale = true
}

// SetProblem sets the text of a problem of the daemon itself, or removes the problem if text is "".
// Each topic has at most one problem.
func (s *Supervisor) SetProblem(topic, text string) {
	s.post(func() { s.setProblem(topic, text) })
}

func (s *Supervisor) setProblem(topic, text string) {
	if s.daemonProblems[topic] == text {
		return
	}
	if s.daemonProblems[topic] = text; text == "" {
		delete(s.daemonProblems, topic)
	}
	s.problemsStale = true
}

// CheckProblems drops the problems about files that a person has removed, which no event reports,
// and publishes the change before it returns.
func (s *Supervisor) CheckProblems() error {
	return s.do(func() {
		s.dropFixedProblems()
		s.publishProblems()
	})
}

// dropFixedProblems drops the problems that a person has fixed by removing a file. No event reports
// such a removal: the files are examined when a client reads the problems.
func (s *Supervisor) dropFixedProblems() {
	s.dropProblems(func(p Problem) bool {
		_, err := os.Lstat(p.Path)
		return p.Path != "" && errors.Is(err, os.ErrNotExist)
	})
}

// dropProblems drops the problems that AddProblem has added and for which isOver returns true.
func (s *Supervisor) dropProblems(isOver func(Problem) bool) {
	before := len(s.addedProblems)
	s.addedProblems = slices.DeleteFunc(s.addedProblems, isOver)
	s.problemsStale = s.problemsStale || len(s.addedProblems) != before
}

// dropProblemsOf drops the problems that AddProblem has added for a session that is being removed.
func (s *Supervisor) dropProblemsOf(id string) {
	s.dropProblems(func(p Problem) bool { return p.Session == id })
	s.problemsStale = true
}

// problems returns all problems, sorted by session and text.
func (s *Supervisor) problems() []Problem {
	all := slices.Clone(s.addedProblems)
	for _, text := range s.daemonProblems {
		all = append(all, Problem{Text: text})
	}
	for _, e := range s.sessions {
		// That a record is of a newer version was found when it was read.
		if e.saveErr != nil && !errors.Is(e.saveErr, store.ErrNewer) {
			all = append(all, Problem{Session: e.rec.ID, Text: saveProblem(e.saveErr)})
		}
		if err := s.watchError(e); err != nil && s.files.Inotify() != nil {
			all = append(all, Problem{Session: e.rec.ID, Text: watchProblem(err)})
		}
		if e.run.deferredEnd != nil {
			all = append(all, Problem{Session: e.rec.ID, Text: outsideScopeProblem})
		}
	}
	all = append(all, s.conversationProblems()...)
	slices.SortFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(a.Text, b.Text))
	})
	return all
}

// watchError returns why the files of a running session are not watched, nil if they are.
func (s *Supervisor) watchError(e *entry) error {
	if !e.rec.Run.Live() {
		return nil
	}
	if e.watchErr != nil {
		return e.watchErr
	}
	return s.workspaces.Err(workspaceKeyOf(e))
}

// saveProblem returns the text of the problem that the last change of a session is not on disk.
func saveProblem(err error) string {
	remedy := "fix this"
	switch errnoOf(err) {
	case unix.ENOSPC, unix.EDQUOT:
		remedy = "free space on the disk"
	case unix.EROFS:
		remedy = "make the file system writable again"
	case unix.EACCES, unix.EPERM:
		remedy = "restore write permission there"
	case unix.EIO:
		remedy = "the disk may be failing, see journalctl -k"
	}
	return err.Error() + "; " + remedy + ", and it will be saved automatically"
}

// watchProblem returns the text of the problem that files of a session cannot be watched.
func watchProblem(err error) string {
	return err.Error() + "; its end and changes of its workspace may be reported late"
}

// inotifyProblem returns the text of the problem that no file can be watched.
func inotifyProblem(err error) string {
	return err.Error() + ": close programs that use many, or raise fs.inotify.max_user_instances; " +
		"until then, ends of sessions and changes of workspaces may be reported late"
}

// errnoOf returns the system's error number, 0 if the error has none.
func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	_ = errors.As(err, &errno)
	return errno
}

// isSameError reports whether two attempts have failed for the same reason, or have both succeeded.
func isSameError(a, b error) bool {
	if a == nil || b == nil {
		return a == b //nolint:errorlint // both are nil, or one is
	}
	return errnoOf(a) == errnoOf(b) && (errnoOf(a) != 0 || a.Error() == b.Error())
}

// recordWatchError stores in *before the result of an attempt to watch a file of the session, and
// logs a new error. *before is the result of the previous attempt.
func (s *Supervisor) recordWatchError(id string, before *error, err error) {
	if isSameError(*before, err) {
		return
	}
	*before = err
	s.problemsStale = true
	if err == nil {
		return
	}
	s.retryDelay = 0
	if !errors.Is(err, sources.ErrNoInotify) { // openFiles logs this once, not for each session
		s.Log.Warn("cannot watch the files of a session", "session", id, "err", err,
			"message_id", journal.NotWatched)
	}
}

// Delays before failed saves and watches are retried: the delay doubles from firstRetry to
// maxRetry. No timer runs while there is nothing to retry. Each retry also examines the files of a
// session that cannot be watched: its end may be noticed as late as watchRetry.
const (
	firstRetry = time.Second
	watchRetry = 5 * time.Second
	maxRetry   = time.Minute
)

// publishProblems publishes the problems, if they have changed, and schedules the next retry.
func (s *Supervisor) publishProblems() {
	if !s.problemsStale {
		return
	}
	s.problemsStale = false
	now := s.problems()
	if !slices.Equal(now, s.publishedProblems) {
		s.publishedProblems = now
		s.Publisher.PublishProblems(now)
	}
	s.scheduleRetry()
}

// scheduleRetry starts the timer of the next retry, if there is anything to retry.
func (s *Supervisor) scheduleRetry() {
	if s.retryDelay == 0 && s.retryTimer != nil { // a new failure: it does not wait as long as old ones
		s.retryTimer.Stop()
		s.retryTimer = nil
	}
	if s.retryTimer != nil {
		return
	}
	limit := s.maxRetryDelay()
	if limit == 0 {
		s.retryDelay = 0
		return
	}
	s.retryDelay = min(max(2*s.retryDelay, firstRetry), limit)
	s.retryTimer = s.AfterFunc(s.retryDelay, func() { s.post(s.retry) })
}

// maxRetryDelay returns the longest delay until the next retry, 0 if there is nothing to retry.
func (s *Supervisor) maxRetryDelay() (limit time.Duration) {
	if s.files.Inotify() == nil {
		limit = maxRetry
	}
	for _, e := range s.sessions {
		switch {
		case e.watchErr != nil && e.rec.Run.Live():
			return watchRetry
		case canRetrySave(e) || s.watchError(e) != nil:
			limit = maxRetry
		}
	}
	return limit
}

// canRetrySave reports whether the session could not be saved, and another attempt may succeed.
func canRetrySave(e *entry) bool {
	return e.saveErr != nil && e.unsaved && !errors.Is(e.saveErr, store.ErrNewer)
}

// retry repeats the saves and watches that have failed.
func (s *Supervisor) retry() {
	s.retryTimer = nil
	s.problemsStale = true
	s.openFiles()
	for _, e := range s.sessions {
		if canRetrySave(e) {
			s.markDirty(e)
		}
		if e.watchErr != nil {
			s.rewatchRunFiles(e)
		}
	}
	s.workspaces.Retry()
}

// openFiles creates the inotify instance that watches files, if there is none yet. If it cannot, it
// sets a problem, and retry calls it again.
func (s *Supervisor) openFiles() {
	if s.files.Inotify() != nil {
		return
	}
	in, err := s.OpenInotify()
	if err != nil {
		if s.daemonProblems["inotify"] == "" {
			s.Log.Error("cannot watch files", "err", err, "message_id", journal.NotWatched)
		}
		s.setProblem("inotify", inotifyProblem(err))
		return
	}
	s.files.SetInotify(in)
	s.setProblem("inotify", "")
	if s.loopStarted {
		s.runFiles()
	}
}

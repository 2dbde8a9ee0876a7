package supervisor

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/journal"
	"github.com/corrald/corral/supervisor/store"
)

// Problem is something that is wrong and that a person can mend, or has to know of.
type Problem struct {
	Session string // id, "" for the daemon itself
	Text    string // one English sentence: what is wrong, and what to do
	Path    string // of the file that the problem is about: it is over once that is gone. "" where it ends otherwise

	UntilSaved bool // it is over once the session is saved
}

// Found is told, before Adopt, of something that was found in a saved record.
func (s *Supervisor) Found(p Problem) {
	s.found = append(s.found, p)
	s.unsure = true
}

// Trouble is told that something of the daemon's own is wrong: text says what, and "" that it is well again. Topics keep one from another.
func (s *Supervisor) Trouble(topic, text string) {
	s.post(func() { s.trouble(topic, text) })
}

func (s *Supervisor) trouble(topic, text string) {
	if s.troubles[topic] == text {
		return
	}
	if s.troubles[topic] = text; text == "" {
		delete(s.troubles, topic)
	}
	s.unsure = true
}

// CheckProblems drops what is over and is told of by nothing: what was said of files that a person has taken away. That is published before it returns.
func (s *Supervisor) CheckProblems() error {
	return s.do(func() {
		s.forgetFound()
		s.tellProblems()
	})
}

// forgetFound drops what a person has mended by taking a file away. Nothing tells of that: it is looked at when somebody asks.
func (s *Supervisor) forgetFound() {
	s.endFound(func(p Problem) bool {
		_, err := os.Lstat(p.Path)
		return p.Path != "" && errors.Is(err, os.ErrNotExist)
	})
}

// endFound drops what is over of what was found.
func (s *Supervisor) endFound(over func(Problem) bool) {
	before := len(s.found)
	s.found = slices.DeleteFunc(s.found, over)
	s.unsure = s.unsure || len(s.found) != before
}

// forgetSession drops what was found of a session that is removed.
func (s *Supervisor) forgetSession(id string) {
	s.endFound(func(p Problem) bool { return p.Session == id })
	s.unsure = true
}

func (s *Supervisor) problems() []Problem {
	all := slices.Clone(s.found)
	for _, text := range s.troubles {
		all = append(all, Problem{Text: text})
	}
	for _, e := range s.sessions {
		if e.saveErr != nil && !errors.Is(e.saveErr, store.ErrNewer) { // that one was found when it was read
			all = append(all, Problem{Session: e.rec.ID, Text: notSaved(e.saveErr)})
		}
		if err := s.watchError(e); err != nil && s.Files != nil {
			all = append(all, Problem{Session: e.rec.ID, Text: notWatched(err)})
		}
		if e.run.outside != nil {
			all = append(all, Problem{Session: e.rec.ID, Text: leftScope})
		}
	}
	all = append(all, s.shared()...)
	slices.SortFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(a.Text, b.Text))
	})
	return all
}

// watchError is why the files of a session that lives are not watched, nil if they are.
func (s *Supervisor) watchError(e *entry) error {
	if !e.rec.Run.Live() {
		return nil
	}
	if p := s.places[placeOf(e)]; p != nil && e.watchErr == nil {
		return p.err
	}
	return e.watchErr
}

// notSaved tells that the last change of a session is not on disk.
func notSaved(err error) string {
	do := "fix this"
	switch cause(err) {
	case unix.ENOSPC, unix.EDQUOT:
		do = "free space on the disk"
	case unix.EROFS:
		do = "make the file system writable again"
	case unix.EACCES, unix.EPERM:
		do = "restore write permission there"
	case unix.EIO:
		do = "the disk may be failing, see journalctl -k"
	}
	return err.Error() + "; " + do + ", and it will be saved automatically"
}

// notWatched tells that files of a session cannot be watched.
func notWatched(err error) string {
	return err.Error() + "; its end and changes of its workspace may be reported late"
}

// noWatcher tells that no file can be watched.
func noWatcher(err error) string {
	return err.Error() + ": close programs that use many, or raise fs.inotify.max_user_instances; until then, ends of sessions " +
		"and changes of workspaces may be reported late"
}

// cause is the system's word for what went wrong, 0 if it has none.
func cause(err error) unix.Errno {
	var errno unix.Errno
	_ = errors.As(err, &errno)
	return errno
}

// sameCause tells whether two attempts have failed alike, or have both not.
func sameCause(a, b error) bool {
	if a == nil || b == nil {
		return a == b //nolint:errorlint // both are nil, or one is
	}
	return cause(a) == cause(b) && (cause(a) != 0 || a.Error() == b.Error())
}

// noteWatched keeps what has become of an attempt to watch something, of which *before was the last.
func (s *Supervisor) noteWatched(id string, before *error, err error) {
	if sameCause(*before, err) {
		return
	}
	*before = err
	s.unsure = true
	if err == nil {
		return
	}
	s.retryAfter = 0
	if !errors.Is(err, errNoWatcher) { // that is told once, not for each
		s.Log.Warn("cannot watch the files of a session", "session", id, "err", err, "message_id", journal.NotWatched)
	}
}

// What could not be saved or watched is tried again: soon, then less and less often, for as long as
// there is any. When all is well, nothing is. The files of a session are looked at each time, so as
// long as they are not watched lookRetry is how late its end may be noticed.
const (
	firstRetry = time.Second
	lookRetry  = 5 * time.Second
	lastRetry  = time.Minute
)

// tellProblems tells clients what is wrong, if that has changed, and sees to it that it is tried again.
func (s *Supervisor) tellProblems() {
	if !s.unsure {
		return
	}
	s.unsure = false
	now := s.problems()
	if !slices.Equal(now, s.toldProblems) {
		s.toldProblems = now
		s.Publisher.PublishProblems(now)
	}
	s.armRetry()
}

func (s *Supervisor) armRetry() {
	if s.retryAfter == 0 && s.retrying != nil { // something new: it does not have to wait for what is old
		s.retrying.Stop()
		s.retrying = nil
	}
	if s.retrying != nil {
		return
	}
	most := s.retryLimit()
	if most == 0 {
		s.retryAfter = 0
		return
	}
	s.retryAfter = min(max(2*s.retryAfter, firstRetry), most)
	s.retrying = s.AfterFunc(s.retryAfter, func() { s.post(s.retry) })
}

// retryLimit is how long it may take to the next attempt, 0 where there is nothing that another
// attempt may mend.
func (s *Supervisor) retryLimit() (most time.Duration) {
	if s.Files == nil {
		most = lastRetry
	}
	for _, e := range s.sessions {
		switch {
		case e.watchErr != nil && e.rec.Run.Live():
			return lookRetry
		case savable(e) || s.watchError(e) != nil:
			most = lastRetry
		}
	}
	return most
}

// savable tells whether a session could not be saved, and may be the next time.
func savable(e *entry) bool {
	return e.saveErr != nil && e.unsaved && !errors.Is(e.saveErr, store.ErrNewer)
}

// retry tries again what did not work.
func (s *Supervisor) retry() {
	s.retrying = nil
	s.unsure = true
	s.openFiles()
	for _, e := range s.sessions {
		if savable(e) {
			s.touch(e)
		}
		if e.watchErr != nil {
			s.watchAnew(e)
		}
	}
	for _, p := range s.places {
		if p.err != nil {
			s.look(p)
		}
	}
}

var errNoWatcher = errors.New("no files can be watched")

// openFiles begins to watch files, if that could not be done before.
func (s *Supervisor) openFiles() {
	if s.Files != nil {
		return
	}
	files, err := s.OpenFiles()
	if err != nil {
		if s.troubles["inotify"] == "" {
			s.Log.Error("cannot watch files", "err", err, "message_id", journal.NotWatched)
		}
		s.trouble("inotify", noWatcher(err))
		return
	}
	s.Files = files
	s.trouble("inotify", "")
	if s.running {
		s.runFiles()
	}
}

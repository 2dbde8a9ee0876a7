package supervisor

import (
	"cmp"
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"

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

// problemList contains the current problems. Problems of records, of files and of the daemon itself
// are added explicitly; the others are derived from the state of the sessions.
type problemList struct {
	loop      *loop
	added     []Problem         // found in records, or with files of sessions
	daemon    map[string]string // texts of the daemon's own problems, by topic
	stale     bool              // the problems may differ from published
	published []Problem
	retries   retrier // of what causes some of the problems

	conversationShared bool // at least two sessions use the same conversation
}

// AddProblem adds a problem that was found in a saved record. It is called before Run.
func (s *Supervisor) AddProblem(p Problem) { s.loop.problems.add(p) }

// SetProblem sets the text of a problem of the daemon itself, or removes the problem if text is "".
// Each topic has at most one problem.
func (s *Supervisor) SetProblem(topic, text string) {
	s.loop.post(func() { s.loop.problems.set(topic, text) })
}

// CheckProblems drops the problems about files that a person has removed, which no event reports,
// and publishes the change before it returns.
func (s *Supervisor) CheckProblems() error {
	return s.loop.do(func() {
		s.loop.problems.drop(func(p Problem) bool {
			_, err := os.Lstat(p.Path)
			return p.Path != "" && errors.Is(err, os.ErrNotExist)
		})
		s.loop.problems.publish()
	})
}

// set is SetProblem.
func (ps *problemList) set(topic, text string) {
	if ps.daemon[topic] == text {
		return
	}
	if ps.daemon[topic] = text; text == "" {
		delete(ps.daemon, topic)
	}
	ps.stale = true
}

// add adds a problem that was found in a saved record, or with a file of a session.
func (ps *problemList) add(p Problem) {
	ps.added = append(ps.added, p)
	ps.stale = true
}

// setFile sets the problem with a file of a session. It is published once, and ends when the file
// is gone or clearFile is called.
func (ps *problemList) setFile(e *entry, path, text string) {
	p := Problem{Session: e.rec.ID, Text: text, Path: path}
	if !slices.Contains(ps.added, p) {
		ps.clearFile(e, path)
		ps.add(p)
	}
}

// clearFile removes the problem with a file of a session, if there is one.
func (ps *problemList) clearFile(e *entry, path string) {
	ps.drop(func(p Problem) bool { return p.Session == e.rec.ID && p.Path == path })
}

// drop drops the problems that add has added and for which isOver returns true.
func (ps *problemList) drop(isOver func(Problem) bool) {
	before := len(ps.added)
	ps.added = slices.DeleteFunc(ps.added, isOver)
	ps.stale = ps.stale || len(ps.added) != before
}

// publish publishes the problems, if they have changed. It also schedules the next retry: whatever
// can be retried is a problem.
func (ps *problemList) publish() {
	if !ps.stale {
		return
	}
	ps.stale = false
	if now := ps.list(); !slices.Equal(now, ps.published) {
		ps.published = now
		ps.loop.publisher.PublishProblems(now)
	}
	ps.retries.schedule()
}

// list returns all problems, sorted by session and text.
func (ps *problemList) list() []Problem {
	all := slices.Clone(ps.added)
	for _, text := range ps.daemon {
		all = append(all, Problem{Text: text})
	}
	for _, e := range ps.loop.sessions.byID {
		// That a record is of a newer version was found when it was read.
		if e.saving.err != nil && !errors.Is(e.saving.err, store.ErrNewer) {
			all = append(all, Problem{Session: e.rec.ID, Text: saveProblem(e.saving.err)})
		}
		if err := e.watchError(); err != nil && ps.loop.files.Inotify() != nil {
			text := err.Error() + "; its end and changes of its workspace may be reported late"
			all = append(all, Problem{Session: e.rec.ID, Text: text})
		}
		if len(e.run.start.portsInUse) > 0 {
			all = append(all, Problem{Session: e.rec.ID, Text: e.run.start.portProblem()})
		}
		if e.run.scope.deferredEnd != nil {
			all = append(all, Problem{Session: e.rec.ID, Text: outsideScopeProblem})
		}
	}
	all = append(all, ps.conversationProblems()...)
	slices.SortFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Session, b.Session), cmp.Compare(a.Text, b.Text))
	})
	return all
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

// Package supervisor owns all sessions: it decides, saves, publishes, and has effects carried out.
//
// One goroutine, the event loop, owns all state; others post functions to its mailbox. One
// iteration drains the mailbox, applies the events, saves, publishes, and then starts effects. The
// loop waits for nothing but the store: whatever takes time is an effect. A goroutine of the
// session carries out its effects one after the other, and posts their results as events.
package supervisor

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/internal/clock"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/fdpoll"
	"github.com/corrald/corral/internal/inotify"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/internal/worktree"
	"github.com/corrald/corral/supervisor/retention"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/sources"
	"github.com/corrald/corral/supervisor/workspaces"
)

// mailboxSize lets bursts through without a goroutine switch for each event.
const mailboxSize = 1024

// Publisher publishes changes to clients, in the order of the calls. It must not block, and must
// not call the Supervisor.
type Publisher interface {
	// Publish publishes the changes of one iteration. Once all of them are on their way to clients, it
	// calls the functions of after, in order: they answer calls.
	Publish(changes []Change, after []func())
	// PublishProblems publishes the current problems. It is called when they have changed.
	PublishProblems(all []Problem)
}

// Change is one session's change in an iteration. Old is nil for a new one, New for a removed one.
type Change struct {
	Old, New *Snapshot
}

// affectsCounts reports whether the counts, or the time of the next suspension, may have changed.
func (c Change) affectsCounts() bool {
	return c.Old == nil || c.New == nil || c.Old.State != c.New.State || c.Old.Activity != c.New.Activity ||
		c.Old.SuspendsAt != c.New.SuspendsAt
}

// Records stores the records of sessions. SyncExit makes the record of an exit durable, and
// KeepExit writes one that was found elsewhere. Save, SyncExit and KeepExit are called for
// different sessions at the same time.
type Records interface {
	Create(id string) error
	Save(rec *session.Session, writer string) error
	SyncExit(id string) error
	KeepExit(id string, status exitstatus.Status) error
	Remove(id string) error
	SessionDir(id string) string
}

// Options configures a Supervisor. The event loop calls KeepAlive and the functions from SetAlarm
// on. Each of them may be nil.
type Options struct {
	System
	Config      config.Config
	Agents      map[string]config.Agent
	Records     Records
	Publisher   Publisher
	Inotify     sources.Inotify                 // closed by Run, like Poller
	OpenInotify func() (sources.Inotify, error) // creates Inotify if it is nil; called again after an error
	Poller      sources.Poller
	Log         *slog.Logger
	Version     string
	BootID      string
	RuntimeDir  string       // $XDG_RUNTIME_DIR/corral
	Home        string       // for specifiers
	ShareDir    string       // for specifiers: the directory of the files that Corral provides for agents
	WorktreeDir string       // of the sessions' git worktrees: $XDG_DATA_HOME/corral/worktrees
	Git         worktree.Git // creates, examines and removes them

	KeepAlive         func()               // notifies the watchdog, at least every KeepAliveInterval
	KeepAliveInterval time.Duration        // half of the watchdog's timeout; 0 if there is no watchdog
	SinceBoot         func() time.Duration // a clock that cannot be set; nil for clock.SinceBoot
	Monotonic         func() time.Duration // a clock that stops while the machine sleeps; nil for clock.Monotonic
	AfterFunc         deadline.Start       // nil for deadline.Real
	SetAlarm          func(time.Time)      // AlarmRang is to be called at this time, not at all if it is zero
	IterationBegins   func()               // called at the beginning of each iteration
	SetStatus         func(text string)    // called when the counts have changed: "3 running, 1 failed"
	AnnounceShutdown  func(bool)           // called if the machine, or login session, is about to end (or no longer is)
	SetAnyAgentAlive  func(bool)           // called when the first agent is alive, and when the last one is gone
	StopDelayed       func(time.Duration)  // called if the daemon waits for agents before it exits, at most this long
}

// Supervisor supervises all sessions. Its methods may be called from any goroutine, but not from
// the event loop.
type Supervisor struct {
	Options
	mailbox chan func()
	done    chan struct{} // closed when the loop has ended
	ctx     context.Context
	cancel  context.CancelFunc

	// Only the event loop uses the following fields.
	sessions     map[string]*entry
	reserved     map[string]bool   // ids of sessions that are about to be created
	units        map[string]*entry // by the name of the scope: no two sessions use the same name
	dirty        []*entry
	afterPublish []func() // called once this iteration is published
	stopping     bool     // the daemon is about to exit
	stopQueries  int      // number of unanswered queries to systemd why it stops a scope

	announcedShutdown    bool
	machineStops         bool              // SuspendForShutdown was called
	suspendedForShutdown map[string]string // ids of the runs that it suspended, by session; see ShutdownCancelled
	lastStatus           string
	anyAgentAlive        bool          // the last argument of SetAnyAgentAlive
	uncompared           int           // number of sessions that have to be compared with systemd's scopes once more
	relistScheduled      bool          // listing these scopes has failed, and will be repeated
	relistDelay          time.Duration // before that; 0 if the last listing has succeeded

	expiry    expiry
	startTime time.Duration // of the daemon, by CLOCK_MONOTONIC

	shimMessage [shimwire.MaxMessage]byte // buffer for the message of a shim that is being read

	files       *sources.Files
	descriptors *sources.Descriptors
	workspaces  *workspaces.Watcher // of live runs, and of sessions that have not run
	resolver    *workspaces.Resolver

	addedProblems      []Problem         // found in records, or with files of sessions
	daemonProblems     map[string]string // texts of the daemon's own problems, by topic
	conversationShared bool              // at least two sessions use the same conversation
	problemsStale      bool              // the problems may differ from publishedProblems
	publishedProblems  []Problem
	retryTimer         deadline.Stopper // nil if there is nothing to retry
	retryDelay         time.Duration
	loopStarted        bool // Run was called

	calls    map[session.ReplyID]chan<- error // calls that wait for the end of an operation
	lastCall session.ReplyID
}

// New returns a Supervisor. Run starts it.
func New(o Options) *Supervisor {
	ctx, cancel := context.WithCancel(context.Background())
	if o.ResolvePath == nil {
		o.ResolvePath = filepath.EvalSymlinks
	}
	if o.SinceBoot == nil {
		o.SinceBoot = clock.SinceBoot
	}
	if o.Monotonic == nil {
		o.Monotonic = clock.Monotonic
	}
	if o.AfterFunc == nil {
		o.AfterFunc = deadline.Real
	}
	s := &Supervisor{
		Options:              o,
		mailbox:              make(chan func(), mailboxSize),
		done:                 make(chan struct{}),
		ctx:                  ctx,
		cancel:               cancel,
		sessions:             map[string]*entry{},
		reserved:             map[string]bool{},
		units:                map[string]*entry{},
		suspendedForShutdown: map[string]string{},
		files:                sources.NewFiles(o.Inotify),
		descriptors:          sources.NewDescriptors(o.Poller),
		daemonProblems:       map[string]string{},
		calls:                map[session.ReplyID]chan<- error{},
	}
	s.workspaces = workspaces.NewWatcher(s.files, s.post, s.workspaceObserved, s.recordWatchError)
	s.resolver = workspaces.NewResolver(s.ResolvePath, s.post, s.AfterFunc)
	s.startTime = s.Monotonic()
	s.expiry = expiry{sup: s, clock: retention.NewClock(s.BootID)}
	s.expiry.checkClock()
	s.openFiles()
	return s
}

// ErrClosed is returned for calls after the event loop has ended.
var ErrClosed = errors.New("corrald is shutting down")

// post has f called on the event loop, and does not wait. After the loop has ended it does nothing.
func (s *Supervisor) post(f func()) {
	select {
	case s.mailbox <- f:
	case <-s.done:
	}
}

// do has f called on the event loop and waits until f has returned.
func (s *Supervisor) do(f func()) error {
	ran := make(chan struct{})
	s.post(func() { f(); close(ran) })
	select {
	case <-ran:
		return nil
	case <-s.done:
		return ErrClosed
	}
}

// Run is the event loop. It returns when ctx is done and everything was saved.
func (s *Supervisor) Run(ctx context.Context) {
	defer close(s.done)
	defer s.cancel()
	s.loopStarted = true
	if s.files.Inotify() != nil {
		s.runFiles()
	}
	go s.Poller.Run(func(k fdpoll.Key) { s.post(func() { s.descriptors.Handle(k) }) })
	defer func() {
		_ = s.Poller.Close()
		if in := s.files.Inotify(); in != nil {
			_ = in.Close()
		}
	}()
	alive := make(<-chan time.Time)
	if s.KeepAlive != nil && s.KeepAliveInterval > 0 {
		t := time.NewTicker(s.KeepAliveInterval)
		defer t.Stop()
		alive = t.C
	}
	for {
		select {
		case f := <-s.mailbox:
			s.iterate(f)
		case <-alive:
			s.KeepAlive()
		case <-ctx.Done():
			s.iterate(s.shutDown)
			return
		}
	}
}

func (s *Supervisor) runFiles() {
	go s.files.Inotify().Run(func(ev inotify.Event) {
		s.post(func() {
			if lost := s.files.Handle(ev); lost {
				s.checkAll()
			}
		})
	})
}

// iterate calls f and then the functions in the mailbox, saves and publishes.
func (s *Supervisor) iterate(f func()) {
	if s.IterationBegins != nil {
		s.IterationBegins()
	}
	f()
drain:
	for range mailboxSize {
		select {
		case f := <-s.mailbox:
			f()
		default:
			break drain
		}
	}
	s.finishIteration()
	s.publishProblems()
}

// markDirty marks a session as changed: finishIteration processes it.
func (s *Supervisor) markDirty(e *entry) {
	if !e.dirty {
		e.dirty = true
		s.dirty = append(s.dirty, e)
	}
}

// finishIteration saves and publishes the changes of this iteration, and only then starts the
// effects that were decided: what an effect causes is never published before what led to it.
func (s *Supervisor) finishIteration() {
	if len(s.dirty) == 0 && len(s.afterPublish) == 0 {
		return
	}
	s.processDirty()
	s.save(s.dirty)
	s.cancelUnsavedStarts(s.dirty)
	changes := make([]Change, 0, len(s.dirty))
	for _, e := range s.dirty {
		e.dirty = false
		changes = append(changes, s.replaceSnapshot(e)...)
	}
	dirty := s.dirty
	s.dirty = nil
	for _, e := range dirty {
		s.answerWaiters(e)
	}
	s.Publisher.Publish(changes, s.afterPublish)
	s.afterPublish = nil
	for _, e := range dirty {
		for _, held := range e.held {
			s.enqueue(e, held.run)
		}
		e.held = nil
	}
	s.saveExits(dirty)
	counts := slices.ContainsFunc(changes, Change.affectsCounts)
	if counts {
		s.reportStatus()
		s.reportAnyAgentAlive()
	}
	s.expiry.iterationEnded(counts)
}

// processDirty updates the watches and the recorded state of each changed session. This may change
// further sessions, which are processed as well.
func (s *Supervisor) processDirty() {
	done := 0
	for done < len(s.dirty) {
		if e := s.dirty[done]; !e.removed {
			s.applyDeferredEnd(e)
			s.updateWatches(e)
			s.recordState(e)
		}
		done++
	}
}

// recordState records the session's state, and since when it has it. The state follows from the
// facts: its change alone need not be saved before it is published.
func (s *Supervisor) recordState(e *entry) {
	v := e.rec.View()
	if e.rec.State == v.State && !e.rec.StateChanged.IsZero() {
		return
	}
	returned := slices.Contains([]session.State{session.Running, session.Starting, session.Created}, v.State) &&
		(e.rec.State == session.Stale || e.rec.State == session.Orphaned)
	e.rec.State, e.rec.StateChanged = v.State, v.Since
	if v.State == session.Running || returned {
		e.rec.ClearSeen() // the condition that a person has seen is over
	}
	if v.Since.IsZero() || returned {
		e.rec.StateChanged, e.onlyExitUnsaved = time.Now(), false
	}
	e.rec.ChangedOn, e.rec.ChangedMonotonic = s.expiry.checkClock(), s.Monotonic()
	e.unsaved = true
}

// replaceSnapshot replaces the session's published snapshot by a current one, logs a change of the
// state, and returns the change, if there is one to publish.
func (s *Supervisor) replaceSnapshot(e *entry) []Change {
	old := e.published
	if e.removed {
		e.published = nil
		if old == nil {
			return nil
		}
		return []Change{{Old: old}}
	}
	e.published = s.snapshot(e)
	s.expiry.changed(old.expiry(), e.published.Expires)
	before := string(e.adoptedState)
	if old != nil {
		before = old.State
	}
	if before != e.published.State {
		s.logState(e, before)
	}
	return []Change{{Old: old, New: e.published}}
}

// answerWaiters answers the calls whose condition has come true, after the changes are published.
func (s *Supervisor) answerWaiters(e *entry) {
	e.waiting = slices.DeleteFunc(e.waiting, func(w waiter) bool {
		if !w.ready(e) {
			return false
		}
		err := w.err(e)
		s.afterPublish = append(s.afterPublish, func() { w.reply <- err })
		return true
	})
}

// enqueue has the session's goroutine call f, after what was enqueued before.
func (s *Supervisor) enqueue(e *entry, f func()) {
	e.queue = append(e.queue, f)
	s.runQueue(e)
}

// runQueue starts the next function of the session's queue, unless one is running.
func (s *Supervisor) runQueue(e *entry) {
	s.resyncMissed(e)
	if e.busy || len(e.queue) == 0 {
		return
	}
	f := e.queue[0]
	e.queue = e.queue[1:]
	e.busy = true
	go func() {
		f()
		s.post(func() {
			e.busy = false
			s.runQueue(e)
		})
	}()
}

// queueAfterSave enqueues f once the decisions of this iteration are saved and published.
func (s *Supervisor) queueAfterSave(e *entry, f func()) { s.holdUntilSaved(e, queueEntry{run: f}) }

// queueStartAfterSave is queueAfterSave for the start of a run: see cancelUnsavedStarts.
func (s *Supervisor) queueStartAfterSave(e *entry, f func()) {
	s.holdUntilSaved(e, queueEntry{f, true})
}

// queueEntry is a function that is called outside of the event loop.
type queueEntry struct {
	run       func()
	startsRun bool
}

func (s *Supervisor) holdUntilSaved(e *entry, q queueEntry) {
	e.held = append(e.held, q)
	s.markDirty(e)
}

// postEvent has ev applied on the event loop, unless the session was removed. Effects call it.
func (s *Supervisor) postEvent(e *entry, ev session.Event) {
	s.post(func() {
		if !e.removed {
			s.apply(e, ev)
		}
	})
}

// find returns the session with this id. Errors: NoSuchSession.
func (s *Supervisor) find(id string) (*entry, error) {
	if e := s.sessions[id]; e != nil && !e.removed {
		return e, nil
	}
	return nil, NoSession(id)
}

// add adds a session, and watches its workspace if the session needs that.
func (s *Supervisor) add(e *entry) {
	s.sessions[e.rec.ID] = e
	s.units[UnitName(e.rec.Agent, e.rec.ID)] = e
	s.markDirty(e)
	if r := e.rec.Run; r.Live() && r.BootID == s.BootID || r == nil && e.adoptedState != "" && e.rec.Archived.IsZero() {
		s.watchWorkspace(e)
	}
}

// sorted returns all sessions, sorted by time of creation and id.
func (s *Supervisor) sorted() []*entry {
	all := make([]*entry, 0, len(s.sessions))
	for _, e := range s.sessions {
		if !e.removed {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *entry) int {
		if c := a.rec.Created.Compare(b.rec.Created); c != 0 {
			return c
		}
		return strings.Compare(a.rec.ID, b.rec.ID)
	})
	return all
}

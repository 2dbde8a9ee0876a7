// Package supervisor owns every session: it decides, saves, publishes, and lets things be done.
//
// One goroutine, the loop, owns all state; the only door to it is a function. A turn of the loop is: drain, apply, save, publish, act. The loop
// waits for nothing but the store. What takes time is an effect, done by a goroutine of the session it is for, one after the other; what comes
// of it returns through the door as an event.
package supervisor

import (
	"context"
	"errors"
	"log/slog"
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
	"github.com/corrald/corral/supervisor/session"
)

// doorSize lets bursts through without a goroutine switch for each event; a turn drains it.
const doorSize = 1024

// Publisher is told what changed, in order. It must not block and must not call back.
type Publisher interface {
	// Publish takes the changes of one turn. After is to be called, in order, once everything in changes is on its way to clients: calls are
	// answered by it.
	Publish(changes []Change, after []func())
	// PublishProblems takes everything that is wrong, when that has changed.
	PublishProblems(all []Problem)
}

// Change is what became of one session in one turn. Old is nil for a new session, New for one that was removed.
type Change struct {
	Old, New *Snapshot
}

// counts tells whether the change is one that Counts can show.
func (c Change) counts() bool {
	return c.Old == nil || c.New == nil || c.Old.State != c.New.State || c.Old.Activity != c.New.Activity || c.Old.SuspendsAt != c.New.SuspendsAt
}

// Records is where sessions are kept. Save, SyncExit, which makes the record of an exit durable, and KeepExit, which writes one that was found elsewhere,
// are called for different sessions at the same time.
type Records interface {
	Create(id string) error
	Save(rec *session.Session, writer string) error
	SyncExit(id string) error
	KeepExit(id string, status exitstatus.Status) error
	Remove(id string) error
	SessionDir(id string) string
}

// Files is how the loop is told of files: an inotify.Watcher. Add is called by any goroutine.
type Files interface {
	Add(path string, mask uint32) (int32, error)
	Remove(watch int32)
	Run(f func(inotify.Event))
	Close() error
}

// Descriptors is how the loop is told of pidfds and sockets: a fdpoll.Poller.
type Descriptors interface {
	Add(fd int, key fdpoll.Key) error
	Rearm(fd int, key fdpoll.Key) error
	Remove(fd int) error
	Run(f func(fdpoll.Key))
	Close() error
}

// Options is what a Supervisor is made of.
type Options struct {
	Config      config.Config
	Agents      map[string]config.Agent
	Records     Records
	World       World
	Publisher   Publisher
	Files       Files                 // closed by Run, as Descriptors is
	OpenFiles   func() (Files, error) // makes Files if it is nil, and again if that fails
	Descriptors Descriptors
	Log         *slog.Logger
	Version     string
	BootID      string
	RuntimeDir  string                   // $XDG_RUNTIME_DIR/corral
	Home        string                   // for specifiers
	ShareDir    string                   // for specifiers: what comes with Corral for its agents
	WorktreeDir string                   // where sessions' git worktrees are made: $XDG_DATA_HOME/corral/worktrees
	Git         worktree.Git             // makes, examines and removes them
	Alive       func()                   // called by the loop, at least every AliveEvery; nil where nobody watches it
	AliveEvery  time.Duration            // half of the watchdog's time
	SinceBoot   func() time.Duration     // a clock that nobody can set: clock.SinceBoot if it is nil
	Monotonic   func() time.Duration     // one that stands still while the machine sleeps: clock.Monotonic if it is nil
	AfterFunc   deadline.Start           // deadline.Real if it is nil
	Alarm       func(time.Time)          // called by the loop: AlarmRang is to be called at this time, or not at all if it is zero
	Stirred     func()                   // called by the loop at the beginning of each turn
	Status      func(text string)        // called by the loop when the counts have changed: "3 running, 1 failed"
	Announce    func(bool)               // called by the loop when the end of the machine, or of the login session, is near (true), or is not any more
	Live        func(some bool)          // called by the loop when the first agent begins to live, and when the last one is gone
	Ending      func(most time.Duration) // called by the loop when it waits for the agents to end before it ends itself, with how long that may take; may be nil
}

// Supervisor is the daemon's heart. Its methods may be called from any goroutine, but not from the loop.
type Supervisor struct {
	Options
	door   chan func()
	done   chan struct{} // closed when the loop has ended
	ctx    context.Context
	cancel context.CancelFunc

	// What follows belongs to the loop.
	sessions map[string]*entry
	reserved map[string]bool   // ids of sessions that are about to be created
	units    map[string]*entry // by the name of the scope, which each session has to itself
	dirty    []*entry
	after    []func()
	stopping bool
	asking   int // questions to systemd why it stops scopes that are not answered yet

	shuttingDown bool
	goingDown    bool              // so does the machine
	interrupted  map[string]string // ids and runs of the sessions that were suspended because it did, until they are resumed or have been in use
	lastText     string
	missed       int  // sessions that have to be looked at again
	wasLive      bool // what Live was told last

	unitsUnsure   bool // it is not known of all sessions that may expire whether a unit starts them
	askingUnits   bool // systemd is being asked which sessions units start
	askUnitsAgain bool // and is to be asked once more then

	nextExpiry time.Time     // what the alarm is set to
	rearm      bool          // it may have to be set anew
	boot       session.Boot  // this one, by the clock as it was last seen
	clockSince time.Time     // when the daemon started, or noticed that the clock had been set
	began      time.Duration // by CLOCK_MONOTONIC: when the daemon did

	heardShim [shimwire.MaxMessage]byte // the message of a shim that is being read

	keys map[fdpoll.Key]func()
	next fdpoll.Key

	paths   map[int32]*pathWatch  // by our number
	inodes  map[int32]*inodeWatch // by inotify's
	watches int32                 // the last number

	places  map[where]*place // workspaces of the runs that live
	ways    map[string]*way  // that are being found out, by path
	looks   int              // at places that are under way
	stirs   uint64
	stirred map[int32]uint64 // by inotify's number: the last stir of a watch since the first of these looks began

	found        []Problem         // when the records were read
	troubles     map[string]string // of the daemon itself, by topic
	sharing      bool              // sessions have the same conversation
	unsure       bool              // problems may be others than toldProblems
	toldProblems []Problem
	retrying     deadline.Stopper // runs while there is anything to be tried again
	retryAfter   time.Duration
	running      bool // Run was called

	listing   bool          // systemd is about to be asked again for its scopes
	listAfter time.Duration // after that time, 0 if it answered the last time
}

// New makes a Supervisor. Run starts it.
func New(o Options) *Supervisor {
	ctx, cancel := context.WithCancel(context.Background())
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
		Options:  o,
		troubles: map[string]string{},
		door:     make(chan func(), doorSize),
		done:     make(chan struct{}),
		ctx:      ctx,
		cancel:   cancel,
		sessions: map[string]*entry{}, interrupted: map[string]string{},
		reserved: map[string]bool{},
		units:    map[string]*entry{},
		keys:     map[fdpoll.Key]func(){},
		paths:    map[int32]*pathWatch{},
		inodes:   map[int32]*inodeWatch{},
		places:   map[where]*place{},
		ways:     map[string]*way{},
		stirred:  map[int32]uint64{},
	}
	s.began = s.Monotonic()
	s.lookAtClock()
	s.openFiles()
	return s
}

// ErrClosed is returned for calls that come after the loop has ended.
var ErrClosed = errors.New("corrald is shutting down")

// post sends f to the loop and does not wait for it. After the loop has ended it does nothing.
func (s *Supervisor) post(f func()) {
	select {
	case s.door <- f:
	case <-s.done:
	}
}

// do runs f on the loop and waits for it.
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

// Run is the loop. It returns when ctx is done, after everything was saved.
func (s *Supervisor) Run(ctx context.Context) {
	defer close(s.done)
	defer s.cancel()
	s.running = true
	if s.Files != nil {
		s.runFiles()
	}
	go s.Descriptors.Run(func(k fdpoll.Key) { s.post(func() { s.fdReady(k) }) })
	defer func() {
		if s.Files != nil {
			_ = s.Files.Close()
		}
	}()
	defer func() { _ = s.Descriptors.Close() }()
	alive := make(<-chan time.Time)
	if s.Alive != nil && s.AliveEvery > 0 {
		t := time.NewTicker(s.AliveEvery)
		defer t.Stop()
		alive = t.C
	}
	for {
		select {
		case f := <-s.door:
			s.turn(f)
		case <-alive:
			s.Alive()
		case <-ctx.Done():
			s.turn(s.shutDown)
			return
		}
	}
}

func (s *Supervisor) runFiles() {
	go s.Files.Run(func(e inotify.Event) { s.post(func() { s.fileEvent(e) }) })
}

// turn drains the door, applies what came, saves and publishes.
func (s *Supervisor) turn(f func()) {
	if s.Stirred != nil {
		s.Stirred()
	}
	f()
drain:
	for range doorSize {
		select {
		case f := <-s.door:
			f()
		default:
			break drain
		}
	}
	s.settle()
	s.tellProblems()
}

// touch marks a session as changed: settle looks at it at the end of the turn.
func (s *Supervisor) touch(e *entry) {
	if !e.dirty {
		e.dirty = true
		s.dirty = append(s.dirty, e)
	}
}

// apply changes a session's facts.
func (s *Supervisor) apply(e *entry, ev session.Event) {
	if e.rec.Apply(ev) {
		switch ev.(type) {
		case session.AgentExited:
			e.exited = !e.unsaved
		case session.Acknowledged: // nobody else has to know of it
		default:
			e.exited = false
		}
		e.unsaved = true
		s.unsure = s.unsure || s.sharing
	}
	s.touch(e)
}

// settle decides what follows from the changes of this turn, saves the sessions that changed, publishes, and only then has what was decided done: what an
// effect brings about is never told before what led to it.
func (s *Supervisor) settle() {
	if len(s.dirty) == 0 && len(s.after) == 0 {
		return
	}
	s.reactAll()
	s.save(s.dirty)
	s.giveUpUnsaved(s.dirty)
	changes := make([]Change, 0, len(s.dirty))
	for _, e := range s.dirty {
		e.dirty = false
		changes = append(changes, s.show(e)...)
	}
	dirty := s.dirty
	s.dirty = nil
	for _, e := range dirty {
		s.answer(e)
	}
	s.Publisher.Publish(changes, s.after)
	s.after = nil
	for _, e := range dirty {
		for _, held := range e.held {
			s.enqueue(e, held.do)
		}
		e.held = nil
	}
	s.saveExits(dirty)
	counts := slices.ContainsFunc(changes, Change.counts)
	if counts {
		s.tellStatus()
		s.tellLive()
	}
	if counts || s.rearm {
		s.armExpiry()
		s.rearm = false
	}
	if s.unitsUnsure {
		s.unitsUnsure = false
		s.lookAtUnitsSoon()
	}
}

// reactAll lets every session that was touched follow from its facts. What is decided may touch more of them.
func (s *Supervisor) reactAll() {
	done := 0
	for done < len(s.dirty) {
		if e := s.dirty[done]; !e.removed {
			s.endOutside(e)
			s.react(e)
			s.stamp(e)
		}
		done++
	}
}

// stamp notes what the state is, and since when. It follows from the facts, so it is no reason of its own to save before others are told.
func (s *Supervisor) stamp(e *entry) {
	v := e.rec.View()
	if e.rec.State == v.State && !e.rec.StateChanged.IsZero() {
		return
	}
	back := slices.Contains([]session.State{session.Running, session.Starting, session.Created}, v.State) && (e.rec.State == session.Stale || e.rec.State == session.Orphaned)
	e.rec.State, e.rec.StateChanged = v.State, v.Since
	if v.State == session.Running || back {
		e.rec.Unsee() // whatever it was, it is over
	}
	if v.Since.IsZero() || back {
		e.rec.StateChanged, e.exited = time.Now(), false
	}
	s.lookAtClock()
	e.rec.ChangedOn, e.rec.ChangedMonotonic = s.boot, s.Monotonic()
	e.unsaved = true
}

// show makes the snapshot that clients see from now on.
func (s *Supervisor) show(e *entry) []Change {
	old := e.shown
	if e.removed {
		e.shown = nil
		if old == nil {
			return nil
		}
		return []Change{{Old: old}}
	}
	e.shown = s.snapshot(e)
	s.showExpiry(old.expiry(), e.shown.Expires)
	before := string(e.adopted)
	if old != nil {
		before = old.State
	}
	if before != e.shown.State {
		s.logState(e, before)
	}
	return []Change{{Old: old, New: e.shown}}
}

// answer answers the calls that wait for what has come true. The answers leave after the signals.
func (s *Supervisor) answer(e *entry) {
	e.waiting = slices.DeleteFunc(e.waiting, func(w waiter) bool {
		if !w.ready(e) {
			return false
		}
		err := w.err(e)
		s.after = append(s.after, func() { w.reply <- err })
		return true
	})
}

// enqueue has f done by the session's goroutine, after what was enqueued before.
func (s *Supervisor) enqueue(e *entry, f func()) {
	e.queue = append(e.queue, f)
	s.work(e)
}

func (s *Supervisor) work(e *entry) {
	s.caughtUp(e)
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
			s.work(e)
		})
	}()
}

// effect has f done once what was decided in this turn is saved.
func (s *Supervisor) effect(e *entry, f func()) { s.hold(e, effect{do: f}) }

// startEffect is effect for what begins a run: it is not done where that cannot be saved.
func (s *Supervisor) startEffect(e *entry, f func()) { s.hold(e, effect{f, true}) }

// effect is something to be done outside of the loop.
type effect struct {
	do     func()
	starts bool
}

func (s *Supervisor) hold(e *entry, f effect) {
	e.held = append(e.held, f)
	s.touch(e)
}

// event returns from an effect: it applies ev if the session is still there.
func (s *Supervisor) event(e *entry, ev session.Event) {
	s.post(func() {
		if !e.removed {
			s.apply(e, ev)
		}
	})
}

// find returns the session with this id, or why there is none.
func (s *Supervisor) find(id string) (*entry, error) {
	if e := s.sessions[id]; e != nil && !e.removed {
		return e, nil
	}
	return nil, NoSession(id)
}

// add takes a session in.
func (s *Supervisor) add(e *entry) {
	s.sessions[e.rec.ID] = e
	s.units[UnitName(e.rec.Agent, e.rec.ID)] = e
	s.touch(e)
	if r := e.rec.Run; r.Live() && r.BootID == s.BootID || r == nil && e.adopted != "" && e.rec.Archived.IsZero() {
		s.watchWorkspace(e)
	}
}

// sorted returns the sessions by age, then id.
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

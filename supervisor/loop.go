package supervisor

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/internal/fdpoll"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/retention"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/sources"
	"github.com/corrald/corral/supervisor/workspaces"
)

// loop is the event loop. Other goroutines use only the fields that never change: mailbox, ctx,
// system, records, clocks, operations, and what of settings Reload does not replace; and the
// methods of adoption and expiry that permit it.
type loop struct {
	mailbox chan func()
	started bool            // run was called
	ctx     context.Context // canceled when the loop has ended
	cancel  context.CancelFunc

	system    System
	records   Records
	publisher Publisher
	log       *slog.Logger
	clocks    Clocks
	callbacks Callbacks
	settings  settings

	sessions  index
	iteration iteration
	calls     calls

	files       *sources.Files
	descriptors *sources.Descriptors
	shimMessage [shimwire.MaxMessage]byte // buffer for the message of a shim that is being read
	workspaces  *workspaces.Watcher
	resolver    *workspaces.Resolver

	problems   problemList
	status     status
	expiry     expiry
	adoption   adoption
	shutdown   shutdown
	operations operations
}

// iteration is what has to be done at the end of this iteration.
type iteration struct {
	dirty        []*entry // the sessions that have changed
	afterPublish []func() // called once the changes are published
}

// mailboxSize lets bursts through without a goroutine switch for each event.
const mailboxSize = 1024

func newLoop(o Options) *loop {
	ctx, cancel := context.WithCancel(context.Background())
	l := &loop{
		mailbox:   make(chan func(), mailboxSize),
		ctx:       ctx,
		cancel:    cancel,
		system:    o.System,
		records:   o.Records,
		publisher: o.Publisher,
		log:       o.Log,
		clocks:    o.Clocks,
		callbacks: o.Callbacks,
		settings: settings{
			config: o.Config, agents: o.Agents, version: o.Version, bootID: o.BootID,
			runDir: o.RuntimeDir, home: o.Home, confDir: o.ConfigHome, shareDir: o.ShareDir,
			sandboxDir: o.SandboxDir,
		},
		sessions:    index{byID: map[string]*entry{}, byUnit: map[string]*entry{}},
		calls:       calls{waiting: map[session.ReplyID]chan<- error{}},
		files:       sources.NewFiles(),
		descriptors: sources.NewDescriptors(o.Poller),
	}
	l.workspaces = workspaces.NewWatcher(l.files, l.post, l.workspaceObserved, l.problems.retries.recordWatchError)
	l.resolver = workspaces.NewResolver(o.System.ResolvePath, l.post, o.Clocks.AfterFunc)
	l.problems = problemList{
		loop: l, daemon: map[string]string{}, retries: retrier{loop: l, openWatchers: o.OpenWatchers},
	}
	// Until BeginQueued is called, no session leaves the queue.
	l.sessions.queue = startQueue{loop: l, placesOf: map[string]int{}, holds: 1}
	l.status.loop = l
	l.expiry = expiry{loop: l, clock: retention.NewClock(o.BootID), daemonStarted: o.Clocks.Monotonic()}
	l.adoption = adoption{loop: l, uncompared: map[*entry]bool{}}
	l.shutdown = shutdown{loop: l, suspended: map[string]string{}}
	l.operations = newOperations(l, o)
	l.expiry.checkClock()
	l.problems.retries.openFiles()
	return l
}

// post has f called on the event loop, and does not wait until f has run. It blocks while the
// mailbox is full; therefore the event loop itself does not call it, but any other goroutine may.
// After the loop has ended, it does nothing.
func (l *loop) post(f func()) {
	select {
	case l.mailbox <- f:
	case <-l.ctx.Done():
	}
}

// do has f called on the event loop and waits until f has returned. Any goroutine but the event
// loop may call it. Errors: ErrClosed.
func (l *loop) do(f func()) error {
	return l.try(func() error { f(); return nil })
}

// try is do for a function whose error it returns. Errors: ErrClosed, those of f.
func (l *loop) try(f func() error) error {
	result := make(chan error, 1)
	l.post(func() { result <- f() })
	return l.awaitReply(l.ctx, result)
}

// run is the event loop. It returns when ctx is done and everything was saved.
func (l *loop) run(ctx context.Context) error {
	defer l.cancel()
	l.started = true
	if l.files.Inotify() != nil {
		l.watchFiles()
	}
	go l.descriptors.Poller().Run(func(k fdpoll.Key) { l.post(func() { l.descriptors.Handle(k) }) })
	defer func() {
		_ = l.descriptors.Poller().Close()
		l.files.Close()
	}()
	alive := make(<-chan time.Time)
	if l.callbacks.KeepAlive != nil && l.callbacks.KeepAliveInterval > 0 {
		t := time.NewTicker(l.callbacks.KeepAliveInterval)
		defer t.Stop()
		alive = t.C
	}
	for {
		select {
		case f := <-l.mailbox:
			l.iterate(f)
		case <-alive:
			l.callbacks.KeepAlive()
		case <-ctx.Done():
			l.iterate(l.shutdown.run)
			return l.shutdown.unsaved()
		}
	}
}

// iterate calls f and then the functions in the mailbox, saves and publishes.
func (l *loop) iterate(f func()) {
	if l.callbacks.IterationBegins != nil {
		l.callbacks.IterationBegins()
	}
	f()
drain:
	for range mailboxSize {
		select {
		case f := <-l.mailbox:
			f()
		default:
			break drain
		}
	}
	l.finishIteration()
	l.problems.publish()
}

// finishIteration saves and publishes the changes of this iteration, and only then starts the
// effects that were decided: the result of an effect is never published before its cause. If the
// record of a session that is to start could not be saved, the start fails, in a further iteration.
func (l *loop) finishIteration() {
	l.iteration.dirty = slices.DeleteFunc(l.iteration.dirty, func(e *entry) bool {
		e.dirty = !e.isHeld()
		return !e.dirty
	})
	if len(l.iteration.dirty) == 0 && len(l.iteration.afterPublish) == 0 {
		return
	}
	l.processDirty()
	changes, changed := make([]Change, 0, len(l.iteration.dirty)), make([]*entry, 0, len(l.iteration.dirty))
	for _, e := range l.iteration.dirty {
		e.dirty = false
		if c, ok := e.replaceSnapshot(); ok {
			changes, changed = append(changes, c), append(changed, e)
		}
	}
	dirty := l.iteration.dirty
	l.iteration.dirty = nil
	publish := l.publisher.Prepare(changes)
	l.save(dirty)
	l.problems.publish()
	for _, e := range dirty {
		e.answerWaiters()
	}
	publish(l.iteration.afterPublish)
	l.iteration.afterPublish = nil
	unsavedStarts := l.startHeldEffects(dirty)
	for i, e := range changed {
		e.logState(changes[i])
	}
	l.saveExitsLater(dirty)
	counts := slices.ContainsFunc(changes, Change.affectsCounts)
	if counts {
		l.status.report()
	}
	l.expiry.iterationEnded(counts)
	for _, e := range unsavedStarts {
		l.sessions.queue.unsaved = e
		e.run.start.cancelCreation()
		e.run.start.returned(e.saving.err)
	}
	l.finishIteration()
}

// processDirty updates the watches and the recorded state of each changed session. This may change
// further sessions, which are processed as well, and so are those that leave the queue.
func (l *loop) processDirty() {
	done := 0
	for {
		for done < len(l.iteration.dirty) {
			l.process(l.iteration.dirty[done])
			done++
		}
		e := l.sessions.queue.beginNext()
		if e == nil {
			return
		}
		l.process(e) // it may have been processed before it began
	}
}

func (l *loop) process(e *entry) {
	if !e.removed {
		e.run.scope.applyDeferredEnd()
		e.updateWatches()
		e.recordState()
	}
	l.sessions.queue.update(e)
}

// index contains all sessions.
type index struct {
	byID   map[string]*entry
	byUnit map[string]*entry // by the name of the scope: no two sessions use the same name
	queue  startQueue
}

// add adds a session, and watches its workspace if its run is live, or if it was adopted without
// ever having run.
func (l *loop) add(e *entry) {
	l.sessions.byID[e.rec.ID] = e
	l.sessions.byUnit[scopeName(e.rec)] = e
	l.sessions.queue.update(e)
	e.markDirty()
	r := e.rec.Run
	adoptedUnused := r == nil && e.adoptedState != "" && e.rec.Archived.IsZero()
	if adoptedUnused || r.Live() && r.BootID == l.settings.bootID {
		e.watchWorkspace()
	}
}

// find returns the session with this id. Errors: NoSuchSession.
func (x *index) find(id string) (*entry, error) {
	if e := x.byID[id]; e != nil {
		return e, nil
	}
	return nil, NoSession(id)
}

// findByUnit returns the session whose live run has this scope, nil if there is none.
func (x *index) findByUnit(unit string) *entry {
	if e := x.byUnit[unit]; e != nil && e.rec.Run.Live() {
		return e
	}
	return nil
}

// contains reports whether matches returns true for any session.
func (x *index) contains(matches func(*entry) bool) bool {
	for _, e := range x.byID {
		if matches(e) {
			return true
		}
	}
	return false
}

// sorted returns all sessions, sorted by time of creation and id.
func (x *index) sorted() []*entry {
	return slices.SortedFunc(maps.Values(x.byID), func(a, b *entry) int {
		return cmp.Or(a.rec.Created.Compare(b.rec.Created), strings.Compare(a.rec.ID, b.rec.ID))
	})
}

// timeOf returns the time of the wall clock for a time of CLOCK_MONOTONIC.
func (l *loop) timeOf(monotonic time.Duration) time.Time {
	return time.Now().Add(monotonic - l.clocks.Monotonic())
}

func (l *loop) momentOf(monotonic time.Duration) session.Moment {
	return session.Moment{At: l.timeOf(monotonic), Monotonic: monotonic}
}

func (l *loop) now() session.Moment {
	return session.Moment{At: time.Now(), Monotonic: l.clocks.Monotonic()}
}

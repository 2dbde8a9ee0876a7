package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/fdpoll"
	"github.com/corrald/corral/internal/inotify"
	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/sources"
)

// bed is a supervisor in a bubble of fake time whose effects all succeed, unless a test specifies
// otherwise. Whatever the event loop does outside of itself is appended to lines, in order, with
// the seconds that have passed.
type bed struct {
	t           *testing.T
	options     Options
	sup         *Supervisor
	system      *fakeSystem
	records     *records
	files       *files
	paths       *paths
	fds         *descriptors
	log         *lockedBuffer
	home        string
	begin       time.Time
	clockOffset time.Duration // by how much the clock was set: forward, or back if it is negative
	slept       time.Duration // how long the machine was asleep

	mu    sync.Mutex
	lines []string
}

// supervise runs f with a supervisor whose event loop runs, and ends it afterwards.
func supervise(t *testing.T, f func(b *bed)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		ctx, cancel := context.WithCancel(t.Context())
		go b.run(ctx)
		f(b)
		cancel()
		synctest.Wait()
		assert.ErrorIs(t, b.sup.loop.do(func() {}), ErrClosed)
	})
}

// run runs the event loop until ctx is done. Everything has to be saved then, unless saves fail.
func (b *bed) run(ctx context.Context) {
	if err := b.sup.Run(ctx); b.records.fails == nil {
		assert.NoError(b.t, err)
	}
}

// runInBackground is run on another goroutine. It returns a channel that is closed once the event
// loop has ended.
func (b *bed) runInBackground(ctx context.Context) <-chan struct{} {
	done := make(chan struct{})
	go func() { defer close(done); b.run(ctx) }()
	return done
}

// isClosed returns whether the channel is closed once all goroutines wait.
func isClosed(done <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// newBed returns a bed whose event loop is not running yet.
func newBed(t *testing.T) *bed {
	b := &bed{t: t, home: t.TempDir(), begin: time.Now(), log: &lockedBuffer{}}
	b.system = &fakeSystem{bed: b, populated: true}
	b.records = &records{bed: b, dir: filepath.Join(b.home, "state"), saved: map[string]*session.Session{}}
	b.files = &files{
		events: make(chan inotify.Event), closed: make(chan struct{}), paths: map[string]int32{}, live: map[int32]bool{},
	}
	b.paths = &paths{
		files: b.files, changed: make(chan fsnotify.Event), lost: make(chan struct{}),
		closed: make(chan struct{}), watched: map[string]bool{},
	}
	b.fds = &descriptors{ready: make(chan fdpoll.Key), closed: make(chan struct{}), keys: map[int]fdpoll.Key{}}
	b.options = Options{
		Config: config.Default(),
		Agents: map[string]config.Agent{
			"command": {Name: "command"},
			"claude":  {Name: "claude", Command: []string{"claude"}},
		},
		Records: b.records, System: b.system.system(), Publisher: b, Poller: b.fds,
		OpenWatchers: func() (sources.Inotify, sources.Notifier, error) { return b.files, b.paths, nil },

		Log:     slog.New(slog.NewTextHandler(b.log, nil)),
		Version: "test", BootID: "boot", RuntimeDir: filepath.Join(b.home, "run"), Home: b.home,
		Clocks: Clocks{
			SinceBoot: func() time.Duration { return time.Hour + time.Since(b.begin) - b.clockOffset },
			Monotonic: func() time.Duration { return time.Hour + time.Since(b.begin) - b.clockOffset - b.slept },
			AfterFunc: func(after time.Duration, f func()) deadline.Stopper { return time.AfterFunc(after, f) },
		},
	}
	b.sup = New(b.options)
	return b
}

// trace appends a line about something that has left the event loop.
func (b *bed) trace(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, fmt.Sprintf("%gs ", time.Since(b.begin).Seconds())+fmt.Sprintf(format, args...))
}

// takeTrace waits until every goroutine is blocked, and returns the lines since the last call.
func (b *bed) takeTrace() []string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	trace := b.lines
	b.lines = nil
	return trace
}

// Prepare implements Publisher. The answers to calls are traced, too.
func (b *bed) Prepare(changes []Change) (publish func(after []func())) {
	return func(after []func()) { b.publish(changes, after) }
}

func (b *bed) publish(changes []Change, after []func()) {
	var texts []string
	for _, c := range changes {
		switch {
		case c.Old == nil:
			texts = append(texts, c.New.ID+": new, "+c.New.State)
		case c.New == nil:
			texts = append(texts, c.Old.ID+": removed")
		case c.Old.State == c.New.State:
			texts = append(texts, c.New.ID+": "+c.New.State)
		default:
			texts = append(texts, c.New.ID+": "+c.Old.State+" -> "+c.New.State)
		}
	}
	slices.Sort(texts)
	if len(texts) > 3 {
		texts = []string{fmt.Sprint(len(texts), " changes")}
	}
	if len(texts) > 0 {
		b.trace("publish %s", strings.Join(texts, ", "))
	}
	if len(after) > 0 {
		b.trace("answer %d", len(after))
	}
	for _, f := range after {
		f()
	}
}

// PublishProblems implements Publisher.
func (b *bed) PublishProblems(all []Problem) {
	b.trace("problems %d", len(all))
	for _, p := range all {
		b.trace("problem %s: %s", p.Session, p.Text)
	}
}

// start creates a running session.
func (b *bed) start(id string) {
	b.t.Helper()
	got, err := b.sup.Create(b.t.Context(), "command", Spec{ID: id, Command: []string{"true"}})
	require.NoError(b.t, err)
	require.Equal(b.t, id, got)
	b.takeTrace()
}

// exit has the session's shim record the exit of the agent, and inotify report it. It returns when
// the event loop has processed that: what a test does next comes after it, although the clock of
// the bubble stands still.
func (b *bed) exit(id string, code int) {
	b.t.Helper()
	b.exitWithoutEvent(id, code)
	b.changed(id, exitstatus.FileName, fsnotify.Create)
	synctest.Wait()
}

// exitAfterSIGTERM is exit for an agent whose shim got SIGTERM a millisecond earlier, too.
func (b *bed) exitAfterSIGTERM(id string, code int) {
	b.t.Helper()
	rec := b.records.last(id)
	now := b.sup.loop.clocks.Monotonic()
	b.writeExitStatus(rec, exitstatus.Status{
		RunID: rec.Run.ID, Code: exitstatus.Exited, Value: code, PID: 12, Started: rec.Run.Started,
		Exited: time.Now(), ExitedMonotonic: now, SIGTERMMonotonic: now - time.Millisecond,
	})
	b.changed(id, exitstatus.FileName, fsnotify.Create)
	synctest.Wait()
}

// changed has the event loop notified of a change in the session's runtime directory.
func (b *bed) changed(id, name string, op fsnotify.Op) {
	b.paths.changed <- fsnotify.Event{Name: filepath.Join(b.sup.loop.settings.runtimeDir(id), name), Op: op}
}

// changedControlGroup has the event loop notified of a change of the file of b.system.EventsFile.
func (b *bed) changedControlGroup() {
	b.paths.changed <- fsnotify.Event{Name: b.system.EventsFile(""), Op: fsnotify.Write}
}

func (b *bed) writeExitStatus(rec *session.Session, status exitstatus.Status) {
	b.t.Helper()
	require.NoError(b.t, exitstatus.Write(b.records.SessionDir(rec.ID), status))
}

// exitWithoutEvent does the same without an event of inotify.
func (b *bed) exitWithoutEvent(id string, code int) {
	b.t.Helper()
	rec := b.records.last(id)
	b.writeExitStatus(rec, exitstatus.Status{
		RunID: rec.Run.ID, Code: exitstatus.Exited, Value: code, PID: 12,
		Started: rec.Run.Started, Exited: time.Now(), ExitedMonotonic: b.sup.loop.clocks.Monotonic(),
	})
}

// endScope has systemd report that the session's scope is gone.
func (b *bed) endScope(id string) { b.sup.ScopeEnded(unitname.Scope("command", id), "", "success") }

// state returns the state that clients are shown.
func (b *bed) state(id string) string {
	b.t.Helper()
	synctest.Wait()
	snap, err := b.sup.Session(id)
	require.NoError(b.t, err)
	return snap.State
}

// call makes a call on a goroutine of its own and traces its answer. It returns once every
// goroutine is blocked: the call has been answered, or waits for something.
func (b *bed) call(name string, f func(ctx context.Context) error) {
	go func() {
		if err := f(b.t.Context()); err != nil {
			b.trace("%s: %v", name, err)
		} else {
			b.trace("%s: ok", name)
		}
	}()
	synctest.Wait()
}

// records is a Records that traces what it is given, and keeps the sessions in memory.
type records struct {
	*bed
	dir   string
	fails func(id string) error // returns the error of Save, SyncExit and KeepExit; nil: there is none

	lock  sync.Mutex
	saved map[string]*session.Session // by id, as last saved
}

func (r *records) SessionDir(id string) string { return filepath.Join(r.dir, id) }
func (r *records) Create(id string) error      { return os.MkdirAll(r.SessionDir(id), 0o700) }

func (r *records) SyncExit(id string) error {
	if r.fails != nil {
		if err := r.fails(id); err != nil {
			r.trace("cannot sync the exit of %s", id)
			return err
		}
	}
	r.trace("sync the exit of %s", id)
	return nil
}

func (r *records) KeepExit(id string, _ exitstatus.Status) error {
	if r.fails != nil {
		if err := r.fails(id); err != nil {
			return err
		}
	}
	r.trace("keep the exit of %s", id)
	return nil
}

func (r *records) Save(rec *session.Session, _ string) error {
	state := rec.View().State
	if r.fails != nil {
		if err := r.fails(rec.ID); err != nil {
			r.trace("cannot save %s: %s", rec.ID, state)
			return err
		}
	}
	r.trace("save %s: %s", rec.ID, state)
	r.lock.Lock()
	defer r.lock.Unlock()
	r.saved[rec.ID] = copied(rec)
	return nil
}

// copied returns the session as it is read again from its record.
func copied(rec *session.Session) *session.Session {
	data, err := json.Marshal(rec)
	saved := new(session.Session)
	if err = errors.Join(err, json.Unmarshal(data, saved)); err != nil {
		panic(err)
	}
	return saved
}

func (r *records) last(id string) *session.Session {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.saved[id]
}

func (r *records) Remove(id string) error {
	r.trace("remove %s", id)
	return os.RemoveAll(r.SessionDir(id))
}

// files is a sources.Inotify whose events come from tests.
type files struct {
	fails func(path string) error // returns the error of Add; nil: there is none

	events chan inotify.Event
	closed chan struct{}

	mu    sync.Mutex
	paths map[string]int32 // the watch of each path that was ever added
	live  map[int32]bool   // watches that were added and not removed
}

func (f *files) Add(path string, _ uint32) (int32, error) {
	if _, err := os.Stat(path); err != nil {
		return -1, err
	}
	if f.fails != nil {
		if err := f.fails(path); err != nil {
			return -1, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.paths[path] == 0 {
		f.paths[path] = int32(len(f.paths) + 1)
	}
	f.live[f.paths[path]] = true
	return f.paths[path], nil
}

func (f *files) Remove(watch int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.live, watch)
}

// isWatched reports whether dir, or anything below it, is watched.
func (f *files) isWatched(dir string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for path, watch := range f.paths {
		if f.live[watch] && strings.HasPrefix(path+"/", dir+"/") {
			return true
		}
	}
	return false
}

func (f *files) Close() error { close(f.closed); return nil }

func (f *files) Run(report func(inotify.Event)) {
	for {
		select {
		case e := <-f.events:
			report(e)
		case <-f.closed:
			return
		}
	}
}

// notify sends an event about a name in a directory that was watched at some time, or, without a
// name, about the directory itself.
func (f *files) notify(dir, name string, mask uint32) {
	f.mu.Lock()
	watch := f.paths[dir]
	f.mu.Unlock()
	f.events <- inotify.Event{Watch: watch, Mask: mask, Name: name}
}

// paths is a sources.Notifier whose events come from tests.
type paths struct {
	files   *files // whose fails it uses
	changed chan fsnotify.Event
	lost    chan struct{}
	closed  chan struct{}
	watched map[string]bool // used by the event loop only
}

func (p *paths) Add(path string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	if p.files.fails != nil {
		if err := p.files.fails(path); err != nil {
			return err
		}
	}
	p.watched[path] = true
	return nil
}

func (p *paths) Remove(path string) error { delete(p.watched, path); return nil }

func (p *paths) Close() error { close(p.closed); return nil }

func (p *paths) Run(changed func(fsnotify.Event), lost func()) {
	for {
		select {
		case ev := <-p.changed:
			changed(ev)
		case <-p.lost:
			lost()
		case <-p.closed:
			return
		}
	}
}

// descriptors is a sources.Poller whose events come from tests.
type descriptors struct {
	ready  chan fdpoll.Key
	closed chan struct{}

	mu   sync.Mutex
	keys map[int]fdpoll.Key
}

func (d *descriptors) Add(fd int, key fdpoll.Key) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keys[fd] = key
	return nil
}

func (d *descriptors) Rearm(fd int, key fdpoll.Key) error { return d.Add(fd, key) }

func (d *descriptors) Remove(fd int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.keys, fd)
	return nil
}

func (d *descriptors) Close() error { close(d.closed); return nil }

func (d *descriptors) Run(report func(fdpoll.Key)) {
	for {
		select {
		case k := <-d.ready:
			report(k)
		case <-d.closed:
			return
		}
	}
}

// allReady reports every descriptor as ready.
func (d *descriptors) allReady() {
	d.mu.Lock()
	keys := slices.Collect(maps.Values(d.keys))
	d.mu.Unlock()
	for _, k := range keys {
		d.ready <- k
	}
}

// lockedBuffer is a buffer that several goroutines write to and read.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

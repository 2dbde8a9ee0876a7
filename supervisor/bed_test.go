package supervisor

import (
	"bytes"
	"context"
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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/fdpoll"
	"github.com/corrald/corral/internal/inotify"
	"github.com/corrald/corral/supervisor/session"
)

// bed is a supervisor in a bubble of fake time, with a world in which everything goes well unless a test says otherwise. Everything that leaves
// the loop is written down, in order, with the seconds that have gone by.
type bed struct {
	t       *testing.T
	sup     *Supervisor
	world   *world
	records *records
	files   *files
	fds     *descriptors
	log     *lockedBuffer
	home    string
	begin   time.Time
	set     time.Duration // by how much the clock was set, forward or back
	slept   time.Duration // how long the machine was asleep

	mu   sync.Mutex
	told []string
}

// supervise runs f with a supervisor whose loop runs, and ends it afterwards.
func supervise(t *testing.T, f func(b *bed)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		ctx, cancel := context.WithCancel(t.Context())
		go b.sup.Run(ctx)
		f(b)
		cancel()
		synctest.Wait()
		assert.ErrorIs(t, b.sup.do(func() {}), ErrClosed)
	})
}

func newBed(t *testing.T) *bed {
	b := &bed{t: t, home: t.TempDir(), begin: time.Now(), log: &lockedBuffer{}}
	b.world = &world{bed: b, populated: true}
	b.records = &records{bed: b, dir: filepath.Join(b.home, "state"), saved: map[string]*session.Session{}}
	b.files = &files{events: make(chan inotify.Event), closed: make(chan struct{}), paths: map[string]int32{}}
	b.fds = &descriptors{ready: make(chan fdpoll.Key), closed: make(chan struct{}), keys: map[int]fdpoll.Key{}}
	b.sup = New(Options{
		Config: config.Default(),
		Agents: map[string]config.Agent{
			"command": {Name: "command"},
			"claude":  {Name: "claude", Command: []string{"claude"}},
		},
		Records: b.records, World: b.world, Publisher: b, Files: b.files, Descriptors: b.fds,
		Log: slog.New(slog.NewTextHandler(b.log, nil)), Version: "test", BootID: "boot", RuntimeDir: filepath.Join(b.home, "run"), Home: b.home,
		SinceBoot: func() time.Duration { return time.Hour + time.Since(b.begin) - b.set },
		Monotonic: func() time.Duration { return time.Hour + time.Since(b.begin) - b.set - b.slept },
		AfterFunc: func(after time.Duration, f func()) deadline.Stopper { return time.AfterFunc(after, f) },
	})
	return b
}

// tell writes down what has left the loop.
func (b *bed) tell(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, fmt.Sprintf("%gs ", time.Since(b.begin).Seconds())+fmt.Sprintf(format, args...))
}

// heard returns what was written down since it was last asked for, once everything has come to rest.
func (b *bed) heard() []string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	told := b.told
	b.told = nil
	return told
}

// Publish implements Publisher. The answers to calls are written down too.
func (b *bed) Publish(changes []Change, after []func()) {
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
		b.tell("publish %s", strings.Join(texts, ", "))
	}
	if len(after) > 0 {
		b.tell("answer %d", len(after))
	}
	for _, f := range after {
		f()
	}
}

// PublishProblems implements Publisher.
func (b *bed) PublishProblems(all []Problem) {
	b.tell("problems %d", len(all))
	for _, p := range all {
		b.tell("problem %s: %s", p.Session, p.Text)
	}
}

// start creates a session that runs.
func (b *bed) start(id string) {
	b.t.Helper()
	got, err := b.sup.Create(b.t.Context(), "command", Spec{ID: id, Command: []string{"true"}})
	require.NoError(b.t, err)
	require.Equal(b.t, id, got)
	b.heard()
}

// exit has the session's shim record that the agent ended, and inotify tell of it. It returns when that has been taken in: what a test does next comes after
// it, as it reads, although the clock of the bubble stands still.
func (b *bed) exit(id string, code int) {
	b.t.Helper()
	b.exitUnseen(id, code)
	b.files.tell(b.records.SessionDir(id), exitstatus.FileName, unix.IN_MOVED_TO)
	synctest.Wait()
}

func (b *bed) record(rec *session.Session, status exitstatus.Status) {
	b.t.Helper()
	pending, err := exitstatus.Prepare(b.records.SessionDir(rec.ID))
	require.NoError(b.t, err)
	require.NoError(b.t, pending.Write(status))
}

// exitUnseen is exit where inotify does not tell of it.
func (b *bed) exitUnseen(id string, code int) {
	b.t.Helper()
	rec := b.records.last(id)
	b.record(rec, exitstatus.Status{RunID: rec.Run.ID, Code: exitstatus.Exited, Value: code, PID: 12, Started: rec.Run.Started, Exited: time.Now(), ExitedMonotonic: b.sup.Monotonic()})
}

// empty has systemd tell that the session's scope is gone.
func (b *bed) empty(id string) { b.sup.ScopeEnded(UnitName("command", id), "", "success") }

// state returns what clients are shown.
func (b *bed) state(id string) string {
	b.t.Helper()
	synctest.Wait()
	snap, err := b.sup.Session(id)
	require.NoError(b.t, err)
	return snap.State
}

// call makes a call on a goroutine of its own and records its answer. It returns once everything
// is at rest: the call has been answered, or waits for something.
func (b *bed) call(name string, f func(ctx context.Context) error) {
	go func() {
		if err := f(b.t.Context()); err != nil {
			b.tell("%s: %v", name, err)
		} else {
			b.tell("%s: ok", name)
		}
	}()
	synctest.Wait()
}

// records is a Records that writes down what it is given.
type records struct {
	*bed
	dir   string
	fails func(id string) error

	lock  sync.Mutex
	saved map[string]*session.Session
}

func (r *records) SessionDir(id string) string { return filepath.Join(r.dir, id) }
func (r *records) Create(id string) error      { return os.MkdirAll(r.SessionDir(id), 0o700) }

func (r *records) SyncExit(id string) error {
	if r.fails != nil {
		if err := r.fails(id); err != nil {
			r.tell("cannot sync the exit of %s", id)
			return err
		}
	}
	r.tell("sync the exit of %s", id)
	return nil
}

func (r *records) KeepExit(id string, _ exitstatus.Status) error {
	if r.fails != nil {
		if err := r.fails(id); err != nil {
			return err
		}
	}
	r.tell("keep the exit of %s", id)
	return nil
}

func (r *records) Save(rec *session.Session, _ string) error {
	state := rec.View().State
	if r.fails != nil {
		if err := r.fails(rec.ID); err != nil {
			r.tell("cannot save %s: %s", rec.ID, state)
			return err
		}
	}
	r.tell("save %s: %s", rec.ID, state)
	r.lock.Lock()
	defer r.lock.Unlock()
	r.saved[rec.ID] = rec.Clone()
	return nil
}

func (r *records) last(id string) *session.Session {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.saved[id]
}

func (r *records) Remove(id string) error {
	r.tell("forget %s", id)
	return os.RemoveAll(r.SessionDir(id))
}

// files is a Files to which tests tell what happens.
type files struct {
	fails func(path string) error // of Add

	events chan inotify.Event
	closed chan struct{}

	mu    sync.Mutex
	paths map[string]int32
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
	return f.paths[path], nil
}

func (f *files) Remove(int32) {}
func (f *files) Close() error { close(f.closed); return nil }

func (f *files) Run(tell func(inotify.Event)) {
	for {
		select {
		case e := <-f.events:
			tell(e)
		case <-f.closed:
			return
		}
	}
}

// tell tells that something happened to a name in a directory that was watched at some time, or to the directory itself.
func (f *files) tell(dir, name string, mask uint32) {
	f.mu.Lock()
	watch := f.paths[dir]
	f.mu.Unlock()
	f.events <- inotify.Event{Watch: watch, Mask: mask, Name: name}
}

// descriptors is a Descriptors to which tests tell what is ready.
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

func (d *descriptors) Run(tell func(fdpoll.Key)) {
	for {
		select {
		case k := <-d.ready:
			tell(k)
		case <-d.closed:
			return
		}
	}
}

// all tells that every descriptor there is is ready.
func (d *descriptors) all() {
	d.mu.Lock()
	keys := slices.Collect(maps.Values(d.keys))
	d.mu.Unlock()
	for _, k := range keys {
		d.ready <- k
	}
}

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

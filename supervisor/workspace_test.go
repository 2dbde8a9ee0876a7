package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/inotify"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor/session"
)

// mute has a directory, and all that is below it, answer nobody until the returned function is called: a network's file system whose server is away.
func (b *bed) mute(dir string) (answer func()) {
	away := make(chan struct{})
	wait := func(path string) {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			<-away
		}
	}
	b.meanwhile(func() {
		b.files.fails = func(path string) error { wait(path); return nil }
		b.world.follow = wait
	})
	return func() { close(away) }
}

func (b *bed) startIn(id, dir string, exclusive bool) {
	b.t.Helper()
	_, err := b.sup.Create(b.t.Context(), "command", Spec{ID: id, Command: []string{"true"}, WorkingDirectory: dir, Exclusive: exclusive})
	require.NoError(b.t, err)
	b.heard()
}

// TestAWorkspaceThatDoesNotAnswer keeps nobody waiting but who wants to begin there, and them not for long.
func TestAWorkspaceThatDoesNotAnswer(t *testing.T) {
	supervise(t, func(b *bed) {
		dead := t.TempDir()
		b.startIn("dead", dead, false)
		b.startIn("alone", dead, true)
		b.start("other")
		answer := b.mute(dead)
		b.sup.MountsChanged()
		for range 3 { // as often as a file system comes or goes
			b.sup.MountsChanged()
			b.files.events <- inotify.Event{Watch: -1, Mask: unix.IN_Q_OVERFLOW}
		}
		b.exit("other", 3)
		assert.Equal(t, "failed", b.state("other"), "the loop goes on")
		assert.Equal(t, "running", b.state("dead"), "as far as anybody knows")
		b.heard()

		b.call("restart", func(ctx context.Context) error { return b.sup.Restart(ctx, "dead") })
		b.exit("dead", 143)
		b.empty("dead")
		assert.Equal(t, "starting", b.state("dead"))
		b.rests(followTime)
		why := `cannot start "dead": workspace "` + dead + `" does not answer`
		told := b.heard()
		assert.Equal(t, "5s restart: "+why, told[len(told)-1])
		assert.NotContains(t, told, "0s start dead", "nothing of it was begun, which nobody could end")
		assert.Equal(t, "failed", b.state("dead"))

		b.exit("alone", 0)
		b.empty("alone")
		b.heard()
		b.call("start", func(ctx context.Context) error { return b.sup.Start(ctx, "alone") })
		b.rests(followTime)
		assert.Equal(t, []string{`10s start: workspace "` + dead + `" does not answer`}, b.heard())
		for _, id := range []string{"dead", "alone"} {
			require.NoError(t, b.sup.Remove(b.t.Context(), id, true))
		}
		b.start("another")
		answer()
		synctest.Wait()
		b.meanwhile(func() { assert.Len(t, b.sup.places, 1, "what is not used any more is not watched") })
	})
}

// TestAWorkspaceThatDoesNotAnswerAtTheStart of the daemon: it is waited for once, with all the others.
func TestAWorkspaceThatDoesNotAnswerAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		dead, gone := t.TempDir(), filepath.Join(t.TempDir(), "gone")
		away := make(chan struct{})
		b.files.fails = func(path string) error {
			if path == dead {
				<-away
			}
			return nil
		}
		var saved []*session.Session
		for id, dir := range map[string]string{"dead": dead, "orphan": gone, "shop": b.home} {
			rec := &session.Session{ID: id, Agent: "command", WorkingDirectory: dir, Workspace: dir, Created: time.Now()}
			rec.Apply(session.RunAsked{Run: "run-" + id, BootID: "boot", Unit: UnitName("command", id), At: time.Now()})
			require.NoError(t, runs(Plan{Unit: rec.Run.Unit, Spec: shimwire.Spec{RunID: rec.Run.ID}}, func(ev session.Event) { rec.Apply(ev) }))
			require.NoError(t, b.records.Create(id))
			require.NoError(t, os.MkdirAll(b.sup.runtimeDir(id), 0o700))
			fd, err := listen(filepath.Join(b.sup.runtimeDir(id), shimSocket))
			require.NoError(t, err)
			defer func() { _ = unix.Close(fd) }()
			b.world.scopes = append(b.world.scopes, Scope{Name: rec.Run.Unit, InvocationID: "inv", ControlGroup: "/" + rec.Run.Unit, Active: true})
			saved = append(saved, rec)
		}
		require.NoError(t, b.sup.Adopt(t.Context(), saved))
		assert.Equal(t, firstLook, time.Since(b.begin))
		assert.Equal(t, "orphaned", b.sup.sessions["orphan"].shown.State, "which is known before anybody is told of it")
		ctx, cancel := context.WithCancel(t.Context())
		go b.sup.Run(ctx)
		close(away)
		cancel()
		synctest.Wait()
	})
}

// TestAnExclusiveWorkspaceIsADirectory, by whatever path it is reached, and wherever it was moved to under its session.
func TestAnExclusiveWorkspaceIsADirectory(t *testing.T) {
	supervise(t, func(b *bed) {
		dir := t.TempDir()
		first, second, current := filepath.Join(dir, "first"), filepath.Join(dir, "second"), filepath.Join(dir, "current")
		for _, work := range []string{first, second} {
			require.NoError(t, os.Mkdir(work, 0o700))
		}
		lead := func(to string) {
			t.Helper()
			_ = os.Remove(current)
			require.NoError(t, os.Symlink(to, current))
		}
		busy := func(by string, err error) {
			t.Helper()
			assert.Equal(t, WorkspaceBusy, kindOf(err))
			assert.ErrorContains(t, err, by)
		}
		create := func(id, dir string) error {
			_, err := b.sup.Create(b.t.Context(), "command", Spec{ID: id, Command: []string{"true"}, WorkingDirectory: dir, Exclusive: true})
			return err
		}
		lead(first)
		require.NoError(t, create("shop", current))
		require.NoError(t, create("other", second))
		lead(second)
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
		defer cancel()
		busy("other", b.sup.Restart(ctx, "shop"))
		require.NoError(t, b.sup.Describe(b.t.Context(), "shop", "as it was")) // and is not stopped for that
		assert.NotEqual(t, "stopping", b.state("shop"))

		b.exit("other", 0)
		b.empty("other")
		b.call("restart", func(ctx context.Context) error { return b.sup.Restart(ctx, "shop") })
		assert.Equal(t, "stopping", b.state("shop"))
		busy("shop", b.sup.Start(b.t.Context(), "other"))
		busy("shop", create("third", first))
		b.exit("shop", 143)
		b.empty("shop")
		assert.Equal(t, "running", b.state("shop"))
		busy("shop", b.sup.Start(b.t.Context(), "other"))
		require.NoError(t, create("third", first))

		require.NoError(t, os.Rename(second, second+".moved"))
		busy("shop", create("fourth", second+".moved"))
	})
}

// TestWorkspace_OrphansASessionThatNeverRan, and one that begins; who sees it has seen it until the workspace comes back.
func TestWorkspace_OrphansASessionThatNeverRan(t *testing.T) {
	supervise(t, func(b *bed) {
		work := filepath.Join(t.TempDir(), "work")
		vanish := func() {
			require.NoError(t, os.Remove(work))
			b.files.tell(work, "", unix.IN_DELETE_SELF)
		}
		comeBack := func() {
			require.NoError(t, os.Mkdir(work, 0o700))
			b.files.tell(filepath.Dir(work), "work", unix.IN_CREATE)
		}
		require.NoError(t, os.Mkdir(work, 0o700))
		for _, id := range []string{"shop", "kept"} {
			_, err := b.sup.Create(b.t.Context(), "command", Spec{ID: id, Command: []string{"true"}, WorkingDirectory: work, NoStart: true})
			require.NoError(t, err)
		}
		for range 2 {
			vanish()
			synctest.Wait()
			snap, err := b.sup.Session("shop")
			require.NoError(t, err)
			assert.Equal(t, []string{"orphaned", "error", "orphaned"}, []string{snap.State, snap.Lifecycle, snap.Attention})
			require.NoError(t, b.sup.Acknowledge(b.t.Context(), "shop"))
			snap, err = b.sup.Session("shop")
			require.NoError(t, err)
			assert.Empty(t, snap.Attention)
			comeBack()
			assert.Equal(t, "created", b.state("shop"))
		}
		b.world.start = func(p Plan, tell func(session.Event)) error { scopeRuns(p, tell); return nil }
		b.call("start", func(ctx context.Context) error { return b.sup.Start(ctx, "shop") })
		assert.Equal(t, "starting", b.state("shop"))
		vanish()
		assert.Equal(t, "orphaned", b.state("shop"))
		assert.NotContains(t, strings.Join(b.heard(), "\n"), "start: ", "it has not started")
		comeBack()
		assert.Equal(t, "starting", b.state("shop"))
		vanish()
		require.NoError(t, b.sup.Archive(b.t.Context(), "kept"))
		comeBack()
		assert.Equal(t, "archived", b.state("kept"))
	})
}

// TestWorkspace_IsWatchedUntilTheRunHasEnded: before the first run, and while one lives. What becomes of the others is nothing to their sessions, and would wake us.
func TestWorkspace_IsWatchedUntilTheRunHasEnded(t *testing.T) {
	supervise(t, func(b *bed) {
		watched := func() (places, paths int) {
			b.meanwhile(func() { places, paths = len(b.sup.places), len(b.sup.paths) })
			return places, paths
		}
		work := filepath.Join(t.TempDir(), "work")
		require.NoError(t, os.Mkdir(work, 0o700))
		_, err := b.sup.Create(b.t.Context(), "command", Spec{ID: "shop", Command: []string{"true"}, WorkingDirectory: work, NoStart: true})
		require.NoError(t, err)
		places, paths := watched()
		assert.Equal(t, 1, places, "never started")
		assert.NotZero(t, paths)
		for range 2 {
			require.NoError(t, b.sup.Start(b.t.Context(), "shop"))
			places, paths := watched()
			assert.Equal(t, 1, places)
			assert.NotZero(t, paths)
			require.NoError(t, os.Remove(work))
			b.files.tell(work, "", unix.IN_DELETE_SELF)
			assert.Equal(t, "orphaned", b.state("shop"))
			b.exit("shop", 0)
			assert.Equal(t, "completed", b.state("shop"))
			places, _ = watched()
			assert.Equal(t, 1, places, "something of it may be left in its scope")
			b.empty("shop")
			places, paths = watched()
			assert.Zero(t, places)
			assert.Zero(t, paths)
			require.NoError(t, os.Mkdir(work, 0o700))
		}
		require.NoError(t, b.sup.Start(b.t.Context(), "shop"))
		assert.Equal(t, "running", b.state("shop"), "another run is not an orphan of the one before it")
	})
}

// TestWhatIsToldDuringALook is looked at by another one.
func TestWhatIsToldDuringALook(t *testing.T) {
	supervise(t, func(b *bed) {
		work := t.TempDir()
		b.startIn("shop", work, false)
		looks := 0
		b.meanwhile(func() {
			b.files.fails = func(path string) error {
				if path == work {
					looks++
				}
				return nil
			}
			for _, p := range b.sup.places {
				b.sup.look(p)
			}
		})
		synctest.Wait()
		assert.Equal(t, 1, looks)
		watch := b.files.paths[work]
		b.meanwhile(func() {
			for _, p := range b.sup.places {
				b.sup.look(p)
			}
			b.sup.fileEvent(inotify.Event{Watch: watch, Mask: unix.IN_CREATE, Name: "x"}) // nobody has asked for it yet, as far as the loop knows
			b.sup.fileEvent(inotify.Event{Watch: watch + 1000, Mask: unix.IN_CREATE, Name: "x"})
		})
		synctest.Wait()
		assert.Equal(t, 3, looks)
		b.meanwhile(func() { assert.Empty(t, b.sup.stirred) })
	})
}

// TestTheOlderOneGetsTheWorkspace where all are resumed, however long it takes to find out where it is.
func TestTheOlderOneGetsTheWorkspace(t *testing.T) {
	supervise(t, func(b *bed) {
		dir := t.TempDir()
		for _, id := range []string{"older", "younger"} {
			b.startIn(id, dir, true)
			b.call("suspend", func(ctx context.Context) error { return b.sup.Suspend(ctx, id) })
			b.exit(id, 0)
			b.empty(id)
			<-time.After(time.Second)
		}
		looks := 0
		b.meanwhile(func() {
			b.world.follow = func(string) {
				if looks++; looks == 1 {
					<-time.After(500 * time.Millisecond)
				}
			}
		})
		b.call("resume all", func(ctx context.Context) error {
			ids, err := b.sup.ResumeAll(ctx)
			assert.Equal(t, []string{"older"}, ids)
			return err
		})
		<-time.After(time.Second)
		assert.Contains(t, b.heard(), "2.5s resume all: ok")
	})
}

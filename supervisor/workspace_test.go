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
	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/workspaces"
)

// blockFileSystem blocks each access to a directory, and to everything below it, until the returned
// function is called: like a network file system whose server is away.
func (b *bed) blockFileSystem(dir string) (unblock func()) {
	blocked := make(chan struct{})
	wait := func(path string) {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			<-blocked
		}
	}
	b.onLoop(func() {
		b.files.fails = func(path string) error { wait(path); return nil }
		b.system.resolve = wait
	})
	return func() { close(blocked) }
}

func (b *bed) startIn(id, dir string, exclusive bool) {
	b.t.Helper()
	_, err := b.sup.Create(b.t.Context(), "command",
		Spec{ID: id, Command: []string{"true"}, WorkingDirectory: dir, Exclusive: exclusive})
	require.NoError(b.t, err)
	b.takeTrace()
}

// A workspace that does not answer delays only the calls that begin a run there, and these not for
// long.
func TestWorkspace_ThatDoesNotAnswerBlocksOnlyNewRuns(t *testing.T) {
	supervise(t, func(b *bed) {
		dead := t.TempDir()
		b.startIn("dead", dead, false)
		b.startIn("alone", dead, true)
		b.start("other")
		unblock := b.blockFileSystem(dead)
		b.sup.MountsChanged()
		for range 3 { // more often than probes can finish
			b.sup.MountsChanged()
			b.files.events <- inotify.Event{Watch: -1, Mask: unix.IN_Q_OVERFLOW}
		}
		b.exit("other", 3)
		assert.Equal(t, "failed", b.state("other"), "the event loop is not blocked")
		assert.Equal(t, "running", b.state("dead"), "the last known state")
		b.takeTrace()

		b.call("restart", func(ctx context.Context) error { return b.sup.Restart(ctx, "dead") })
		b.exit("dead", 143)
		b.endScope("dead")
		assert.Equal(t, "starting", b.state("dead"))
		b.advance(workspaces.Timeout)
		why := `cannot start "dead": workspace "` + dead + `" does not answer`
		log := b.takeTrace()
		assert.Equal(t, "5s restart: "+why, log[len(log)-1])
		assert.NotContains(t, log, "0s start dead", "no process was started, which could not be ended")
		assert.Equal(t, "failed", b.state("dead"))

		b.exit("alone", 0)
		b.endScope("alone")
		b.takeTrace()
		b.call("start", func(ctx context.Context) error { return b.sup.Start(ctx, "alone") })
		b.advance(workspaces.Timeout)
		assert.Equal(t, []string{`10s start: workspace "` + dead + `" does not answer`}, b.takeTrace())
		for _, id := range []string{"dead", "alone"} {
			require.NoError(t, b.sup.Remove(b.t.Context(), id, true))
		}
		b.start("another")
		unblock()
		synctest.Wait()
		assert.False(t, b.files.isWatched(dead), "an unused workspace is not watched")
	})
}

// At its start, the daemon waits once for all workspaces together, for a limited time.
func TestAdopt_WaitsOnceForWorkspacesThatDoNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		dead, gone := t.TempDir(), filepath.Join(t.TempDir(), "gone")
		blocked := make(chan struct{})
		b.files.fails = func(path string) error {
			if path == dead {
				<-blocked
			}
			return nil
		}
		var saved []*session.Session
		for id, dir := range map[string]string{"dead": dead, "orphan": gone, "shop": b.home} {
			rec := &session.Session{ID: id, Agent: "command", WorkingDirectory: dir, Workspace: dir, Created: time.Now()}
			rec.Apply(session.RunBegun{Run: "run-" + id, BootID: "boot", Unit: unitname.Scope("command", id), At: time.Now()})
			require.NoError(t, runs(Plan{Unit: rec.Run.Unit, Spec: shimwire.Spec{RunID: rec.Run.ID}},
				func(ev session.Event) { rec.Apply(ev) }))
			require.NoError(t, b.records.Create(id))
			require.NoError(t, os.MkdirAll(b.sup.loop.settings.runtimeDir(id), 0o700))
			fd, err := listen(filepath.Join(b.sup.loop.settings.runtimeDir(id), shimSocket))
			require.NoError(t, err)
			defer func() { _ = unix.Close(fd) }()
			b.system.scopes = append(b.system.scopes,
				Scope{Name: rec.Run.Unit, InvocationID: "inv", ControlGroup: "/" + rec.Run.Unit, Active: true})
			saved = append(saved, rec)
		}
		require.NoError(t, b.sup.Adopt(t.Context(), saved))
		assert.Equal(t, firstProbeTimeout, time.Since(b.begin))
		orphan := b.sup.loop.sessions.byID["orphan"]
		assert.Equal(t, "orphaned", orphan.published.State, "it is known before the session is published")
		ctx, cancel := context.WithCancel(t.Context())
		go b.run(ctx)
		close(blocked)
		cancel()
		synctest.Wait()
	})
}

// Two paths that lead to the same directory are one workspace, also after the directory was moved
// while a session runs in it.
func TestExclusive_AppliesToTheDirectory(t *testing.T) {
	supervise(t, func(b *bed) {
		dir := t.TempDir()
		first, second, current := filepath.Join(dir, "first"), filepath.Join(dir, "second"), filepath.Join(dir, "current")
		for _, work := range []string{first, second} {
			require.NoError(t, os.Mkdir(work, 0o700))
		}
		link := func(to string) {
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
			_, err := b.sup.Create(b.t.Context(), "command",
				Spec{ID: id, Command: []string{"true"}, WorkingDirectory: dir, Exclusive: true})
			return err
		}
		link(first)
		require.NoError(t, create("shop", current))
		require.NoError(t, create("other", second))
		link(second)
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
		defer cancel()
		busy("other", b.sup.Restart(ctx, "shop"))
		require.NoError(t, b.sup.Describe(b.t.Context(), "shop", "as it was")) // the failed restart has not stopped it
		assert.NotEqual(t, "stopping", b.state("shop"))

		b.exit("other", 0)
		b.endScope("other")
		b.call("restart", func(ctx context.Context) error { return b.sup.Restart(ctx, "shop") })
		assert.Equal(t, "stopping", b.state("shop"))
		busy("shop", b.sup.Start(b.t.Context(), "other"))
		busy("shop", create("third", first))
		b.exit("shop", 143)
		b.endScope("shop")
		assert.Equal(t, "running", b.state("shop"))
		busy("shop", b.sup.Start(b.t.Context(), "other"))
		require.NoError(t, create("third", first))

		require.NoError(t, os.Rename(second, second+".moved"))
		busy("shop", create("fourth", second+".moved"))
	})
}

// So is a session whose run begins. An acknowledgement lasts until the workspace is back.
func TestWorkspace_OrphansASessionThatNeverRan(t *testing.T) {
	supervise(t, func(b *bed) {
		work := filepath.Join(t.TempDir(), "work")
		remove := func() {
			require.NoError(t, os.Remove(work))
			b.files.notify(work, "", unix.IN_DELETE_SELF)
		}
		create := func() {
			require.NoError(t, os.Mkdir(work, 0o700))
			b.files.notify(filepath.Dir(work), "work", unix.IN_CREATE)
		}
		require.NoError(t, os.Mkdir(work, 0o700))
		for _, id := range []string{"shop", "kept"} {
			_, err := b.sup.Create(b.t.Context(), "command",
				Spec{ID: id, Command: []string{"true"}, WorkingDirectory: work, NoStart: true})
			require.NoError(t, err)
		}
		for range 2 {
			remove()
			synctest.Wait()
			snap, err := b.sup.Session("shop")
			require.NoError(t, err)
			assert.Equal(t, []string{"orphaned", "error", "orphaned"}, []string{snap.State, snap.Lifecycle, snap.Attention})
			require.NoError(t, b.sup.Acknowledge(b.t.Context(), "shop"))
			snap, err = b.sup.Session("shop")
			require.NoError(t, err)
			assert.Empty(t, snap.Attention)
			create()
			assert.Equal(t, "created", b.state("shop"))
		}
		b.system.start = func(p Plan, report func(session.Event)) error { scopeRuns(p, report); return nil }
		b.call("start", func(ctx context.Context) error { return b.sup.Start(ctx, "shop") })
		assert.Equal(t, "starting", b.state("shop"))
		remove()
		assert.Equal(t, "orphaned", b.state("shop"))
		assert.NotContains(t, strings.Join(b.takeTrace(), "\n"), "start: ", "it has not started")
		create()
		assert.Equal(t, "starting", b.state("shop"))
		remove()
		require.NoError(t, b.sup.Archive(b.t.Context(), "kept"))
		create()
		assert.Equal(t, "archived", b.state("kept"))
	})
}

// A workspace is watched before the session's first run, and while a run lives. Otherwise it does
// not matter to the session, and watching it would wake the daemon.
func TestWorkspace_IsWatchedUntilTheRunHasEnded(t *testing.T) {
	supervise(t, func(b *bed) {
		parent := t.TempDir()
		work := filepath.Join(parent, "work")
		isWatched := func() bool {
			synctest.Wait()
			return b.files.isWatched(parent)
		}
		require.NoError(t, os.Mkdir(work, 0o700))
		_, err := b.sup.Create(b.t.Context(), "command",
			Spec{ID: "shop", Command: []string{"true"}, WorkingDirectory: work, NoStart: true})
		require.NoError(t, err)
		assert.True(t, isWatched(), "never started")
		for range 2 {
			require.NoError(t, b.sup.Start(b.t.Context(), "shop"))
			assert.True(t, isWatched())
			require.NoError(t, os.Remove(work))
			b.files.notify(work, "", unix.IN_DELETE_SELF)
			assert.Equal(t, "orphaned", b.state("shop"))
			b.exit("shop", 0)
			assert.Equal(t, "completed", b.state("shop"))
			assert.True(t, isWatched(), "its scope may contain leftover processes")
			b.endScope("shop")
			assert.False(t, isWatched())
			assert.Empty(t, b.files.live, "nothing is watched for an ended run")
			assert.Empty(t, b.paths.watched)
			require.NoError(t, os.Mkdir(work, 0o700))
		}
		require.NoError(t, b.sup.Start(b.t.Context(), "shop"))
		assert.Equal(t, "running", b.state("shop"), "the missing workspace of the previous run does not orphan the next one")
	})
}

func TestWorkspace_IsNotWatchedAfterItsSessionIsRemoved(t *testing.T) {
	supervise(t, func(b *bed) {
		work := t.TempDir()
		_, err := b.sup.Create(b.t.Context(), "command",
			Spec{ID: "shop", Command: []string{"true"}, WorkingDirectory: work, NoStart: true})
		require.NoError(t, err)
		synctest.Wait()
		assert.True(t, b.files.isWatched(work))
		require.NoError(t, b.sup.Remove(b.t.Context(), "shop", false))
		b.sup.MountsChanged()
		synctest.Wait()
		assert.False(t, b.files.isWatched(work))
	})
}

// It does so however long it takes to resolve the path of the older session.
func TestResumeAll_GivesTheWorkspaceToTheOlderSession(t *testing.T) {
	supervise(t, func(b *bed) {
		dir := t.TempDir()
		for _, id := range []string{"older", "younger"} {
			b.startIn(id, dir, true)
			b.call("suspend", func(ctx context.Context) error { return b.sup.Suspend(ctx, id) })
			b.exit(id, 0)
			b.endScope(id)
			<-time.After(time.Second)
		}
		resolved := 0
		b.onLoop(func() {
			b.system.resolve = func(string) {
				if resolved++; resolved == 1 {
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
		assert.Contains(t, b.takeTrace(), "2.5s resume all: ok")
	})
}

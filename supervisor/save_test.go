package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/supervisor/session"
)

// TestStart_ThatCannotBeSavedFails: the agent is not started, since it would be lost if the daemon
// exited.
func TestStart_ThatCannotBeSavedFails(t *testing.T) {
	supervise(t, func(b *bed) {
		b.records.fails = diskIsFull
		err := b.create("command", Spec{ID: "shop", Command: []string{"true"}})
		require.EqualError(t, err, `cannot start "shop": write session.json: no space left on device`)
		assert.Equal(t, []string{
			"0s cannot save shop: starting",
			"0s problems 1",
			"0s problem shop: write session.json: no space left on device; " +
				"free space on the disk, and it will be saved automatically",
			"0s publish shop: new, starting",
			"0s cannot save shop: failed",
			"0s publish shop: starting -> failed",
			"0s answer 1",
		}, b.takeTrace())
	})
}

// TestStart_ThatCannotBeSavedChangesNothingElse: the start is canceled, but other effects that were
// decided in the same iteration are executed.
func TestStart_ThatCannotBeSavedChangesNothingElse(t *testing.T) {
	full := false
	fill := func(b *bed, now bool) { require.NoError(b.t, b.sup.loop.do(func() { full = now })) }
	fails := func(string) error {
		if full {
			return unix.ENOSPC
		}
		return nil
	}
	t.Run("the conversation that the previous agent has printed is detected", func(t *testing.T) {
		supervise(t, func(b *bed) {
			b.records.fails, full = fails, false
			b.withConversations()
			require.NoError(t, b.create("reports", Spec{ID: "shop"}))
			b.call("restart", func(ctx context.Context) error { return b.sup.Restart(ctx, "shop") })
			b.exitWithoutEvent("shop", 0)
			fill(b, true)
			b.sup.ScopeEnded(unitname.Scope("reports", "shop"), "inv", "success") // reported before the exit of its agent
			assert.Contains(t, b.takeTrace(), `0s restart: cannot start "shop": no space left on device`)
			fill(b, false)
			<-time.After(time.Hour)
			b.call("resume", func(ctx context.Context) error { return b.sup.Resume(ctx, "shop") })
			assert.Contains(t, b.takeTrace(), "3600s resume: ok")
		})
	})
	t.Run("a call is answered", func(t *testing.T) {
		supervise(t, func(b *bed) {
			b.records.fails, full = fails, false
			require.NoError(t, b.create("command", Spec{ID: "shop", Command: []string{"true"}, NoStart: true}))
			fill(b, true)
			reply := make(chan error, 1)
			require.NoError(t, b.sup.loop.do(func() { // like two calls in one iteration
				e := b.sup.loop.sessions.byID["shop"]
				e.setProperties([]session.Property{{Name: "TasksMax", Signature: "t", Value: "9"}}, reply)
				e.beginRun(session.OpStart, false, claim{})
			}))
			select {
			case err := <-reply:
				require.NoError(t, err)
			case <-time.After(time.Hour):
				t.Error("the call is not answered")
			}
		})
	})
	t.Run("the scope ends later", func(t *testing.T) {
		supervise(t, func(b *bed) {
			b.records.fails, full = fails, false
			b.start("shop")
			require.NoError(t, b.sup.loop.do(func() {
				e := b.sup.loop.sessions.byID["shop"]
				e.apply(session.ShimDied{Run: e.rec.Run.ID, At: time.Now()})
				e.apply(session.TmuxDied{Run: e.rec.Run.ID})
			}))
			require.Equal(t, "stale", b.state("shop"))
			fill(b, true)
			b.call("resume", func(ctx context.Context) error { return b.sup.Resume(ctx, "shop") })
			assert.Contains(t, b.takeTrace(), `0s resume: cannot start "shop": no space left on device`)
			fill(b, false)
			b.call("remove", func(ctx context.Context) error { return b.sup.Remove(ctx, "shop", true) })
			b.endScope("shop")
			<-time.After(time.Minute)
			assert.Contains(t, b.takeTrace(), "0s remove: ok")
		})
	})
}

// TestCreate_ConfirmsAWorktreeOnceTheSessionIsSaved: until then the marker file remains, so that a
// daemon that finds no record of the session knows that it has to remove the worktree.
func TestCreate_ConfirmsAWorktreeOnceTheSessionIsSaved(t *testing.T) {
	supervise(t, func(b *bed) {
		dir := t.TempDir()
		tree, marker := filepath.Join(dir, "shop"), filepath.Join(dir, ".shop.making")
		require.NoError(t, os.Mkdir(tree, 0o700))
		require.NoError(t, os.WriteFile(marker, nil, 0o600))
		b.onLoop(func() {
			b.records.fails = diskIsFull
			_, err := b.sup.loop.operations.creation.create("command", Spec{
				ID: "shop", Command: []string{"true"}, NoStart: true, WorkingDirectory: tree,
				determined: determined{worktree: &session.Worktree{Repository: "/nowhere", Path: tree}},
			})
			assert.NoError(t, err)
		})
		synctest.Wait()
		assert.FileExists(t, marker)
		b.onLoop(func() { b.records.fails = nil })
		<-time.After(firstRetry)
		synctest.Wait()
		assert.NoFileExists(t, marker)
	})
}

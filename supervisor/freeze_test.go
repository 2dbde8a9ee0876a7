package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/supervisor/session"
)

// isFrozen returns whether clients are shown the session as frozen.
func (b *bed) isFrozen(id string) bool {
	b.t.Helper()
	b.takeTrace()
	snap, err := b.sup.Session(id)
	require.NoError(b.t, err)
	return snap.Frozen
}

// only returns the lines whose text after the time begins with one of the words.
func only(trace []string, words ...string) []string {
	return slices.DeleteFunc(trace, func(line string) bool {
		_, text, _ := strings.Cut(line, " ")
		return !slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(text, word) })
	})
}

func TestFreezeAndThaw(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		require.NoError(t, b.sup.Freeze(b.t.Context(), "shop"))
		trace := b.takeTrace()
		assert.Equal(t, []string{"0s freeze shop", "0s publish shop: running", "0s answer 1"}, trace[len(trace)-3:],
			"the change is published before the answer, and not saved")
		assert.True(t, b.isFrozen("shop"))
		require.NoError(t, b.sup.Freeze(b.t.Context(), "shop"), "again")
		require.NoError(t, b.sup.Thaw(b.t.Context(), "shop"))
		assert.False(t, b.isFrozen("shop"))
		require.NoError(t, b.sup.Thaw(b.t.Context(), "shop"), "again")
	})
}

func TestFrozenSession_RefusesWhatNeedsItsProcesses(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		require.NoError(t, b.sup.Freeze(b.t.Context(), "shop"))
		ctx := b.t.Context()
		for call, err := range map[string]error{
			"send":    b.sup.Send(ctx, "shop", "text", Input{Enter: true}),
			"keys":    b.sup.Keys(ctx, "shop", nil),
			"capture": errorOf(b.sup.Capture(ctx, "shop", 1, false)),
			"attach":  errorOf(b.sup.AttachCommand(ctx, "shop")),
		} {
			assert.Equal(t, InvalidState, kindOf(err), call)
			require.ErrorContains(t, err, "it is frozen; thaw it first", call)
		}
	})
}

// errorOf returns the error of a call that returns a value, too.
func errorOf[T any](_ T, err error) error { return err }

func TestFreezeAndThaw_ByOtherPrograms(t *testing.T) {
	supervise(t, func(b *bed) {
		require.NoError(t, os.WriteFile(filepath.Join(b.home, "freezer"), nil, 0o600))
		b.start("shop")
		for _, frozen := range []bool{true, false} {
			b.system.freeze("/"+unitname.Scope("command", "shop"), frozen)
			b.changedControlGroup()
			assert.Equal(t, frozen, b.isFrozen("shop"))
		}
		b.exit("shop", 0)
		b.endScope("shop")
		b.takeTrace()
	})
}

func TestFreeze_RefusesSessionsThatDoNotRun(t *testing.T) {
	supervise(t, func(b *bed) {
		assert.Equal(t, NoSuchSession, kindOf(b.sup.Freeze(b.t.Context(), "nobody")))
		_, err := b.sup.Create(b.t.Context(), "command", Spec{ID: "new", Command: []string{"true"}, NoStart: true})
		require.NoError(t, err)
		assert.Equal(t, InvalidState, kindOf(b.sup.Freeze(b.t.Context(), "new")))
		assert.Equal(t, InvalidState, kindOf(b.sup.Thaw(b.t.Context(), "new")))
		b.start("ending")
		b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "ending", 0) })
		b.takeTrace()
		assert.Equal(t, InvalidState, kindOf(b.sup.Freeze(b.t.Context(), "ending")), "it could not end while it is frozen")
		assert.NoError(t, b.sup.Thaw(b.t.Context(), "ending"))
	})
}

func TestFreeze_ThawsAfterAFailure(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.system.freezeErr = errors.New("the kernel cannot")
		err := b.sup.Freeze(b.t.Context(), "shop")
		require.ErrorContains(t, err, `cannot freeze session "shop": the kernel cannot`)
		assert.Equal(t, []string{"0s freeze shop", "0s thaw shop", "0s answer 1"},
			only(b.takeTrace(), "freeze", "thaw", "save", "answer"))
		b.system.freezeErr = context.DeadlineExceeded
		assert.Equal(t, TimedOut, kindOf(b.sup.Freeze(b.t.Context(), "shop")))
		assert.False(t, b.isFrozen("shop"))
	})
}

// TestThaw_PrecedesTheEndOfAFrozenSession: a frozen process does not handle SIGTERM, and a frozen
// shim records no exit.
func TestThaw_PrecedesTheEndOfAFrozenSession(t *testing.T) {
	for _, row := range []struct {
		name string
		do   func(b *bed, ctx context.Context) error
		then string
	}{
		{"stop", func(b *bed, ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) }, "0s terminate shop"},
		{"suspend", func(b *bed, ctx context.Context) error { return b.sup.Suspend(ctx, "shop") }, "0s terminate shop"},
		{"restart", func(b *bed, ctx context.Context) error { return b.sup.Restart(ctx, "shop") }, "0s terminate shop"},
		{"remove", func(b *bed, ctx context.Context) error { return b.sup.Remove(ctx, "shop", true) }, "0s terminate shop"},
		{"shutdown", func(b *bed, ctx context.Context) error {
			return errorOf(b.sup.SuspendForShutdown(ctx))
		}, "0s terminate shop"},
		{"SIGKILL", func(b *bed, ctx context.Context) error {
			return b.sup.Kill(ctx, "shop", word.Agent, int(unix.SIGKILL))
		}, "0s signal agent shop SIGKILL"},
	} {
		t.Run(row.name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				b.start("shop")
				require.NoError(t, b.sup.Freeze(b.t.Context(), "shop"))
				b.takeTrace()
				b.call(row.name, func(ctx context.Context) error { return row.do(b, ctx) })
				assert.Equal(t, []string{"0s thaw shop", row.then}, only(b.takeTrace(), "thaw", "terminate", "signal"))
				b.exit("shop", 0)
				b.endScope("shop")
				b.takeTrace()
			})
		})
	}
	supervise(t, func(b *bed) {
		b.start("shop")
		require.NoError(t, b.sup.Freeze(b.t.Context(), "shop"))
		for target, signal := range map[string]unix.Signal{
			word.Agent: unix.SIGUSR1, word.All: unix.SIGTERM, word.Leftovers: unix.SIGKILL,
		} {
			require.NoError(t, b.sup.Kill(b.t.Context(), "shop", target, int(signal)))
			assert.True(t, b.isFrozen("shop"), "%v waits for the thaw", signal)
		}
	})
}

// TestStop_DuringAFreezeComesAfterIt: of two operations, the one that was requested later is done
// later.
func TestStop_DuringAFreezeComesAfterIt(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.call("freeze", func(ctx context.Context) error { return b.sup.Freeze(ctx, "shop") })
		b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) })
		trace := only(b.takeTrace(), "freeze shop", "thaw shop", "terminate shop")
		assert.Contains(t, [][]string{
			{"0s freeze shop", "0s thaw shop", "0s terminate shop"}, {"0s terminate shop"},
		}, trace)
		b.exit("shop", 0)
		b.endScope("shop")
		b.takeTrace()
		assert.Equal(t, string(session.Stopped), b.state("shop"))
		assert.False(t, b.isFrozen("shop"))
	})
}

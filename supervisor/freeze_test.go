package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/supervisor/session"
)

func (b *bed) frozen(id string) bool {
	b.t.Helper()
	b.heard()
	snap, err := b.sup.Session(id)
	require.NoError(b.t, err)
	return snap.Frozen
}

// only returns what was told that begins with one of the words, after the time.
func only(told []string, words ...string) []string {
	return slices.DeleteFunc(told, func(line string) bool {
		_, text, _ := strings.Cut(line, " ")
		return !slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(text, word) })
	})
}

func TestFreezeAndThaw(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		require.NoError(t, b.sup.Freeze(b.t.Context(), "shop"))
		told := b.heard()
		assert.Equal(t, []string{"0s freeze shop", "0s publish shop: running", "0s answer 1"}, told[len(told)-3:], "it is told before it is answered, and not saved")
		assert.True(t, b.frozen("shop"))
		require.NoError(t, b.sup.Freeze(b.t.Context(), "shop"), "again")
		require.NoError(t, b.sup.Thaw(b.t.Context(), "shop"))
		assert.False(t, b.frozen("shop"))
		require.NoError(t, b.sup.Thaw(b.t.Context(), "shop"), "again")
	})
}

func TestWhatAFrozenSessionCannotDo(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		require.NoError(t, b.sup.Freeze(b.t.Context(), "shop"))
		for what, err := range map[string]error{
			"send": b.sup.Send(b.t.Context(), "shop", "text", Input{Enter: true}), "keys": b.sup.Keys(b.t.Context(), "shop", nil),
			"capture": second(b.sup.Capture(b.t.Context(), "shop", 1, false)), "attach": second(b.sup.AttachCommand(b.t.Context(), "shop")),
		} {
			assert.Equal(t, InvalidState, kindOf(err), what)
			require.ErrorContains(t, err, "it is frozen; thaw it first", what)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestOthersFreezeAndThawToo(t *testing.T) {
	supervise(t, func(b *bed) {
		require.NoError(t, os.WriteFile(filepath.Join(b.home, "freezer"), nil, 0o600))
		b.start("shop")
		for _, frozen := range []bool{true, false} {
			b.world.freeze("/"+UnitName("command", "shop"), frozen)
			b.files.tell(filepath.Join(b.home, "freezer"), "", unix.IN_MODIFY)
			assert.Equal(t, frozen, b.frozen("shop"))
		}
		b.exit("shop", 0)
		b.empty("shop")
		b.heard()
	})
}

func TestWhatCannotBeFrozen(t *testing.T) {
	supervise(t, func(b *bed) {
		assert.Equal(t, NoSuchSession, kindOf(b.sup.Freeze(b.t.Context(), "nobody")))
		_, err := b.sup.Create(b.t.Context(), "command", Spec{ID: "new", Command: []string{"true"}, NoStart: true})
		require.NoError(t, err)
		assert.Equal(t, InvalidState, kindOf(b.sup.Freeze(b.t.Context(), "new")))
		assert.Equal(t, InvalidState, kindOf(b.sup.Thaw(b.t.Context(), "new")))
		b.start("ending")
		b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "ending", 0) })
		b.heard()
		assert.Equal(t, InvalidState, kindOf(b.sup.Freeze(b.t.Context(), "ending")), "it could not end")
		assert.NoError(t, b.sup.Thaw(b.t.Context(), "ending"))
	})
}

func TestAFreezeThatFailsLeavesNothingFrozen(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.world.freezeErr = errors.New("the kernel cannot")
		err := b.sup.Freeze(b.t.Context(), "shop")
		require.ErrorContains(t, err, `cannot freeze session "shop": the kernel cannot`)
		assert.Equal(t, []string{"0s freeze shop", "0s thaw shop", "0s answer 1"}, only(b.heard(), "freeze", "thaw", "save", "answer"))
		b.world.freezeErr = context.DeadlineExceeded
		assert.Equal(t, TimedOut, kindOf(b.sup.Freeze(b.t.Context(), "shop")))
		assert.False(t, b.frozen("shop"))
	})
}

// TestWhatEndsASessionThawsItFirst: nothing that is frozen ends politely, and no exit is recorded.
func TestWhatEndsASessionThawsItFirst(t *testing.T) {
	for _, row := range []struct {
		name string
		do   func(b *bed, ctx context.Context) error
		then string
	}{
		{"stop", func(b *bed, ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) }, "0s ask agent shop"},
		{"suspend", func(b *bed, ctx context.Context) error { return b.sup.Suspend(ctx, "shop") }, "0s ask agent shop"},
		{"restart", func(b *bed, ctx context.Context) error { return b.sup.Restart(ctx, "shop") }, "0s ask agent shop"},
		{"remove", func(b *bed, ctx context.Context) error { return b.sup.Remove(ctx, "shop", true) }, "0s ask agent shop"},
		{"last call", func(b *bed, ctx context.Context) error { return second(b.sup.LastCall(ctx)) }, "0s ask agent shop"},
		{"SIGKILL", func(b *bed, ctx context.Context) error { return b.sup.Kill(ctx, "shop", WhomAgent, int(unix.SIGKILL)) }, "0s signal agent shop SIGKILL"},
	} {
		t.Run(row.name, func(t *testing.T) {
			supervise(t, func(b *bed) {
				b.start("shop")
				require.NoError(t, b.sup.Freeze(b.t.Context(), "shop"))
				b.heard()
				b.call(row.name, func(ctx context.Context) error { return row.do(b, ctx) })
				assert.Equal(t, []string{"0s thaw shop", row.then}, only(b.heard(), "thaw", "ask", "signal"))
				b.exit("shop", 0)
				b.empty("shop")
				b.heard()
			})
		})
	}
	supervise(t, func(b *bed) {
		b.start("shop")
		require.NoError(t, b.sup.Freeze(b.t.Context(), "shop"))
		for whom, signal := range map[string]unix.Signal{WhomAgent: unix.SIGUSR1, WhomAll: unix.SIGTERM, WhomLeftovers: unix.SIGKILL} {
			require.NoError(t, b.sup.Kill(b.t.Context(), "shop", whom, int(signal)))
			assert.True(t, b.frozen("shop"), "%v waits for the thaw", signal)
		}
	})
}

// TestAStopThatComesDuringAFreeze: what is asked for later is done later.
func TestAStopThatComesDuringAFreeze(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.call("freeze", func(ctx context.Context) error { return b.sup.Freeze(ctx, "shop") })
		b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) })
		told := only(b.heard(), "freeze shop", "thaw shop", "ask agent")
		assert.Contains(t, [][]string{
			{"0s freeze shop", "0s thaw shop", "0s ask agent shop"}, {"0s ask agent shop"},
		}, told)
		b.exit("shop", 0)
		b.empty("shop")
		b.heard()
		assert.Equal(t, string(session.Stopped), b.state("shop"))
		assert.False(t, b.frozen("shop"))
	})
}

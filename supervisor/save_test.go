package supervisor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/supervisor/session"
)

// TestAStartThatCannotBeSaved is given up, and nothing else is: what was decided beside it is done.
func TestAStartThatCannotBeSaved(t *testing.T) {
	full := false
	fill := func(b *bed, now bool) { require.NoError(b.t, b.sup.do(func() { full = now })) }
	fails := func(string) error {
		if full {
			return unix.ENOSPC
		}
		return nil
	}
	t.Run("the last words of the agent before are looked at", func(t *testing.T) {
		supervise(t, func(b *bed) {
			b.records.fails, full = fails, false
			b.talking()
			require.NoError(t, b.create("reports", Spec{ID: "shop"}))
			b.call("restart", func(ctx context.Context) error { return b.sup.Restart(ctx, "shop") })
			b.exitUnseen("shop", 0)
			fill(b, true)
			b.sup.ScopeEnded(UnitName("reports", "shop"), "inv", "success") // of which it is heard before its exit is
			assert.Contains(t, b.heard(), `0s restart: cannot start "shop": no space left on device`)
			fill(b, false)
			<-time.After(time.Hour)
			b.call("resume", func(ctx context.Context) error { return b.sup.Resume(ctx, "shop") })
			assert.Contains(t, b.heard(), "3600s resume: ok")
		})
	})
	t.Run("a call is answered", func(t *testing.T) {
		supervise(t, func(b *bed) {
			b.records.fails, full = fails, false
			require.NoError(t, b.create("command", Spec{ID: "shop", Command: []string{"true"}, NoStart: true}))
			fill(b, true)
			reply := make(chan error, 1)
			require.NoError(t, b.sup.do(func() { // as two calls do that come in one turn
				e := b.sup.sessions["shop"]
				b.sup.setProperties(e, []session.Property{{Name: "TasksMax", Signature: "t", Value: "9"}}, reply)
				b.sup.replace(e, false, nil, nil)
			}))
			select {
			case err := <-reply:
				require.NoError(t, err)
			case <-time.After(time.Hour):
				t.Error("it is not")
			}
		})
	})
	t.Run("its scope ends later", func(t *testing.T) {
		supervise(t, func(b *bed) {
			b.records.fails, full = fails, false
			b.start("shop")
			require.NoError(t, b.sup.do(func() {
				e := b.sup.sessions["shop"]
				b.sup.apply(e, session.ShimDied{Run: e.rec.Run.ID, At: time.Now()})
				b.sup.apply(e, session.TmuxDied{Run: e.rec.Run.ID})
			}))
			require.Equal(t, "stale", b.state("shop"))
			fill(b, true)
			b.call("resume", func(ctx context.Context) error { return b.sup.Resume(ctx, "shop") })
			assert.Contains(t, b.heard(), `0s resume: cannot start "shop": no space left on device`)
			fill(b, false)
			b.call("remove", func(ctx context.Context) error { return b.sup.Remove(ctx, "shop", true) })
			b.empty("shop")
			<-time.After(time.Minute)
			assert.Contains(t, b.heard(), "0s remove: ok")
		})
	})
}

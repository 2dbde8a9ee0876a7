package supervisor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/supervisor/session"
)

// TestRunUntil_PublishesNotificationsBeforeRun: what is decided about adopted sessions is published
// before the loop runs, and the daemon does not wait for it forever.
func TestRunUntil_PublishesNotificationsBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		rec := runningRecord(b, false)
		require.NoError(t, b.records.Create("shop"))
		b.system.populated = false
		require.NoError(t, b.sup.Adopt(t.Context(), []*session.Session{rec}))
		e := b.sup.loop.sessions.byID["shop"]
		require.Equal(t, "failed", e.published.State)
		b.takeTrace()
		published := make(chan struct{})
		go func() {
			<-time.After(time.Second / 2)
			b.sup.SetNotifications(map[string]Notification{"shop": {"pending", e.published.AttentionSince}})
			close(published)
		}()
		b.sup.RunUntil(t.Context(), published)
		assert.Equal(t, "pending", e.published.Notification)
		assert.Equal(t, []string{"0.5s publish shop: failed"}, b.takeTrace())
		begin := time.Now()
		b.sup.RunUntil(t.Context(), make(chan struct{}))
		assert.Equal(t, runUntilTimeout, time.Since(begin))
	})
}

// TestSetNotifications_AreAboutOneRequest: a notification is published, but not saved, and not
// beside a newer request than the one that it is about.
func TestSetNotifications_AreAboutOneRequest(t *testing.T) {
	supervise(t, func(b *bed) {
		s := b.startWithShim()
		set := func(n Notification) (published string) {
			b.sup.SetNotifications(map[string]Notification{"shop": n, "none": n})
			synctest.Wait()
			return s.snapshot().Notification
		}
		b.report("waiting", "question", "1")
		synctest.Wait()
		first := s.snapshot().AttentionSince
		b.takeTrace()
		assert.Equal(t, "pending", set(Notification{"pending", first}))
		assert.Equal(t, []string{"0s publish shop: running"}, b.takeTrace())
		<-time.After(time.Second)
		b.report("waiting", "question", "2")
		synctest.Wait()
		assert.Empty(t, s.snapshot().Notification)
		assert.Empty(t, set(Notification{"shown", first}), "it was on its way")
		assert.Equal(t, "shown", set(Notification{"shown", s.snapshot().AttentionSince}))
		assert.Empty(t, set(Notification{}))
	})
}

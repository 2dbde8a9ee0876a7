package supervisor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

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

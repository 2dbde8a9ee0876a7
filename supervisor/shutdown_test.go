package supervisor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/supervisor/session"
)

// shutDown runs f with one session that runs and one that has failed, after the daemon was told to end. It returns the function that tells whether
// the loop has ended.
func shutDown(t *testing.T, stops bool, f func(b *bed, ended func() bool)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.world.stops = stops
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); b.sup.Run(ctx) }()
		b.start("shop")
		b.start("broken")
		b.exit("broken", 1)
		b.empty("broken")
		b.heard()
		cancel()
		synctest.Wait()
		f(b, func() bool {
			synctest.Wait()
			select {
			case <-done:
				return true
			default:
				return false
			}
		})
		<-done
	})
}

func TestTheDaemonAloneEnds(t *testing.T) {
	shutDown(t, false, func(b *bed, ended func() bool) {
		assert.True(t, ended(), "it waits for nobody")
		assert.Equal(t, []string{"0s save shop: suspended", "0s publish shop: running -> suspended"}, b.heard(), "and touches nobody")
		rec := b.records.last("shop")
		assert.Equal(t, session.Suspended, rec.View().State)
		rec.Apply(session.FoundAlive{Run: rec.Run.ID})
		assert.Equal(t, session.Running, rec.View().State, "as before, once it is found")
	})
}

func TestTheWholeSessionEnds(t *testing.T) {
	shutDown(t, true, func(b *bed, ended func() bool) {
		assert.False(t, ended(), "agents have their time to save")
		assert.Equal(t, []string{"0s save shop: stopping", "0s publish shop: running -> stopping", "0s ask agent shop"}, inOrder(b.heard(), "ask"))
		<-time.After(2 * time.Second)
		assert.Contains(t, b.heard(), "1s hang up shop", "the ending goes on")
		b.exit("shop", 0)
		assert.False(t, ended())
		assert.Contains(t, b.heard(), "2s signal all shop SIGTERM")
		b.empty("shop")
		assert.True(t, ended())
		v := b.records.last("shop").View()
		assert.Equal(t, session.View{State: session.Suspended, Result: "success", Reason: "the login session ended", Since: v.Since}, v)
		assert.Equal(t, session.Failed, b.records.last("broken").View().State, "what had ended keeps what it says")
	})
}

func TestTheWholeSessionEndsAndAnAgentDoesNot(t *testing.T) {
	shutDown(t, true, func(b *bed, ended func() bool) {
		<-time.After(b.sup.Config.StopTimeout + shutdownMargin - time.Millisecond)
		assert.False(t, ended())
		assert.Contains(t, b.heard(), "10s kill shop")
		<-time.After(time.Millisecond)
		assert.True(t, ended(), "it does not hold up the shutdown for ever")
		assert.Equal(t, session.Suspend, b.records.last("shop").Run.Intent, "and is known to be suspended")
	})
}

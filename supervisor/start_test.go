package supervisor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/unitname"
)

// TestStart_ThatHasFailedIsNotCarriedOut: the effects of a start are carried out late because an
// earlier effect of the session has taken long.
func TestStart_ThatHasFailedIsNotCarriedOut(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.exit("shop", 0)
		b.sup.ScopeEnded(unitname.Scope("command", "shop"), "inv", "success")
		hang := make(chan struct{})
		b.onLoop(func() { b.sup.loop.sessions.byID["shop"].effects.add(func() { <-hang }) })
		b.call("start", func(ctx context.Context) error { return b.sup.Start(ctx, "shop") })
		<-time.After(10 * time.Minute)
		assert.Equal(t, "failed", b.state("shop"))
		b.takeTrace()
		close(hang)
		<-time.After(time.Minute)
		assert.NotContains(t, b.takeTrace(), "600s start shop")
		assert.Equal(t, "failed", b.state("shop"))
	})
}

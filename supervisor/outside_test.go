package supervisor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// moved has the agent of session shop, its shim and its tmux server move to another control group, and its scope end.
func (b *bed) moved() {
	b.t.Helper()
	b.start("shop")
	b.world.group, b.world.populated = "/elsewhere", false
	b.empty("shop")
	b.heard()
	assert.Equal(b.t, "running", b.state("shop"), "it lives")
	assert.Equal(b.t, []Problem{{Session: "shop", Text: leftScope}}, b.problems())
}

func TestOutside_TheExitIsReported(t *testing.T) {
	supervise(t, func(b *bed) {
		b.moved()
		<-time.After(time.Hour)
		b.exit("shop", 11)
		b.heard()
		rec := b.records.last("shop")
		assert.Equal(t, "failed", b.state("shop"))
		assert.Equal(t, 11, rec.Run.Exit.Value)
		assert.False(t, rec.Run.Live())
		assert.Empty(t, b.problems())
	})
}

func TestOutside_AStopEndsTheAgent(t *testing.T) {
	supervise(t, func(b *bed) {
		b.moved()
		b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) })
		assert.Contains(t, b.heard(), "0s ask agent shop")
		<-time.After(10 * time.Second)
		assert.Contains(t, b.heard(), "10s kill shop")
		b.exit("shop", 137)
		assert.Contains(t, b.heard(), "10s stop: ok")
		assert.Equal(t, "stopped", b.state("shop"))
	})
}

// TestOutside_AnAgentThatIsKilledWithItsShim has left no record.
func TestOutside_AnAgentThatIsKilledWithItsShim(t *testing.T) {
	supervise(t, func(b *bed) {
		b.moved()
		b.world.group = ""
		b.fds.all()
		b.heard()
		assert.Equal(t, "running", b.state("shop"), "its shim may be about to record the exit")
		<-time.After(recordTime)
		assert.Contains(t, b.heard(), "1s continue shop", "it may be stopped")
		assert.Equal(t, "running", b.state("shop"))
		<-time.After(recordTime)
		b.heard()
		assert.Equal(t, "failed", b.state("shop"))
		assert.Equal(t, "session-lost", b.records.last("shop").View().Result)
		assert.Empty(t, b.problems())
	})
}

package supervisor

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/unitname"
)

// startThenMove creates session shop, moves its agent, shim and tmux server to another control
// group, and has its scope end.
func (b *bed) startThenMove() {
	b.t.Helper()
	b.start("shop")
	b.system.group, b.system.populated = "/elsewhere", false
	b.endScope("shop")
	b.takeTrace()
	assert.Equal(b.t, "running", b.state("shop"), "the agent is alive")
	assert.Equal(b.t, []Problem{{Session: "shop", Text: outsideScopeProblem}}, b.problems())
}

func TestOutside_TheExitIsReported(t *testing.T) {
	supervise(t, func(b *bed) {
		b.startThenMove()
		<-time.After(time.Hour)
		b.exit("shop", 11)
		b.takeTrace()
		rec := b.records.last("shop")
		assert.Equal(t, "failed", b.state("shop"))
		assert.Equal(t, 11, rec.Run.Exit.Value)
		assert.False(t, rec.Run.Live())
		assert.Empty(t, b.problems())
	})
}

func TestOutside_AStopEndsTheAgent(t *testing.T) {
	supervise(t, func(b *bed) {
		b.startThenMove()
		b.call("stop", func(ctx context.Context) error { return b.sup.Stop(ctx, "shop", 0) })
		assert.Contains(t, b.takeTrace(), "0s terminate shop")
		<-time.After(10 * time.Second)
		assert.Contains(t, b.takeTrace(), "10s kill shop")
		b.exit("shop", 137)
		assert.Contains(t, b.takeTrace(), "10s stop: ok")
		assert.Equal(t, "stopped", b.state("shop"))
	})
}

// TestOutside_AStopOfTheScopeEndsTheAgent: systemd reports a timeout because the agent was not
// there to end with its scope.
func TestOutside_AStopOfTheScopeEndsTheAgent(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("shop")
		b.system.group, b.system.populated = "/elsewhere", false
		b.sup.ScopeEnded(unitname.Scope("command", "shop"), "", "timeout")
		assert.Equal(t, []string{
			"0s save shop: stopping", "0s publish shop: running -> stopping", "0s terminate shop",
		}, only(b.takeTrace(), "save", "publish", "terminate"))
		b.exit("shop", 0)
		assert.Equal(t, "stopped", b.state("shop"))
	})
}

// TestOutside_AnAgentKilledWithItsShimIsLost: there is no record of the exit.
func TestOutside_AnAgentKilledWithItsShimIsLost(t *testing.T) {
	supervise(t, func(b *bed) {
		b.startThenMove()
		b.system.group = ""
		b.fds.allReady()
		b.takeTrace()
		assert.Equal(t, "running", b.state("shop"), "its shim may be about to record the exit")
		<-time.After(recordTimeout)
		assert.Contains(t, b.takeTrace(), "1s continue shop", "it may be stopped")
		assert.Equal(t, "running", b.state("shop"))
		<-time.After(recordTimeout)
		b.takeTrace()
		assert.Equal(t, "failed", b.state("shop"))
		assert.Equal(t, "session-lost", b.records.last("shop").View().Result)
		assert.Empty(t, b.problems())
	})
}

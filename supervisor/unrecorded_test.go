package supervisor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/fdpoll"
)

// agentEnds has the kernel report the exit of the agent of the session that was started last: its
// pidfd is the descriptor that was added last.
func (b *bed) agentEnds() {
	b.t.Helper()
	var last fdpoll.Key
	b.fds.mu.Lock()
	for _, key := range b.fds.keys {
		last = max(last, key)
	}
	b.fds.mu.Unlock()
	require.NotZero(b.t, last)
	b.fds.ready <- last
}

// TestUnrecordedEnd_ContinuesTheShim: a shim that has not recorded the exit of its agent in time
// may be stopped, and gets SIGCONT. One that has recorded it in time does not.
func TestUnrecordedEnd_ContinuesTheShim(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("prompt")
		b.agentEnds()
		b.advance(recordTimeout / 2)
		b.exit("prompt", 3)
		b.advance(time.Minute)
		assert.Empty(t, only(b.takeTrace(), "continue"))

		b.start("stopped")
		b.agentEnds()
		b.advance(recordTimeout - time.Millisecond)
		assert.Empty(t, only(b.takeTrace(), "continue"))
		b.advance(time.Minute)
		assert.Equal(t, []string{"61.5s continue stopped"}, only(b.takeTrace(), "continue"))
		assert.Equal(t, "running", b.state("stopped"), "the exit is reported by the shim only")
		b.exit("stopped", 3)
		assert.Equal(t, "failed", b.state("stopped"))
	})
}

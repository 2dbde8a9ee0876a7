package supervisor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/fdpoll"
)

// agentEnds has the kernel report the end of the agent of the session that was started last: its
// pidfd is what the loop has begun to wait for last.
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

// TestUnrecordedEnd_ContinuesTheShim that is stopped, once it had its time to record the end of its
// agent, and not where it has recorded that in time.
func TestUnrecordedEnd_ContinuesTheShim(t *testing.T) {
	supervise(t, func(b *bed) {
		b.start("prompt")
		b.agentEnds()
		b.rests(recordTime / 2)
		b.exit("prompt", 3)
		b.rests(time.Minute)
		assert.Empty(t, only(b.heard(), "continue"))

		b.start("stopped")
		b.agentEnds()
		b.rests(recordTime - time.Millisecond)
		assert.Empty(t, only(b.heard(), "continue"))
		b.rests(time.Minute)
		assert.Equal(t, []string{"61.5s continue stopped"}, only(b.heard(), "continue"))
		assert.Equal(t, "running", b.state("stopped"), "the end is the shim's to report")
		b.exit("stopped", 3)
		assert.Equal(t, "failed", b.state("stopped"))
	})
}

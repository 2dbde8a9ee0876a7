package server

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/testbed"
)

// TestGate_IsEmptyAfterTheLastCall, whoever comes meanwhile.
func TestGate_IsEmptyAfterTheLastCall(t *testing.T) {
	for range 200 {
		g := newGate()
		assert.True(t, g.enter())
		var refused atomic.Int32
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for g.enter() {
					g.leave()
				}
				refused.Add(1)
			})
		}
		g.shut()
		g.shut()
		select {
		case <-g.empty:
			t.Fatal("one is inside")
		default:
		}
		g.leave()
		testbed.Receive(t, forwardClose(g.empty), "the last one's leaving")
		all.Wait()
		assert.EqualValues(t, 8, refused.Load())
		assert.False(t, g.enter())
	}
}

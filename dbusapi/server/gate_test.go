package server

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/testbed"
)

// TestGate_IsEmptyAfterTheLastCall: this holds even if calls arrive while the gate is being shut.
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
			t.Fatal("a call is pending")
		default:
		}
		g.leave()
		testbed.Receive(t, forwardClose(g.empty), "the end of the last call")
		all.Wait()
		assert.EqualValues(t, 8, refused.Load())
		assert.False(t, g.enter())
	}
}

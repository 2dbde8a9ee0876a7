package server

import "sync/atomic"

// gate counts the calls under way, and lets none in once it is shut. It is open when it is made.
type gate struct {
	inside atomic.Int64 // the gate itself is one of them until it is shut
	closed atomic.Bool
	empty  chan struct{} // closed once it is shut, and who was inside has left
}

func newGate() *gate {
	g := &gate{empty: make(chan struct{})}
	g.inside.Store(1)
	return g
}

// enter lets one in, who has to leave. It tells whether it did.
func (g *gate) enter() bool {
	for !g.closed.Load() {
		n := g.inside.Load()
		if n == 0 { // it was shut since, and all have left
			return false
		}
		if g.inside.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

func (g *gate) leave() {
	if g.inside.Add(-1) == 0 {
		close(g.empty)
	}
}

// shut lets nobody in from now on. Only the first time does anything.
func (g *gate) shut() {
	if !g.closed.Swap(true) {
		g.leave()
	}
}

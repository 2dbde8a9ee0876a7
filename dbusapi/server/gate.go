package server

import "sync/atomic"

// gate counts the pending calls, and admits no more calls once it is shut. A new gate is open.
type gate struct {
	inside atomic.Int64 // number of pending calls, plus one while the gate is open
	closed atomic.Bool
	empty  chan struct{} // closed when the gate is shut and no call is pending
}

func newGate() *gate {
	g := &gate{empty: make(chan struct{})}
	g.inside.Store(1)
	return g
}

// enter admits a call and returns true, or returns false if the gate is shut. An admitted call has
// to call leave.
func (g *gate) enter() bool {
	for !g.closed.Load() {
		n := g.inside.Load()
		if n == 0 { // the gate was shut meanwhile, and no call is pending
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

// shut makes enter return false from now on. Further calls of shut have no effect.
func (g *gate) shut() {
	if !g.closed.Swap(true) {
		g.leave()
	}
}

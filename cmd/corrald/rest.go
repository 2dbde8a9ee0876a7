package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/corrald/corral/internal/clock"
	"github.com/corrald/corral/internal/deadline"
)

// How much garbage there may be beside what lives, in percent of it. Most of the daemon's life it
// does nothing: memory is what it costs. While it starts, nearly all that it makes stays, and
// looking for garbage in that again and again takes a third of its time.
const (
	gcPercent         = 40
	startingGCPercent = 400
)

const (
	restAfter = 3 * time.Second
	restRoom  = 8 << 20 // bytes that may be used beyond what is while it rests: what clients read is answered without the loop
	restWorth = 1 << 20 // bytes of the heap for which it is worth to look for garbage
)

// rest gives memory back once the loop has had nothing to do for a while, and has no garbage
// collected until it has: Go's runtime would look for some every two minutes, in a process that has
// made none.
type rest struct {
	after time.Duration
	mu    sync.Mutex
	last  time.Duration // by CLOCK_MONOTONIC: when there was something to do
	heap  uint64        // bytes of the heap when it was looked through last
	timer *deadline.Timer
	rests bool
}

// stir is told that there is something to do. It does not wait.
func (r *rest) stir() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = clock.Monotonic()
	if r.rests {
		r.rests = false
		go r.rise()
	}
	if r.timer == nil {
		r.timer = deadline.AfterFunc(r.after, r.look)
	}
}

// rise has garbage collected again. It stops all goroutines for some microseconds, as look does.
func (r *rest) rise() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.rests {
		debug.SetMemoryLimit(math.MaxInt64)
		debug.SetGCPercent(gcPercent)
	}
}

// look finds out whether there was nothing to do for long enough, and rests if so.
func (r *rest) look() {
	r.mu.Lock()
	seen := r.last
	if idle := clock.Monotonic() - seen; idle < r.after {
		r.timer = deadline.AfterFunc(r.after-idle, r.look)
		r.mu.Unlock()
		return
	}
	r.timer = nil
	heap := r.heap
	r.mu.Unlock()

	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > heap+restWorth || m.HeapAlloc < heap {
		debug.FreeOSMemory()
		runtime.ReadMemStats(&m)
		heap = m.HeapAlloc
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.heap = heap; r.last != seen {
		return // it was stirred meanwhile, and looks again
	}
	r.rests = true
	debug.SetMemoryLimit(int64(m.Sys-m.HeapReleased) + restRoom)
	debug.SetGCPercent(-1)
}

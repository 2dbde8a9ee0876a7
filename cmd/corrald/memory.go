package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/corrald/corral/internal/clock"
	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/proc"
)

// GOGC values: how much garbage may accumulate, in percent of the live heap. The daemon is idle for
// most of its life, and memory is what it costs. While it starts, it allocates several times what
// stays alive: what stays is spread over more memory the more garbage there is.
const (
	gcPercent         = 40
	startingGCPercent = 25
)

// maxProcessors is how many processors execute the daemon's goroutines at most. One of these is the
// event loop, and Go's runtime sets memory aside for each processor: with sixteen of them and 1,000
// sessions, 4 MiB.
const maxProcessors = 4

const (
	trimDelay     = 3 * time.Second // after the last iteration of the event loop
	callTrimDelay = time.Minute     // after the first call since memory was trimmed
	trimHeadroom  = 8 << 20         // bytes that calls may allocate until then
	minTrim       = 1 << 20         // bytes of heap growth that are worth a collection
)

// memoryTrimmer returns memory to the kernel once the event loop has been idle for a while, and
// turns periodic garbage collection off until the loop is active again: Go's runtime would collect
// every two minutes, in a process that has made no garbage.
//
// Calls that only read are answered without the event loop, and make garbage. It is collected once
// a minute at most, because a program may read all the time.
type memoryTrimmer struct {
	idleDelay, callDelay time.Duration

	mu           sync.Mutex
	lastActivity time.Duration   // CLOCK_MONOTONIC time of the last iteration of the event loop
	trimmedHeap  uint64          // bytes of the heap after the last collection
	timer        *deadline.Timer // of the next trimIfIdle; nil if none is due
	due          time.Duration   // CLOCK_MONOTONIC time of the timer
	trimmed      bool
}

// noteActivity records an iteration of the event loop. It does not block.
func (t *memoryTrimmer) noteActivity() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastActivity = clock.Monotonic()
	if t.trimmed {
		t.trimmed = false
		go t.enableGC()
	}
	t.schedule(t.lastActivity + t.idleDelay)
}

// noteCall records a client's call. It does not block.
func (t *memoryTrimmer) noteCall() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.schedule(clock.Monotonic() + t.callDelay)
}

// schedule sets the timer, unless it is already set to an earlier time. The mutex has to be locked.
func (t *memoryTrimmer) schedule(at time.Duration) {
	if t.timer != nil && t.due <= at {
		return
	}
	if t.timer != nil {
		t.timer.Stop()
	}
	t.timer, t.due = deadline.AfterFunc(at-clock.Monotonic(), t.trimIfIdle), at
}

// enableGC turns garbage collection on again. Like trimIfIdle, it stops all goroutines for some
// microseconds.
func (t *memoryTrimmer) enableGC() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.trimmed {
		debug.SetMemoryLimit(math.MaxInt64)
		debug.SetGCPercent(gcPercent)
	}
}

// trimIfIdle trims memory if the loop has been idle for long enough, and otherwise checks again
// later.
func (t *memoryTrimmer) trimIfIdle() {
	t.mu.Lock()
	t.timer = nil
	seen := t.lastActivity
	if at := seen + t.idleDelay; clock.Monotonic() < at {
		t.schedule(at)
		t.mu.Unlock()
		return
	}
	heap := t.trimmedHeap
	t.mu.Unlock()

	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > heap+minTrim || m.HeapAlloc < heap {
		debug.FreeOSMemory()
		runtime.ReadMemStats(&m)
		heap = m.HeapAlloc
	}
	proc.ReleaseFilePages() // 2 MiB that the last event or call has needed
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.trimmedHeap = heap; t.lastActivity != seen {
		return // there was activity in the meantime; the timer is set again
	}
	t.trimmed = true
	debug.SetMemoryLimit(int64(m.Sys-m.HeapReleased) + trimHeadroom)
	debug.SetGCPercent(-1)
}

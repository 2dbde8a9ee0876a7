package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/testbed"
)

// gcSettings returns the settings of the garbage collector; it is off if percent exceeds all values
// that can be set.
func gcSettings() (percent uint64, limited bool) {
	all := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"}}
	metrics.Read(all)
	return all[0].Value.Uint64(), all[1].Value.Uint64() != math.MaxInt64
}

// TestMemoryTrimmer_ReleasesMemoryWhenIdle checks that memory is released after a while without
// activity, and that garbage is then collected only if there is much, or a while after a call.
func TestMemoryTrimmer_ReleasesMemoryWhenIdle(t *testing.T) {
	before := debug.SetGCPercent(gcPercent)
	t.Cleanup(func() {
		debug.SetGCPercent(before)
		debug.SetMemoryLimit(math.MaxInt64)
	})
	trimmer := &memoryTrimmer{idleDelay: 20 * time.Millisecond, callDelay: 20 * time.Millisecond}
	isTrimmed := func() bool {
		percent, limited := gcSettings()
		return percent > math.MaxInt32 && limited
	}
	garbage = nil // of a previous repetition
	trimmer.noteActivity()
	testbed.Poll(t, "memory is trimmed", isTrimmed)

	var was runtime.MemStats
	runtime.ReadMemStats(&was)
	for range 4 * trimHeadroom >> 10 {
		garbage = make([]byte, 1<<10)
	}
	// The collector runs concurrently with the allocation: NumGC grows only when a collection is
	// complete.
	testbed.Poll(t, "garbage is collected above the limit", func() bool {
		var is runtime.MemStats
		runtime.ReadMemStats(&is)
		return is.NumGC > was.NumGC
	})

	garbage = make([]byte, 2*minTrim)
	trimmer.noteCall()
	testbed.Poll(t, "memory is trimmed after a call", func() bool {
		var is runtime.MemStats
		runtime.ReadMemStats(&is)
		return is.NumForcedGC > was.NumForcedGC && isTrimmed()
	})

	trimmer.mu.Lock()
	trimmer.callDelay, trimmer.idleDelay = 2*time.Hour, time.Hour
	trimmer.mu.Unlock()
	trimmer.noteCall()
	trimmer.noteActivity()
	testbed.Poll(t, "garbage is collected as before", func() bool {
		percent, limited := gcSettings()
		return percent == gcPercent && !limited
	})
	trimmer.mu.Lock()
	defer trimmer.mu.Unlock()
	assert.Equal(t, trimmer.lastActivity+time.Hour, trimmer.due, "activity is followed by a trim soon")
	trimmer.timer.Stop()
}

var garbage []byte

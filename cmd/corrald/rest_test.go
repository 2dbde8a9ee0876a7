package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/corrald/corral/internal/testbed"
)

// settings are those of the garbage collector; it is off where percent is above all that can be
// set.
func settings() (percent uint64, limited bool) {
	all := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"}}
	metrics.Read(all)
	return all[0].Value.Uint64(), all[1].Value.Uint64() != math.MaxInt64
}

// TestMemoryTrimmer_ReleasesMemoryWhenIdle: no garbage is looked for, but for a client that reads
// all the time, and what was used is given back.
func TestMemoryTrimmer_ReleasesMemoryWhenIdle(t *testing.T) {
	before := debug.SetGCPercent(gcPercent)
	t.Cleanup(func() {
		debug.SetGCPercent(before)
		debug.SetMemoryLimit(math.MaxInt64)
	})
	r := &rest{after: 20 * time.Millisecond}
	resting := func() bool {
		percent, limited := settings()
		return percent > math.MaxInt32 && limited
	}
	r.stir()
	testbed.Poll(t, "it rests", resting)

	var was runtime.MemStats
	runtime.ReadMemStats(&was)
	for range 4 * restRoom >> 10 {
		garbage = make([]byte, 1<<10)
	}
	// The collector runs beside what allocates: that it has begun shows once it is done.
	testbed.Poll(t, "it does not grow for ever", func() bool {
		var is runtime.MemStats
		runtime.ReadMemStats(&is)
		return is.NumGC > was.NumGC
	})

	r.mu.Lock()
	r.after = time.Hour
	r.mu.Unlock()
	r.stir()
	testbed.Poll(t, "garbage is collected as ever", func() bool {
		percent, limited := settings()
		return percent == gcPercent && !limited
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer.Stop()
}

var garbage []byte

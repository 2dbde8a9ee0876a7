package top

import (
	"strings"
	"time"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

const (
	historyLength = 60 // samples
	// After historyGap without a sample the history starts again, because its samples have to be about
	// a second apart.
	historyGap = 3 * time.Second
)

// usage is the resource usage of a session, as far as it was measured.
type usage struct {
	counters
	at      time.Time // when the counters were read
	cpu     float64   // processors used since the sample before; negative if unknown
	history []float64 // values of cpu, a second apart, the latest last
}

// add adds a sample.
func (u *usage) add(at time.Time, c counters) {
	before, since := u.counters, at.Sub(u.at)
	u.counters, u.at = c, at
	known := before.exists && before.cpuTime != unknown && c.exists && c.cpuTime != unknown
	// The first sample, or that of another run, does not give a rate.
	if !known || c.cpuTime < before.cpuTime || since <= 0 {
		u.cpu, u.history = -1, nil
		return
	}
	u.cpu = float64(c.cpuTime-before.cpuTime) / float64(since)
	if since > historyGap {
		u.history = nil
	}
	u.history = append(u.history, u.cpu)
	u.history = u.history[max(0, len(u.history)-historyLength):]
}

// memoryOr returns the memory usage in bytes, or fallback if it is unknown.
func (u *usage) memoryOr(fallback uint64) uint64 {
	if !u.exists || !wording.IsAvailable(u.memory) {
		return fallback
	}
	return u.memory
}

var bars = []rune("▁▂▃▄▅▆▇█")

// sparkline draws the last samples, one in each column, the latest at the right. The full height is
// at least a quarter of a processor, so that the curve of a nearly idle session stays low.
func (u *usage) sparkline(width int) string {
	samples := u.history[max(0, len(u.history)-width):]
	top := 0.25
	for _, s := range samples {
		top = max(top, s)
	}
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", width-len(samples)))
	for _, s := range samples {
		b.WriteRune(bars[max(0, min(len(bars)-1, int(s/top*float64(len(bars)-1)+0.5)))])
	}
	return b.String()
}

package top

import (
	"strings"
	"time"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

const (
	historyLength = 60              // samples
	historyGap    = 3 * time.Second // after which a history begins anew: its samples would not be a second apart
)

// usage is what a session takes, as far as it was looked at.
type usage struct {
	values
	at      time.Time // when it was read
	cpu     float64   // of one processor, since it was read before; below 0 if it cannot be told
	history []float64 // of cpu, a second apart, the latest last
}

// add takes new counters.
func (u *usage) add(at time.Time, v values) {
	before, since := u.values, at.Sub(u.at)
	u.values, u.at = v, at
	if !v.there || v.cpuTime == unknown {
		u.cpu, u.history = -1, nil
		return
	}
	if !before.there || before.cpuTime == unknown || v.cpuTime < before.cpuTime || since <= 0 { // the first, or those of another run
		u.cpu, u.history = -1, nil
		return
	}
	u.cpu = float64(v.cpuTime-before.cpuTime) / float64(since)
	if since > historyGap {
		u.history = nil
	}
	u.history = append(u.history, u.cpu)
	if len(u.history) > historyLength {
		u.history = u.history[len(u.history)-historyLength:]
	}
}

func (u *usage) memoryOr(otherwise uint64) uint64 {
	if !u.there || !wording.IsAvailable(u.memory) {
		return otherwise
	}
	return u.memory
}

var bars = []rune("▁▂▃▄▅▆▇█")

// sparkline draws the last samples, one a column, the latest at the right. A session that hardly
// does anything is not blown up: the full height is at least a quarter of a processor.
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

package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// sample is what was measured, in the unit of its row.
type sample []float64

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// quantile returns the value that a share q of the sample is not above (nearest rank).
func (s sample) quantile(q float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[max(int(math.Ceil(q*float64(len(s)))), 1)-1]
}

func (s sample) median() float64 { return s.quantile(0.5) }
func (s sample) p99() float64    { return s.quantile(0.99) }
func (s sample) max() float64    { return s.quantile(1) }

// row is one line of the result.
type row struct {
	what   string
	unit   string
	values sample
	floor  sample // what the least that could do the work takes; empty if there is no such thing
	bar    bar
	notes  []string
}

// ratio is that of the medians; NaN without a floor.
func (r *row) ratio() float64 { return r.values.median() / r.floor.median() }

func (r *row) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// bar is what a row has to reach. The zero value is none.
type bar struct {
	text string
	met  func(row) bool
}

func (b bar) and(other bar) bar {
	return bar{b.text + ", " + other.text, func(r row) bool { return b.met(r) && other.met(r) }}
}

func ratioAtMost(limit float64) bar {
	return bar{fmt.Sprintf("≤ %g×", limit), func(r row) bool { return r.ratio() <= limit }}
}

func ratioAtLeast(limit float64) bar {
	return bar{fmt.Sprintf("≥ %g×", limit), func(r row) bool { return r.ratio() >= limit }}
}

// neverAbove is about the slowest of all.
func neverAbove(limit float64, unit string) bar {
	return bar{fmt.Sprintf("max ≤ %g %s", limit, unit), func(r row) bool { return r.values.max() <= limit }}
}

// p99AtMost is about all but the slowest of a hundred.
func p99AtMost(limit float64, unit string) bar {
	return bar{fmt.Sprintf("p99 ≤ %g %s", limit, unit), func(r row) bool { return r.values.p99() <= limit }}
}

// laterAtMost is about the difference of the medians.
func laterAtMost(limit float64, unit string) bar {
	return bar{fmt.Sprintf("≤ +%g %s", limit, unit), func(r row) bool { return r.values.median()-r.floor.median() <= limit }}
}

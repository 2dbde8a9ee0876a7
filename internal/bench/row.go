package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// sample contains the measured values in the unit of their row.
type sample []float64

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// quantile returns the smallest value that at least a fraction q of the sample does not exceed
// (nearest rank).
func (s sample) quantile(q float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[max(int(math.Ceil(q*float64(len(s)))), 1)-1]
}

func (s sample) mean() float64 {
	var sum float64
	for _, v := range s {
		sum += v
	}
	return sum / float64(len(s))
}

func (s sample) median() float64 { return s.quantile(0.5) }
func (s sample) p99() float64    { return s.quantile(0.99) }
func (s sample) max() float64    { return s.quantile(1) }

// row is one line of the result.
type row struct {
	name   string
	unit   string
	values sample
	floor  sample // the same for the simplest possible program; empty if there is none
	bar    bar
	notes  []string
}

// ratio returns the ratio of the medians, NaN without a floor.
func (r *row) ratio() float64 { return r.values.median() / r.floor.median() }

func (r *row) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// bar is the required limit of a row. The zero value means that there is no limit.
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

// neverAbove limits the largest value.
func neverAbove(limit float64, unit string) bar {
	return bar{fmt.Sprintf("max ≤ %g %s", limit, unit), func(r row) bool { return r.values.max() <= limit }}
}

// medianAtMost limits the median.
func medianAtMost(limit float64, unit string) bar {
	return bar{fmt.Sprintf("≤ %g %s", limit, unit), func(r row) bool { return r.values.median() <= limit }}
}

// p99AtMost limits the 99th percentile.
func p99AtMost(limit float64, unit string) bar {
	return bar{fmt.Sprintf("p99 ≤ %g %s", limit, unit), func(r row) bool { return r.values.p99() <= limit }}
}

// laterAtMost limits the difference of the medians.
func laterAtMost(limit float64, unit string) bar {
	return bar{fmt.Sprintf("≤ +%g %s", limit, unit), func(r row) bool {
		return r.values.median()-r.floor.median() <= limit
	}}
}

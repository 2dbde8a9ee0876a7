package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// measured returns a group of two rows with a bar of 10 that yields one pair of values per
// measurement, and a counter of measurements.
func measured(tries ...[2]float64) (g group, measurements *int) {
	measurements = new(int)
	return group{name: "test", rows: func(context.Context, *bench) ([]row, error) {
		try := tries[*measurements]
		*measurements++
		bar := neverAbove(10, "ms")
		return []row{{name: "a", values: sample{try[0]}, bar: bar}, {name: "b", values: sample{try[1]}, bar: bar}}, nil
	}}, measurements
}

// TestBar_IsMissedIfTwoOfThreeMeasurementsMissIt checks that a single outlier neither meets nor
// misses a bar.
func TestBar_IsMissedIfTwoOfThreeMeasurementsMissIt(t *testing.T) {
	for _, try := range []struct {
		name         string
		tries        [][2]float64
		missed       []string
		measurements int
	}{
		{"met at once", [][2]float64{{1, 2}}, nil, 1},
		{"equal to the bar", [][2]float64{{10, 10}}, nil, 1},
		{"missed twice", [][2]float64{{11, 1}, {12, 1}}, []string{"a"}, 2},
		{"an outlier", [][2]float64{{11, 1}, {1, 1}, {2, 1}}, nil, 3},
		{"met by luck", [][2]float64{{11, 1}, {1, 1}, {12, 1}}, []string{"a"}, 3},
		{"each row on its own", [][2]float64{{11, 1}, {1, 11}, {12, 1}}, []string{"a"}, 3},
	} {
		g, measurements := measured(try.tries...)
		rows, err := g.judged(t.Context(), &bench{})
		require.NoError(t, err, try.name)
		assert.Equal(t, try.missed, missing(rows), try.name)
		assert.Equal(t, try.measurements, *measurements, try.name)
	}
}

// TestBar_IsMeasuredOnceWithMeasureOption expects that a missed bar is still reported.
func TestBar_IsMeasuredOnceWithMeasureOption(t *testing.T) {
	g, measurements := measured([2]float64{11, 1})
	rows, err := g.judged(t.Context(), &bench{options: options{measure: true}})
	require.NoError(t, err)
	assert.Equal(t, "no", rows[0].met())
	assert.Equal(t, 1, *measurements)
}

//go:build race

package testbed

// raceDetector reports whether this binary was built with the race detector.
const raceDetector = true

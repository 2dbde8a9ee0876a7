//go:build race

package testbed

// raceDetector tells whether this binary was built with the race detector.
const raceDetector = true

// Package clock reads the clocks that cannot be set. The wall clock can be set back and forth, by a
// user or by time synchronization: it determines neither the order of events nor durations. See
// clock_gettime(2).
package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Monotonic returns the time since the machine has booted without the time it was asleep:
// CLOCK_MONOTONIC, which is the same in all processes. systemd's timestamps whose names end in
// Monotonic use this clock. Values of different boots cannot be compared.
func Monotonic() time.Duration { return readClock(unix.CLOCK_MONOTONIC) }

// SinceBoot returns the time since the machine has booted including the time it was asleep:
// CLOCK_BOOTTIME.
func SinceBoot() time.Duration { return readClock(unix.CLOCK_BOOTTIME) }

func readClock(clock int32) time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(clock, &ts) // fails only for a clock that does not exist
	return time.Duration(ts.Nano())
}

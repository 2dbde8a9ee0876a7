// Package clock reads the clocks that nobody can set. The time of day, which people read, can be
// put back and forth, by a person or once the network tells better: it says neither what came first
// nor how long something took. See clock_gettime(2).
package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Monotonic is the time since the machine has booted, sleep not counted: CLOCK_MONOTONIC, which all
// processes share. It is what systemd's timestamps ending in Monotonic are. On another boot it
// means nothing.
func Monotonic() time.Duration { return read(unix.CLOCK_MONOTONIC) }

// SinceBoot is the time since the machine has booted, sleep included: CLOCK_BOOTTIME.
func SinceBoot() time.Duration { return read(unix.CLOCK_BOOTTIME) }

func read(clock int32) time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(clock, &ts) // fails for a clock that there is not
	return time.Duration(ts.Nano())
}

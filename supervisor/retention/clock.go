package retention

import (
	"time"

	"github.com/corrald/corral/supervisor/session"
)

// Clock detects that the wall clock was set. Its methods may be called from one goroutine at a
// time, and the others only after Check.
type Clock struct {
	boot  session.Boot // the current one, by the wall clock as it was last read
	setAt time.Time    // when the wall clock was first read, or Check detected that it was set
}

// NewClock returns a Clock for the boot with this id, the current one.
func NewClock(bootID string) Clock { return Clock{boot: session.Boot{ID: bootID}} }

// ClockTrustDelay is how long expired sessions are kept after the daemon has started or the clock
// was set. The clock of a machine without a battery for it, or one that was set to a wrong time, is
// corrected within minutes when there is a network.
const ClockTrustDelay = 10 * time.Minute

// Check computes the beginning of the current boot from the wall clock, now, and the time since the
// machine has booted, and returns that boot. It reports whether the clock was set since the last
// call, which the first call always does. Such a clock may be set again soon: see ClockTrustDelay.
func (c *Clock) Check(now time.Time, sinceBoot time.Duration) (boot session.Boot, wasSet bool) {
	began := now.Round(0).Add(-sinceBoot)
	wasSet = isClockSet(began.Sub(c.boot.Began))
	c.boot.Began = began
	if wasSet {
		c.setAt = now.Round(0)
	}
	return c.boot, wasSet
}

// isClockSet reports whether such a change of the clock's offset means that the clock was set.
// Smaller changes are the usual corrections by network time.
func isClockSet(by time.Duration) bool { return by.Abs() >= time.Minute }

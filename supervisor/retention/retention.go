// Package retention decides how long sessions are kept, and when one is suspended for being idle.
// These rules are pure: the caller passes the time. In points in time that are computed here, zero
// means never.
package retention

import (
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/supervisor/session"
)

// period returns how long a session in this state is kept, and the time from which this counts, by
// the wall clock, with the boot of that time. The result is config.Infinity for a session that is
// wanted, never ran, lives or is archived.
func period(rec *session.Session, state session.State, times config.Retention) (
	keep time.Duration, since time.Time, on session.Boot,
) {
	keep, since, on = config.Infinity, rec.StateChanged, rec.ChangedOn
	switch {
	case rec.Wanted():
	case state == session.Suspended && rec.Resumable():
		keep = times.Resumable
	case state == session.Suspended:
		keep = times.Suspended
	case state == session.Failed && rec.Seen == session.Failed && !rec.SeenAt.IsZero():
		keep, since, on = times.Failed, rec.SeenAt, rec.SeenOn
	case state == session.Failed:
		keep = max(times.Failed, times.Unseen)
	case state == session.Completed:
		keep = times.Completed
	case state == session.Stopped:
		keep = times.Stopped
	}
	if rec.Released.After(since) { // the session was wanted until then
		since, on = rec.Released, rec.ReleasedOn
	}
	return keep, since, on
}

// Expiry returns when the retention time of a session in this state ends, by the wall clock; zero
// if never. If the retention time began on this boot, it has its full length even if the clock was
// set meanwhile.
func (c *Clock) Expiry(rec *session.Session, state session.State, times config.Retention) time.Time {
	keep, since, on := period(rec, state, times)
	if keep == config.Infinity {
		return time.Time{}
	}
	at := since.Round(0).Add(keep)
	if on.ID == c.boot.ID {
		if set := c.boot.Began.Sub(on.Began); isClockSet(set) {
			at = at.Add(set)
		}
	}
	return at
}

// RemovalTime returns when the daemon removes a session in this state that expires at this time,
// zero if never: when it has expired and the clock can be trusted, and not before notBefore.
func (c *Clock) RemovalTime(
	rec *session.Session, state session.State, times config.Retention, expires, notBefore time.Time,
) time.Time {
	if expires.IsZero() {
		return expires
	}
	keep, _, _ := period(rec, state, times)
	at := expires
	for _, later := range []time.Time{c.setAt.Add(min(ClockTrustDelay, keep)), notBefore} {
		if at.Before(later) {
			at = later
		}
	}
	return at
}

// IsDue reports whether the time at, zero for never, has come at the time now.
func IsDue(at, now time.Time) bool { return !at.IsZero() && !at.After(now.Round(0)) }

// Earliest returns the earliest of these times, of which zero means never.
func Earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, at := range times {
		if first.IsZero() || !at.IsZero() && at.Before(first) {
			first = at
		}
	}
	return first
}

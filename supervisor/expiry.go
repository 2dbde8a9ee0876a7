package supervisor

import (
	"context"
	"slices"
	"time"

	"github.com/corrald/corral/supervisor/retention"
	"github.com/corrald/corral/supervisor/session"
)

// expiry removes the sessions whose retention time has ended, and sets the alarm to the time when
// the next session has to be removed or suspended. It belongs to the event loop; other goroutines
// may call only clean and refreshPulledIn.
type expiry struct {
	sup   *Supervisor
	clock retention.Clock

	pulledInUnknown      bool      // whether a unit starts them is unknown of some sessions that may expire
	refreshingPulledIn   bool      // a query to systemd which sessions units start is running
	refreshPulledInAgain bool      // that query has to be repeated
	alarmTime            time.Time // of the last SetAlarm
	alarmStale           bool      // the alarm may have to be set to another time
}

// checkClock returns the current boot, after it has detected whether the clock was set.
func (x *expiry) checkClock() session.Boot {
	boot, wasSet := x.clock.Check(time.Now(), x.sup.SinceBoot())
	if !wasSet {
		return boot
	}
	for _, e := range x.sup.sessions {
		if !e.published.expiry().IsZero() {
			x.sup.markDirty(e) // its new time of expiry is published
		}
	}
	x.alarmStale = true
	return boot
}

// Clean removes the sessions whose retention time has ended, with leftover processes in their
// scopes, and returns their ids. It never touches a workspace.
func (s *Supervisor) Clean(ctx context.Context) ([]string, error) {
	return s.expiry.clean(ctx, time.Now(), func(e *entry) time.Time { return e.published.expiry() })
}

// clean removes the sessions for which at returns a time that is not after now. First it asks
// systemd which of them a unit still starts: if systemd does not answer, none is removed.
func (x *expiry) clean(ctx context.Context, now time.Time, at func(*entry) time.Time) ([]string, error) {
	due, err := x.sup.idsWhere(func(e *entry) bool { return retention.IsDue(at(e), now) })
	if err != nil || len(due) == 0 {
		return nil, err
	}
	if err := x.refreshPulledIn(ctx); err != nil {
		return nil, err
	}
	ids, err := x.sup.idsWhere(func(e *entry) bool { return retention.IsDue(at(e), now) && !e.rec.Wanted() })
	if err != nil {
		return nil, err
	}
	return x.sup.forEachID(ctx, ids, len(ids), func(ctx context.Context, id string) error {
		return x.sup.Remove(ctx, id, false)
	})
}

// refreshPulledIn asks systemd which sessions a timer or another unit starts. It is called when the
// daemon starts, after each reload of the user manager (enabling or disabling a unit causes one),
// when a session begins to have a time of expiry, and before any session is removed.
func (x *expiry) refreshPulledIn(ctx context.Context) error {
	ids, err := x.sup.Systemd.PulledIn(ctx)
	if err != nil {
		return err
	}
	return x.sup.do(func() { x.setPulledIn(ids) })
}

// setPulledIn records which sessions a unit starts: those with these ids, and no others.
func (x *expiry) setPulledIn(ids []string) {
	for _, e := range x.sup.sessions {
		if pulled := slices.Contains(ids, e.rec.ID); pulled != e.rec.PulledIn {
			x.changeWanted(e, func() { e.rec.PulledIn = pulled })
		}
	}
}

// changeWanted calls change, which may change whether the session is wanted. A session that is not
// wanted any more is kept for as long as if it had ended now.
func (x *expiry) changeWanted(e *entry, change func()) {
	before := e.rec.Wanted()
	change()
	if before && !e.rec.Wanted() {
		e.rec.ReleasedOn, e.rec.Released = x.checkClock(), time.Now()
	}
	e.unsaved = true
	x.sup.markDirty(e)
}

// refreshPulledInSoon calls refreshPulledIn on another goroutine. If it is called while such a
// query is running, one more query follows. An error is ignored: there is another query before a
// session is removed.
func (x *expiry) refreshPulledInSoon() {
	if x.refreshingPulledIn {
		x.refreshPulledInAgain = true
		return
	}
	x.refreshingPulledIn = true
	go func() {
		ctx, cancel := x.sup.AfterFunc.Context(x.sup.ctx, systemdTimeout)
		defer cancel()
		_ = x.refreshPulledIn(ctx)
		x.sup.post(func() {
			again := x.refreshPulledInAgain
			x.refreshingPulledIn, x.refreshPulledInAgain = false, false
			if again {
				x.refreshPulledInSoon()
			}
		})
	}()
}

// changed is called with the old and the new time of expiry of a session. The alarm may have to be
// set to another time, and a session that begins to have such a time may be one that a unit starts.
func (x *expiry) changed(before, now time.Time) {
	if before.Equal(now) {
		return
	}
	x.alarmStale = true
	x.pulledInUnknown = x.pulledInUnknown || before.IsZero() && x.sup.loopStarted
}

// removalTime returns when the daemon removes the session, zero for never.
func (x *expiry) removalTime(e *entry) time.Time {
	if e.published == nil {
		return time.Time{}
	}
	state, times := session.State(e.published.State), x.sup.Config.Retention
	return x.clock.RemovalTime(e.rec, state, times, e.published.Expires, e.removeNotBefore)
}

// expiry returns Expires, or zero if there is no snapshot.
func (n *Snapshot) expiry() time.Time {
	if n == nil {
		return time.Time{}
	}
	return n.Expires
}

// iterationEnded is called after the changes of an iteration were published. It sets the alarm if
// that may be necessary, at any rate if a change affects the counts.
func (x *expiry) iterationEnded(countsChanged bool) {
	if countsChanged || x.alarmStale {
		x.armAlarm()
		x.alarmStale = false
	}
	if x.pulledInUnknown {
		x.pulledInUnknown = false
		x.refreshPulledInSoon()
	}
}

// alarmPrecision is how much the alarm may differ from the time that it is for: that time is
// computed from two clocks, which are not read at the same moment. An alarm that goes off too early
// is set again.
const alarmPrecision = time.Millisecond

// armAlarm sets the alarm to the time when the next session has to be removed, or suspended because
// it was idle for too long. The alarm is a timer of the wall clock: it also goes off after the
// machine was suspended, and when the clock is set.
func (x *expiry) armAlarm() {
	var next time.Time
	for _, e := range x.sup.sessions {
		next = retention.Earliest(next, x.removalTime(e), x.sup.suspendTime(e))
	}
	if next.IsZero() != x.alarmTime.IsZero() || next.Sub(x.alarmTime).Abs() > alarmPrecision {
		x.alarmTime = next
		if x.sup.SetAlarm != nil {
			x.sup.SetAlarm(next)
		}
	}
}

// AlarmRang is called when the alarm has gone off, when the clock was set, and when the machine was
// resumed from sleep.
func (s *Supervisor) AlarmRang() { s.post(s.expiry.alarmRang) }

// alarmRang suspends and removes the sessions that are due, and sets the alarm again.
func (x *expiry) alarmRang() {
	x.alarmTime = time.Time{}
	x.checkClock()
	x.sup.suspendIdle()
	now := time.Now()
	go func() {
		if ids, err := x.clean(x.sup.ctx, now, x.removalTime); err == nil && len(ids) > 0 {
			x.sup.Log.Info("removed sessions whose retention time has passed", "sessions", ids)
		}
		x.sup.post(func() {
			x.postponeRemovals(now)
			x.armAlarm()
		})
	}()
}

// postponeRemovals postpones the removal of the sessions that were due at the time tried and could
// not be removed: the cause, such as a defective disk, probably persists. A session that has become
// due since tried is not postponed.
func (x *expiry) postponeRemovals(tried time.Time) {
	for _, e := range x.sup.sessions {
		if !e.removed && retention.IsDue(x.removalTime(e), tried) {
			e.removeNotBefore = time.Now().Round(0).Add(retention.ClockTrustDelay)
		}
	}
}

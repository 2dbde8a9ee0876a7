package supervisor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/corrald/corral/supervisor/retention"
	"github.com/corrald/corral/supervisor/session"
)

// expiry removes the sessions whose retention time has ended, and suspends those that are idle for
// too long. It sets the alarm to the time when the next session is due. It belongs to the event
// loop; other goroutines may call only clean and refreshPulledIn.
type expiry struct {
	loop  *loop
	clock retention.Clock

	daemonStarted time.Duration // by CLOCK_MONOTONIC

	alarmTime  time.Time // of the last SetAlarm
	alarmStale bool      // the alarm may have to be set to another time

	pulledInUnknown bool // sessions have got a time of expiry since refreshUnknown last called refreshPulledIn
	refreshing      bool // refreshUnknown waits for refreshPulledIn
}

// Clean removes the sessions whose retention time has ended, with leftover processes in their
// scopes, and returns their ids. It never touches a workspace.
func (s *Supervisor) Clean(ctx context.Context) ([]string, error) {
	return s.loop.expiry.clean(ctx, time.Now(), func(e *entry) time.Time { return e.published.expiry() })
}

// clean removes the sessions for which at returns a time that is not after now. First it asks
// systemd which of them a unit still starts: if systemd does not answer, none is removed. Any
// goroutine but the event loop may call it. It calls at on the event loop.
func (x *expiry) clean(ctx context.Context, now time.Time, at func(*entry) time.Time) ([]string, error) {
	operations := &x.loop.operations
	isDue := func(e *entry) bool { return retention.IsDue(at(e), now) }
	due, err := operations.idsWhere(isDue)
	if err != nil || len(due) == 0 {
		return nil, err
	}
	if err := x.refreshPulledIn(ctx); err != nil {
		return nil, err
	}
	due, err = operations.idsWhere(func(e *entry) bool { return isDue(e) && !e.rec.Wanted() })
	if err != nil {
		return nil, err
	}
	return operations.forEachID(ctx, due, len(due), func(ctx context.Context, id string) error {
		return operations.remove(ctx, id, false)
	})
}

// refreshPulledIn asks systemd which sessions a timer or another unit starts. It is called after
// each reload of the user manager (enabling or disabling a unit causes one), when a session begins
// to have a time of expiry, and before any session is removed. Any goroutine but the event loop may
// call it.
func (x *expiry) refreshPulledIn(ctx context.Context) error {
	ids, err := x.loop.system.Systemd.PulledIn(ctx)
	if err != nil {
		return err
	}
	return x.loop.do(func() { x.setPulledIn(ids) })
}

// setPulledIn records which sessions a unit starts: those with these ids, and no others.
func (x *expiry) setPulledIn(ids []string) {
	for _, e := range x.loop.sessions.byID {
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
	e.recordChanged()
}

// checkClock returns the current boot, after it has detected whether the clock was set.
func (x *expiry) checkClock() session.Boot {
	boot, wasSet := x.clock.Check(time.Now(), x.loop.clocks.SinceBoot())
	if !wasSet {
		return boot
	}
	for _, e := range x.loop.sessions.byID {
		if !e.published.expiry().IsZero() {
			e.markDirty() // its new time of expiry is published
		}
	}
	x.alarmStale = true
	return boot
}

// changed is called with the old and the new time of expiry of a session. The alarm may have to be
// set to another time, and a session that begins to have such a time may be one that a unit starts.
func (x *expiry) changed(before, now time.Time) {
	if before.Equal(now) {
		return
	}
	x.alarmStale = true
	x.pulledInUnknown = x.pulledInUnknown || before.IsZero() && x.loop.started
}

// iterationEnded is called after the changes of an iteration were published. It sets the alarm if
// the counts have changed or the alarm is stale.
func (x *expiry) iterationEnded(countsChanged bool) {
	if countsChanged || x.alarmStale {
		x.armAlarm()
		x.alarmStale = false
	}
	x.refreshUnknown()
}

// refreshUnknown calls refreshPulledIn on another goroutine, if a session needs that. If such a
// query is running already, one more follows. An error is ignored: there is another query before a
// session is removed.
func (x *expiry) refreshUnknown() {
	if !x.pulledInUnknown || x.refreshing {
		return
	}
	x.pulledInUnknown, x.refreshing = false, true
	go func() {
		ctx, cancel := x.loop.clocks.AfterFunc.Context(x.loop.ctx, systemdTimeout)
		defer cancel()
		_ = x.refreshPulledIn(ctx)
		x.loop.post(func() {
			x.refreshing = false
			x.refreshUnknown()
		})
	}()
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
	for _, e := range x.loop.sessions.byID {
		next = retention.Earliest(next, x.removalTime(e), x.suspendTime(e))
	}
	if next.IsZero() != x.alarmTime.IsZero() || next.Sub(x.alarmTime).Abs() > alarmPrecision {
		x.alarmTime = next
		if x.loop.callbacks.SetAlarm != nil {
			x.loop.callbacks.SetAlarm(next)
		}
	}
}

// alarmRang suspends and removes the sessions that are due, and sets the alarm again.
func (x *expiry) alarmRang() {
	x.alarmTime = time.Time{}
	x.checkClock()
	x.suspendIdle()
	now := time.Now()
	go func() {
		ids, err := x.clean(x.loop.ctx, now, x.removalTime)
		x.loop.post(func() {
			if err == nil && len(ids) > 0 {
				x.loop.log.Info("removed sessions whose retention time has passed", "sessions", ids)
			}
			x.postponeRemovals(now)
			x.armAlarm()
		})
	}()
}

// suspendIdle suspends the sessions that have been idle for too long.
func (x *expiry) suspendIdle() {
	now := x.loop.clocks.Monotonic()
	for _, e := range x.loop.sessions.sorted() {
		if at := x.suspendsAt(e); at != 0 && at <= now {
			why := fmt.Sprintf("its agent was idle for %v", x.idleLimit(e))
			e.apply(session.EndRequested{Op: session.OpSuspend, Why: why, Idle: true})
		}
	}
}

// postponeRemovals postpones the removal of the sessions that were due at the time tried and could
// not be removed: the cause, such as a defective disk, probably persists. A session that has become
// due since tried is not postponed.
func (x *expiry) postponeRemovals(tried time.Time) {
	for _, e := range x.loop.sessions.byID {
		if retention.IsDue(x.removalTime(e), tried) {
			e.removeNotBefore = time.Now().Round(0).Add(retention.ClockTrustDelay)
		}
	}
}

// expiry returns Expires, or zero if there is no snapshot.
func (n *Snapshot) expiry() time.Time {
	if n == nil {
		return time.Time{}
	}
	return n.Expires
}

// removalTime returns when the daemon removes the session, zero for never.
func (x *expiry) removalTime(e *entry) time.Time {
	if e.published == nil {
		return time.Time{}
	}
	state, times := session.State(e.published.State), x.loop.settings.config.Retention
	return x.clock.RemovalTime(e.rec, state, times, e.published.Expires, e.removeNotBefore)
}

// suspendTime returns the time of the wall clock at which the session is to be suspended for being
// idle, zero if never. It is correct if until then the clock is not set and the machine does not
// sleep.
func (x *expiry) suspendTime(e *entry) time.Time {
	at := x.suspendsAt(e)
	if at == 0 {
		return time.Time{}
	}
	return x.loop.timeOf(at).Round(0)
}

// suspendsAt returns when the session is to be suspended for being idle, by CLOCK_MONOTONIC, 0 if
// never.
func (x *expiry) suspendsAt(e *entry) time.Duration {
	return retention.SuspendsAt(e.rec, retention.Idleness{
		Limit: x.idleLimit(e), Attached: e.run.reports.attached, DetachedAt: e.run.reports.detachedAt,
		Pending: e.pending.Op, DaemonStarted: x.daemonStarted,
	})
}

// idleLimit returns how long the session's agent may be idle.
func (x *expiry) idleLimit(e *entry) time.Duration {
	return retention.IdleLimit(e.rec, e.definition().IdleSuspend, x.loop.settings.config.IdleSuspend)
}

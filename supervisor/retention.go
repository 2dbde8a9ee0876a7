package supervisor

import (
	"context"
	"slices"
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/supervisor/session"
)

// retention returns how long a session in this state is kept, and the time from which this counts,
// by the wall clock, with the boot of that time. Keep is config.Infinity for a session that is
// wanted, never ran, lives or is archived.
func (s *Supervisor) retention(
	rec *session.Session, state session.State,
) (keep time.Duration, since time.Time, on session.Boot) {
	times := s.Config.Retention
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

// expiresAt returns when the session's retention time ends, by the wall clock; zero if never. If
// the retention time began on this boot, it has its full length even if the clock was set
// meanwhile.
func (s *Supervisor) expiresAt(rec *session.Session, state session.State) time.Time {
	keep, since, on := s.retention(rec, state)
	if keep == config.Infinity {
		return time.Time{}
	}
	at := since.Round(0).Add(keep)
	if on.ID == s.boot.ID {
		if set := s.boot.Began.Sub(on.Began); clockWasSet(set) {
			at = at.Add(set)
		}
	}
	return at
}

// clockWasSet reports whether such a change of the clock's offset means that the clock was set.
// Smaller changes are the usual corrections by network time.
func clockWasSet(by time.Duration) bool { return by.Abs() >= time.Minute }

// checkClock computes from the wall clock when this boot began, and thereby detects that the clock
// was set. Such a clock may be set again soon: see clockTrustDelay.
func (s *Supervisor) checkClock() {
	now := time.Now()
	began := now.Round(0).Add(-s.SinceBoot())
	if !clockWasSet(began.Sub(s.boot.Began)) {
		s.boot.Began = began
		return
	}
	s.boot, s.clockSetAt = session.Boot{ID: s.BootID, Began: began}, now.Round(0)
	for _, e := range s.sessions {
		if !e.published.expiry().IsZero() {
			s.markDirty(e) // its new time of expiry is published
		}
	}
	s.alarmStale = true
}

// clockTrustDelay is how long expired sessions are kept after the daemon has started or the clock
// was set. The clock of a machine without a battery for it, or one that was set to a wrong time, is
// corrected within minutes when there is a network.
const clockTrustDelay = 10 * time.Minute

// Clean removes the sessions whose retention time has ended, with leftover processes in their
// scopes, and returns their ids. It never touches a workspace.
func (s *Supervisor) Clean(ctx context.Context) ([]string, error) {
	return s.clean(ctx, time.Now(), func(e *entry) time.Time { return e.published.expiry() })
}

// clean removes the sessions for which at returns a time that is not after now. First it asks
// systemd which of them a unit still starts: if systemd does not answer, none is removed.
func (s *Supervisor) clean(ctx context.Context, now time.Time, at func(*entry) time.Time) ([]string, error) {
	due, err := s.idsWhere(func(e *entry) bool { return isDue(at(e), now) })
	if err != nil || len(due) == 0 {
		return nil, err
	}
	if err := s.refreshPulledIn(ctx); err != nil {
		return nil, err
	}
	ids, err := s.idsWhere(func(e *entry) bool { return isDue(at(e), now) && !e.rec.Wanted() })
	if err != nil {
		return nil, err
	}
	return s.forEachID(ctx, ids, len(ids), func(ctx context.Context, id string) error { return s.Remove(ctx, id, false) })
}

// refreshPulledIn asks systemd which sessions a timer or another unit starts. It is called when the
// daemon starts, after each reload of the user manager (enabling or disabling a unit causes one),
// when a session begins to have a time of expiry, and before any session is removed.
func (s *Supervisor) refreshPulledIn(ctx context.Context) error {
	ids, err := s.Systemd.PulledIn(ctx)
	if err != nil {
		return err
	}
	return s.do(func() { s.setPulledIn(ids) })
}

// setPulledIn records which sessions a unit starts: those with these ids, and no others.
func (s *Supervisor) setPulledIn(ids []string) {
	for _, e := range s.sessions {
		if pulled := slices.Contains(ids, e.rec.ID); pulled != e.rec.PulledIn {
			s.changeWanted(e, func() { e.rec.PulledIn = pulled })
		}
	}
}

// changeWanted calls change, which may change whether the session is wanted. A session that is not
// wanted any more is kept for as long as if it had ended now.
func (s *Supervisor) changeWanted(e *entry, change func()) {
	before := e.rec.Wanted()
	change()
	if before && !e.rec.Wanted() {
		s.checkClock()
		e.rec.Released, e.rec.ReleasedOn = time.Now(), s.boot
	}
	e.unsaved = true
	s.markDirty(e)
}

// refreshPulledInSoon calls refreshPulledIn on another goroutine. If it is called while such a
// query is running, one more query follows. An error is ignored: there is another query before a
// session is removed.
func (s *Supervisor) refreshPulledInSoon() {
	if s.refreshingPulledIn {
		s.refreshPulledInAgain = true
		return
	}
	s.refreshingPulledIn = true
	go func() {
		ctx, cancel := s.AfterFunc.Context(s.ctx, systemdTimeout)
		defer cancel()
		_ = s.refreshPulledIn(ctx)
		s.post(func() {
			again := s.refreshPulledInAgain
			s.refreshingPulledIn, s.refreshPulledInAgain = false, false
			if again {
				s.refreshPulledInSoon()
			}
		})
	}()
}

// expiryChanged is called with the old and the new time of expiry of a session. The alarm may have
// to be set to another time, and a session that begins to have such a time may be one that a unit
// starts.
func (s *Supervisor) expiryChanged(before, now time.Time) {
	if before.Equal(now) {
		return
	}
	s.alarmStale = true
	s.pulledInUnknown = s.pulledInUnknown || before.IsZero() && s.loopStarted
}

// isDue reports whether the time at, zero for never, has come at the time now.
func isDue(at, now time.Time) bool { return !at.IsZero() && !at.After(now.Round(0)) }

// removalTime returns when the daemon removes the session, zero for never: when the session has
// expired and the clock can be trusted.
func (s *Supervisor) removalTime(e *entry) time.Time {
	at := e.published.expiry()
	if at.IsZero() {
		return at
	}
	keep, _, _ := s.retention(e.rec, session.State(e.published.State))
	trusted := s.clockSetAt.Add(min(clockTrustDelay, keep))
	for _, later := range []time.Time{trusted, e.removeNotBefore} {
		if at.Before(later) {
			at = later
		}
	}
	return at
}

// earlier returns the earlier of two times. A zero time means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// expiry returns Expires, or zero if there is no snapshot.
func (n *Snapshot) expiry() time.Time {
	if n == nil {
		return time.Time{}
	}
	return n.Expires
}

// alarmPrecision is how much the alarm may differ from the time that it is for: that time is
// computed from two clocks, which are not read at the same moment. An alarm that goes off too early
// is set again.
const alarmPrecision = time.Millisecond

// armAlarm sets the alarm to the time when the next session has to be removed, or suspended because
// it was idle for too long. The alarm is a timer of the wall clock: it also goes off after the
// machine was suspended, and when the clock is set.
func (s *Supervisor) armAlarm() {
	var next time.Time
	for _, e := range s.sessions {
		if at := earlier(s.removalTime(e), s.suspendTime(e)); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if next.IsZero() != s.alarmTime.IsZero() || next.Sub(s.alarmTime).Abs() > alarmPrecision {
		s.alarmTime = next
		if s.SetAlarm != nil {
			s.SetAlarm(next)
		}
	}
}

// AlarmRang is called when the alarm has gone off, when the clock was set, and when the machine was
// resumed from sleep.
func (s *Supervisor) AlarmRang() {
	s.post(func() {
		s.alarmTime = time.Time{}
		s.checkClock()
		s.suspendIdle()
		now := time.Now()
		go func() {
			if ids, err := s.clean(s.ctx, now, s.removalTime); err == nil && len(ids) > 0 {
				s.Log.Info("removed sessions whose retention time has passed", "sessions", ids)
			}
			s.post(func() {
				s.postponeRemovals(now)
				s.armAlarm()
			})
		}()
	})
}

// postponeRemovals postpones the removal of the sessions that were due at the time tried and could
// not be removed: the cause, such as a defective disk, probably persists. A session that has become
// due since tried is not postponed.
func (s *Supervisor) postponeRemovals(tried time.Time) {
	for _, e := range s.sessions {
		if !e.removed && isDue(s.removalTime(e), tried) {
			e.removeNotBefore = time.Now().Round(0).Add(clockTrustDelay)
		}
	}
}

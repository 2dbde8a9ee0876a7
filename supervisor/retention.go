package supervisor

import (
	"context"
	"slices"
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/supervisor/session"
)

// retention returns how long a session in this state is kept, and since when that counts: the time by the wall clock, and the boot of it. It is config.Infinity
// for one that is wanted, never ran, lives or is archived.
func (s *Supervisor) retention(rec *session.Session, state session.State) (keep time.Duration, since time.Time, on session.Boot) {
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
	if rec.Released.After(since) { // it was wanted until then
		since, on = rec.Released, rec.ReleasedOn
	}
	return keep, since, on
}

// expires returns when the session has outlived its retention time, by the wall clock: zero if it never does. What has become of it on this boot is kept
// for as long as it should be, also where the clock was set meanwhile.
func (s *Supervisor) expires(rec *session.Session, state session.State) time.Time {
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

// clockWasSet tells whether the clock was set by somebody, or only kept in step with the network's, as it always is.
func clockWasSet(by time.Duration) bool { return by.Abs() >= time.Minute }

// lookAtClock notes what the clock says of this boot. A clock that turns out to have been set may be set again soon.
func (s *Supervisor) lookAtClock() {
	now := time.Now()
	began := now.Round(0).Add(-s.SinceBoot())
	if !clockWasSet(began.Sub(s.boot.Began)) {
		s.boot.Began = began
		return
	}
	s.boot, s.clockSince = session.Boot{ID: s.BootID, Began: began}, now.Round(0)
	for _, e := range s.sessions {
		if !e.shown.expiry().IsZero() {
			s.touch(e) // it is announced anew
		}
	}
	s.rearm = true
}

// trustAfter is how long what is found to have expired is kept all the same once the daemon has started or the clock was set: a machine without a battery for its
// clock, or with one that was set wrong, is put right within minutes, when there is a network.
const trustAfter = 10 * time.Minute

// Clean removes what has outlived its retention time, with what is left in its scope, and returns the ids. A workspace is never touched.
func (s *Supervisor) Clean(ctx context.Context) ([]string, error) {
	return s.clean(ctx, time.Now(), func(e *entry) time.Time { return e.shown.expiry() })
}

// clean removes the sessions whose time, by at, has come by now. systemd is asked first which of
// them are still wanted: if it does not answer none is removed.
func (s *Supervisor) clean(ctx context.Context, now time.Time, at func(*entry) time.Time) ([]string, error) {
	due, err := s.idsWhere(func(e *entry) bool { return isDue(at(e), now) })
	if err != nil || len(due) == 0 {
		return nil, err
	}
	if err := s.lookAtUnits(ctx); err != nil {
		return nil, err
	}
	ids, err := s.idsWhere(func(e *entry) bool { return isDue(at(e), now) && !e.rec.Wanted() })
	if err != nil {
		return nil, err
	}
	return s.eachOf(ctx, ids, len(ids), func(ctx context.Context, id string) error { return s.Remove(ctx, id, false) })
}

// lookAtUnits asks systemd which sessions a timer or another unit starts: when the daemon starts, after each reload of the user manager, which enabling and
// disabling a unit brings about, when a session begins to have a time at which it expires, and before any is removed.
func (s *Supervisor) lookAtUnits(ctx context.Context) error {
	ids, err := s.World.PulledIn(ctx)
	if err != nil {
		return err
	}
	return s.do(func() { s.pulledIn(ids) })
}

// pulledIn takes note of the sessions that a unit starts. The others are not, or not any more.
func (s *Supervisor) pulledIn(ids []string) {
	for _, e := range s.sessions {
		if pulled := slices.Contains(ids, e.rec.ID); pulled != e.rec.PulledIn {
			s.want(e, func() { e.rec.PulledIn = pulled })
		}
	}
}

// want changes whether a session is wanted. One that is not any more is kept for as long as if it had ended just now.
func (s *Supervisor) want(e *entry, change func()) {
	before := e.rec.Wanted()
	change()
	if before && !e.rec.Wanted() {
		s.lookAtClock()
		e.rec.Released, e.rec.ReleasedOn = time.Now(), s.boot
	}
	e.unsaved = true
	s.touch(e)
}

// lookAtUnitsSoon does so outside of the loop, once for all that ask for it meanwhile. What is not learned now is learned the next time.
func (s *Supervisor) lookAtUnitsSoon() {
	if s.askingUnits {
		s.askUnitsAgain = true
		return
	}
	s.askingUnits = true
	go func() {
		ctx, cancel := s.AfterFunc.Context(s.ctx, startTimeout)
		defer cancel()
		_ = s.lookAtUnits(ctx)
		s.post(func() {
			again := s.askUnitsAgain
			s.askingUnits, s.askUnitsAgain = false, false
			if again {
				s.lookAtUnitsSoon()
			}
		})
	}()
}

// showExpiry follows from a session's new time of expiry: the alarm may have to be set anew, and a session that begins to have such a time may be one that a unit
// starts.
func (s *Supervisor) showExpiry(before, now time.Time) {
	if before.Equal(now) {
		return
	}
	s.rearm = true
	s.unitsUnsure = s.unitsUnsure || before.IsZero() && s.running
}

func isDue(at, now time.Time) bool { return !at.IsZero() && !at.After(now.Round(0)) }

// removal returns when the session is to be removed without anybody asking for it, zero for never: when it has expired, by a clock that can be trusted.
func (s *Supervisor) removal(e *entry) time.Time {
	at := e.shown.expiry()
	if at.IsZero() {
		return at
	}
	keep, _, _ := s.retention(e.rec, session.State(e.shown.State))
	trusted := s.clockSince.Add(min(trustAfter, keep))
	for _, later := range []time.Time{trusted, e.removeAgain} {
		if at.Before(later) {
			at = later
		}
	}
	return at
}

// earlier returns the earlier of two times of which zero stands for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (n *Snapshot) expiry() time.Time {
	if n == nil {
		return time.Time{}
	}
	return n.Expires
}

// alarmPrecision is how far the alarm may be from what it is for: two clocks were not read at the same moment. One that goes off too early is set again.
const alarmPrecision = time.Millisecond

// armExpiry sets the alarm for the session that is to be removed next, or will have been idle for too long. The alarm is the wall clock's: it goes off after
// a sleep, and when the clock is set.
func (s *Supervisor) armExpiry() {
	var next time.Time
	for _, e := range s.sessions {
		if at := earlier(s.removal(e), s.suspension(e)); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if next.IsZero() != s.nextExpiry.IsZero() || next.Sub(s.nextExpiry).Abs() > alarmPrecision {
		s.nextExpiry = next
		if s.Alarm != nil {
			s.Alarm(next)
		}
	}
}

// AlarmRang is told that the alarm has gone off, that the clock was set, or that the machine has slept and woken.
func (s *Supervisor) AlarmRang() {
	s.post(func() {
		s.nextExpiry = time.Time{}
		s.lookAtClock()
		s.suspendIdle()
		now := time.Now()
		go func() {
			if ids, err := s.clean(s.ctx, now, s.removal); err == nil && len(ids) > 0 {
				s.Log.Info("removed sessions whose retention time has passed", "sessions", ids)
			}
			s.post(func() {
				s.removeLater(now)
				s.armExpiry()
			})
		}()
	})
}

// removeLater postpones the removal of the sessions that were due at tried and could not be removed:
// a disk that refuses it does so again. A session that became due meanwhile was not tried.
func (s *Supervisor) removeLater(tried time.Time) {
	for _, e := range s.sessions {
		if !e.removed && isDue(s.removal(e), tried) {
			e.removeAgain = time.Now().Round(0).Add(trustAfter)
		}
	}
}

package supervisor

import (
	"context"
	"time"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/supervisor/session"
)

// retention returns how long a session in this state is kept; config.Infinity where only its user may end it.
func (s *Supervisor) retention(rec *session.Session, state session.State) time.Duration {
	keep := s.Config.Retention
	switch {
	case state == session.Suspended && rec.Resumable():
		return keep.Resumable
	case state == session.Suspended:
		return keep.Suspended
	case state == session.Failed:
		return keep.Failed
	case state == session.Completed:
		return keep.Completed
	case state == session.Stopped:
		return keep.Stopped
	}
	return config.Infinity
}

// expires returns when the session has outlived its retention time, by the wall clock: zero if it never does. What has become of it on this boot is kept
// for as long as it should be, also where the clock was set meanwhile.
func (s *Supervisor) expires(rec *session.Session, state session.State) time.Time {
	keep := s.retention(rec, state)
	if keep == config.Infinity {
		return time.Time{}
	}
	at := rec.StateChanged.Round(0).Add(keep)
	if rec.ChangedOn.ID == s.boot.ID {
		if set := s.boot.Began.Sub(rec.ChangedOn.Began); clockWasSet(set) {
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
	return s.clean(ctx, func(e *entry) time.Time { return e.shown.expiry() })
}

// clean removes the sessions whose time, by at, has come.
func (s *Supervisor) clean(ctx context.Context, at func(*entry) time.Time) ([]string, error) {
	now := time.Now()
	ids, err := s.idsWhere(func(e *entry) bool { return isDue(at(e), now) })
	if err != nil {
		return nil, err
	}
	return s.eachOf(ctx, ids, len(ids), func(ctx context.Context, id string) error { return s.Remove(ctx, id, false) })
}

func isDue(at, now time.Time) bool { return !at.IsZero() && !at.After(now.Round(0)) }

// removal returns when the session is to be removed without anybody asking for it, zero for never: when it has expired, by a clock that can be trusted.
func (s *Supervisor) removal(e *entry) time.Time {
	at := e.shown.expiry()
	if at.IsZero() {
		return at
	}
	trusted := s.clockSince.Add(min(trustAfter, s.retention(e.rec, session.State(e.shown.State))))
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
		go func() {
			if ids, err := s.clean(s.ctx, s.removal); err == nil && len(ids) > 0 {
				s.Log.Info("removed sessions whose retention time is over", "sessions", ids)
			}
			s.post(func() {
				s.removeLater()
				s.armExpiry()
			})
		}()
	})
}

// removeLater gives those that could not be removed now some time: a disk that refuses it does so again.
func (s *Supervisor) removeLater() {
	now := time.Now().Round(0)
	for _, e := range s.sessions {
		if !e.removed && isDue(s.removal(e), now) {
			e.removeAgain = now.Add(trustAfter)
		}
	}
}

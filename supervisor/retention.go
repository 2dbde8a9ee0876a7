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

// expires returns when the session has outlived its retention time, by the wall clock: zero if it never does.
func (s *Supervisor) expires(rec *session.Session, state session.State) time.Time {
	if keep := s.retention(rec, state); keep != config.Infinity {
		return rec.StateChanged.Round(0).Add(keep)
	}
	return time.Time{}
}

// Clean removes what has outlived its retention time, with what is left in its scope, and returns the ids. A workspace is never touched.
func (s *Supervisor) Clean(ctx context.Context) ([]string, error) {
	now := time.Now()
	ids, err := s.idsWhere(func(e *entry) bool { return s.expired(e, now) })
	if err != nil {
		return nil, err
	}
	return s.eachOf(ctx, ids, len(ids), func(ctx context.Context, id string) error { return s.Remove(ctx, id, false) })
}

func (s *Supervisor) expired(e *entry, now time.Time) bool {
	at := e.shown.expiry()
	return !at.IsZero() && !at.After(now)
}

func (n *Snapshot) expiry() time.Time {
	if n == nil {
		return time.Time{}
	}
	return n.Expires
}

// armExpiry sets the alarm for the session that expires next. The alarm is the wall clock's: it goes off after a sleep, and when the clock is set.
func (s *Supervisor) armExpiry() {
	var next time.Time
	for _, e := range s.sessions {
		if at := e.shown.expiry(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if !next.Equal(s.nextExpiry) {
		s.nextExpiry = next
		if s.Alarm != nil {
			s.Alarm(next)
		}
	}
}

// AlarmRang is told that the alarm has gone off, or that the clock was set.
func (s *Supervisor) AlarmRang() {
	s.post(func() {
		s.nextExpiry = time.Time{}
		go func() {
			if ids, err := s.Clean(s.ctx); err == nil && len(ids) > 0 {
				s.Log.Info("removed sessions whose retention time is over", "sessions", ids)
			}
			s.post(s.armExpiry)
		}()
	})
}

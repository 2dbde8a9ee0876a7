package supervisor

import (
	"context"
	"time"

	"github.com/corrald/corral/supervisor/session"
)

// Adopt takes the saved sessions over, before Run: it lists what there is and applies what it finds as events, as anybody would tell them.
// Scopes that belong to no session are told in the journal and left alone.
func (s *Supervisor) Adopt(ctx context.Context, saved []*session.Session) error {
	for _, rec := range saved {
		s.add(&entry{rec: rec})
	}
	if err := s.compare(ctx); err != nil {
		return err
	}
	s.settle()
	s.tellStatus()
	s.armExpiry()
	return nil
}

// Resync compares what systemd has with what the sessions say: events may have been missed.
func (s *Supervisor) Resync() {
	ctx, cancel := context.WithTimeout(s.ctx, startTimeout)
	defer cancel()
	scopes, err := s.World.Scopes(ctx)
	s.post(func() {
		if err != nil {
			s.Log.Error("cannot list the scopes", "err", err)
			return
		}
		s.compareWith(scopes)
	})
}

func (s *Supervisor) compare(ctx context.Context) error {
	// Watched first, then listed: what ends in between is told.
	for _, e := range s.sessions {
		if r := e.rec.Run; r.Live() && r.BootID == s.BootID {
			if err := s.World.Watch(ctx, r.Unit); err != nil {
				return err
			}
		}
	}
	scopes, err := s.World.Scopes(ctx)
	if err != nil {
		return err
	}
	s.compareWith(scopes)
	return nil
}

func (s *Supervisor) compareWith(scopes []Scope) {
	byName := make(map[string]Scope, len(scopes))
	for _, sc := range scopes {
		byName[sc.Name] = sc
	}
	for _, e := range s.sessions {
		if r := e.rec.Run; r.Live() && !e.busy {
			s.takeOver(e, byName[r.Unit])
			delete(byName, r.Unit)
		}
	}
	for name, sc := range byName {
		if sc.Active && s.units[name] == nil {
			s.Log.Warn("a scope belongs to no session", "unit", name)
		}
	}
}

// takeOver applies what is found of a run that was alive when it was last saved. A zero scope is one that systemd does not know.
func (s *Supervisor) takeOver(e *entry, sc Scope) {
	r := e.rec.Run
	now := time.Now()
	s.touch(e)
	found := s.readExit(e)
	switch {
	case r.BootID != s.BootID:
		s.apply(e, session.MachineWentDown{Run: r.ID, At: now})
		return
	case sc.Active && (r.InvocationID == "" || sc.InvocationID == r.InvocationID):
		s.apply(e, session.ScopeStarted{Run: r.ID, InvocationID: sc.InvocationID, ControlGroup: sc.ControlGroup})
		if !r.Left.IsZero() {
			s.apply(e, session.FoundAlive{Run: r.ID})
		}
	default:
		if r.Scope == session.ScopeNone && !found {
			s.apply(e, session.StartFailed{Run: r.ID, Reason: "corrald was interrupted while it started", At: now})
		}
		s.apply(e, session.ScopeEnded{Run: r.ID, Result: sc.Result, At: now})
		return
	}
	if e.run.stateDir == 0 {
		if err := s.watchRecord(e); err != nil {
			s.Log.Warn("cannot watch a session", "session", e.rec.ID, "err", err)
		}
		found = s.readExit(e)
	}
	if !s.watchTmux(e) {
		s.apply(e, session.TmuxDied{Run: r.ID, Process: r.TmuxProc})
	}
	s.connectShim(e)
	if r.Tmux == session.NotSeen {
		// The daemon went away before it had put anything into the scope that it could find again.
		s.apply(e, session.StartFailed{Run: r.ID, Reason: "corrald was interrupted while it started", At: now})
		s.end(e, time.Second)
		return
	}
	if !found && e.run.shim.key == 0 && !r.Started.IsZero() {
		s.shimHungUp(e, r.ID)
	}
	if r.Intent != session.NoIntent && e.run.stage == notEnding {
		s.end(e, 0)
	}
}

package supervisor

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/corrald/corral/supervisor/session"
)

// shutdownMargin is how much longer than the agents' stop timeout a shutdown may take: until the
// killed processes are gone, and that is saved.
const shutdownMargin = 5 * time.Second

// shutDown ends the event loop. It is called when the daemon has to exit, or has lost the bus.
//
// If only the daemon exits, the agents continue to run. Each live session is marked, so that it is
// suspended if its agent is gone when the next daemon starts. But agents whose scopes systemd stops
// at the same time are stopped first: systemd has left that to this daemon, or is about to, and
// there may be no other daemon.
//
// If the whole user manager stops, at logout or poweroff, all agents are stopped so that they can
// be resumed: systemd stops the scopes only after the daemon, and would send SIGTERM to all their
// processes at the same time.
func (s *Supervisor) shutDown() {
	s.stopping = true
	for _, e := range s.sessions {
		if canRetrySave(e) { // for the last time
			s.markDirty(e)
		}
	}
	if s.isManagerStopping() {
		s.setShuttingDown(true)
		for _, e := range s.sorted() {
			if e.rec.Run.Live() {
				s.apply(e, session.EndRequested{Op: session.OpSuspend, Why: "the login session ended", Systemd: true})
			}
		}
		s.waitForScopes(s.hasLiveRuns)
		return
	}
	s.setShuttingDown(s.machineStops)
	s.detectStoppingScopes()
	s.waitForScopes(s.hasStoppingScopes)
	now := time.Now()
	for _, e := range s.sorted() {
		r := e.rec.Run
		switch {
		case !r.Ended():
			s.apply(e, session.LeftRunning{Run: r.ID, At: now})
		case e.run.systemdStops && s.isEmptied(e): // systemd may not have reported it yet, or the bus is lost
			s.apply(e, session.ScopeEnded{Run: r.ID, At: now})
		}
	}
	s.finishIteration()
}

// waitForScopes continues the event loop while mustWait returns true, but not longer than the live
// agents have time to exit.
func (s *Supervisor) waitForScopes(mustWait func() bool) {
	s.finishIteration()
	if !mustWait() {
		return
	}
	timeout := s.Config.StopTimeout
	for _, e := range s.sessions {
		if e.rec.Run.Live() {
			timeout = max(timeout, s.stopTimeout(e.rec))
		}
	}
	timeout += shutdownMargin
	if s.StopDelayed != nil {
		s.StopDelayed(timeout)
	}
	limit, cancel := s.AfterFunc.Context(context.Background(), timeout)
	defer cancel()
	for mustWait() {
		select {
		case f := <-s.mailbox:
			s.iterate(f)
		case <-limit.Done():
			return
		}
	}
}

// detectStoppingScopes lists the scopes and begins to stop the agents of those that systemd stops.
// It abandons all others to systemd, which cannot know yet that this daemon exits. A run that has
// ended by such a stop before systemd could report it is recorded as stopped.
func (s *Supervisor) detectStoppingScopes() {
	if !s.hasLiveRuns() {
		return
	}
	ctx, cancel := s.AfterFunc.Context(s.ctx, shutdownQueryTimeout)
	defer cancel()
	scopes, err := s.Systemd.Scopes(ctx)
	if err != nil {
		s.Log.Warn("cannot list the scopes that are stopped together with corrald", "err", err)
		return
	}
	active, running := map[*entry]bool{}, []string{}
	for _, sc := range scopes {
		e := s.findByUnit(sc.Name)
		if e == nil || !isInvocationOf(e.rec.Run, sc.InvocationID) {
			continue
		}
		active[e] = sc.Active && !sc.Stopping
		switch {
		case sc.Stopping:
			e.run.systemdStops = true
			s.queryFoundStop(e)
		case sc.Active:
			running = append(running, sc.Name)
		}
	}
	stopping, err := s.Systemd.Abandon(ctx, running)
	if err != nil {
		s.Log.Warn("cannot leave the scopes to systemd", "err", err)
	}
	for _, name := range stopping {
		e := s.findByUnit(name)
		e.run.systemdStops = true
		s.queryFoundStop(e)
	}
	for _, e := range s.sorted() {
		if r := e.rec.Run; r.Live() && !active[e] {
			if stop, ok := s.recordedStop(e); ok {
				e.run.systemdStops = true
				s.apply(e, stop)
			}
		}
	}
}

// hasStoppingScopes reports whether there are agents to wait for in scopes that systemd stops.
func (s *Supervisor) hasStoppingScopes() bool {
	if s.stopQueries > 0 {
		return true
	}
	for _, e := range s.sessions {
		if e.run.systemdStops && e.rec.Run.Live() && !s.isEmptied(e) {
			return true
		}
	}
	return false
}

// isEmptied reports whether the run's agent has ended and no process of its scope is left, although
// systemd has not reported the end of the scope.
func (s *Supervisor) isEmptied(e *entry) bool {
	r := e.rec.Run
	return r.Live() && r.Ended() && r.ControlGroup != "" && !s.ControlGroups.IsPopulated(r.ControlGroup)
}

// SuspendForShutdown suspends all sessions because the machine is about to be shut down, and
// returns their ids once their scopes are empty. Until ShutdownCancelled is called, no run begins:
// methods that begin one return ShuttingDown. The call is accepted (see WhenAccepted) once all
// suspensions are decided.
func (s *Supervisor) SuspendForShutdown(ctx context.Context) ([]string, error) {
	return s.suspendAll(ctx, "the machine was shut down", func() {
		s.machineStops = true
		for _, e := range s.sessions {
			if r := e.rec.Run; !e.removed && !r.Ended() && r.Intent == session.NoIntent {
				s.suspendedForShutdown[e.rec.ID] = r.ID
			}
		}
		s.setShuttingDown(true)
	})
}

// ShutdownCancelled reverts SuspendForShutdown because the shutdown of the machine was canceled. It
// resumes the sessions that were suspended for it, the oldest first and a few at the same time,
// except those that were used since. It returns the ids of the sessions that run again. A session
// that is still stopping is not resumed: for that, call ShutdownCancelled once more after
// SuspendForShutdown has returned. The call is accepted once runs may begin again.
func (s *Supervisor) ShutdownCancelled(ctx context.Context) ([]string, error) {
	err := s.do(func() {
		s.machineStops = false
		s.setShuttingDown(s.stopping)
		maps.DeleteFunc(s.suspendedForShutdown, func(id, run string) bool {
			e := s.sessions[id]
			return e == nil || e.rec.Run == nil || e.rec.Run.ID != run
		})
	})
	if err != nil {
		return nil, err
	}
	accepted(ctx)
	// Sessions that are not resumed before the next shutdown is announced are resumed after that one.
	ids, err := s.idsWhere(func(e *entry) bool {
		return s.suspendedForShutdown[e.rec.ID] != "" && e.rec.View().State == session.Suspended
	})
	if err != nil {
		return nil, err
	}
	return s.forEachID(ctx, ids, maxResumes, s.Resume)
}

// setShuttingDown records and announces that the machine or the login session is about to end, or
// no longer is.
func (s *Supervisor) setShuttingDown(on bool) {
	if on != s.announcedShutdown && s.AnnounceShutdown != nil {
		s.AnnounceShutdown(on)
	}
	s.announcedShutdown = on
}

// checkNotShuttingDown returns an error if a run that begins now would be stopped immediately.
func (s *Supervisor) checkNotShuttingDown() error {
	switch {
	case s.stopping:
		return refuse(ShuttingDown, "corrald is shutting down")
	case s.machineStops:
		return refuse(ShuttingDown, "the machine is shutting down")
	}
	return nil
}

// reportAnyAgentAlive calls SetAnyAgentAlive if its argument has changed.
func (s *Supervisor) reportAnyAgentAlive() {
	alive := false
	for _, e := range s.sessions {
		alive = alive || !e.removed && e.rec.Run.AgentAlive()
	}
	if s.SetAnyAgentAlive != nil && alive != s.anyAgentAlive {
		s.SetAnyAgentAlive(alive)
	}
	s.anyAgentAlive = alive
}

// shutdownQueryTimeout limits a query to systemd while the daemon exits: systemd is busy then, and
// may be gone.
const shutdownQueryTimeout = 2 * time.Second

// isManagerStopping reports whether the whole user manager is stopping.
func (s *Supervisor) isManagerStopping() bool {
	ctx, cancel := s.AfterFunc.Context(s.ctx, shutdownQueryTimeout)
	defer cancel()
	return s.Systemd.IsStopping(ctx)
}

// hasLiveRuns reports whether any session has a live run.
func (s *Supervisor) hasLiveRuns() bool {
	for _, e := range s.sessions {
		if e.rec.Run.Live() {
			return true
		}
	}
	return false
}

// AtLogin returns the ids of the sessions that Login would resume or start: suspended sessions with
// OnLogin "resume", then sessions with OnLogin "start" that do not run; in both cases the oldest
// first.
func (s *Supervisor) AtLogin() ([]string, error) {
	resume, err := s.idsWhere(func(e *entry) bool { return loginAction(e) == "resume" })
	if err != nil {
		return nil, err
	}
	start, err := s.idsWhere(func(e *entry) bool { return loginAction(e) == "start" })
	return append(resume, start...), err
}

// loginAction returns what is to be done with the session at login: "resume", "start", or "" for
// nothing.
func loginAction(e *entry) string {
	if e.rec.OnLogin == "resume" && e.rec.View().State == session.Suspended ||
		e.rec.OnLogin == "start" && checkStartable(e) == nil {
		return e.rec.OnLogin
	}
	return ""
}

// Login resumes or starts these sessions, as their OnLogin specifies, in this order and a few at
// the same time, unless nothing is to be done with them any more. It calls done for each session
// that it has finished, also for one that failed, from several goroutines. It continues if a
// session fails: that session's state contains the reason.
func (s *Supervisor) Login(ctx context.Context, ids []string, done func(id string)) error {
	_, err := s.forEachID(ctx, ids, maxResumes, func(ctx context.Context, id string) error {
		err := s.loginSession(ctx, id)
		var refused *Error
		if err == nil || errors.As(err, &refused) && refused.Kind != ShuttingDown && refused.Kind != TimedOut {
			done(id)
		}
		return err
	})
	return err
}

func (s *Supervisor) loginSession(ctx context.Context, id string) error {
	action := ""
	if err := s.do(func() {
		if e, err := s.find(id); err == nil {
			action = loginAction(e)
		}
	}); err != nil || action == "" {
		return err
	}
	s.setUnattended(id, true)
	defer s.setUnattended(id, false)
	if action == "start" {
		return s.Start(ctx, id)
	}
	return s.Resume(ctx, id)
}

// setUnattended records whether the session is being started without a client that would receive
// the error if that failed.
func (s *Supervisor) setUnattended(id string, on bool) {
	_ = s.do(func() {
		if e, err := s.find(id); err == nil {
			e.unattended = on
		}
	})
}

package supervisor

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/corrald/corral/supervisor/session"
)

// shutdownMargin is what a shutdown may take beyond the agents' own time: for what is killed at its end to be gone, and saved.
const shutdownMargin = 5 * time.Second

// shutDown is what the loop does when the daemon is told to end, or has lost the bus. Where the daemon alone ends, the agents run on: each live session is marked,
// so that it counts as suspended if it is found to be gone. Agents whose scopes systemd stops at the same time are ended politely first: systemd has left that to
// this daemon, or is about to, and there may be no other daemon. Where the whole user manager ends, at logout or poweroff, each agent is ended politely, to be
// resumed: systemd stops the scopes only after us, and would give them SIGTERM all at once.
func (s *Supervisor) shutDown() {
	s.stopping = true
	for _, e := range s.sessions {
		if savable(e) { // for the last time
			s.touch(e)
		}
	}
	if s.managerStops() {
		s.tellShuttingDown(true)
		for _, e := range s.sorted() {
			if e.rec.Run.Live() {
				s.overrule(e, s.mayBegin())
				s.ask(e, session.Suspend, "the login session ended")
				s.end(e, 0)
			}
		}
		s.stay(s.anyLive)
		return
	}
	s.tellShuttingDown(s.goingDown)
	s.findStopped()
	s.stay(s.anyStopped)
	now := time.Now()
	for _, e := range s.sorted() {
		r := e.rec.Run
		switch {
		case !r.Ended():
			s.apply(e, session.LeftBehind{Run: r.ID, At: now})
		case e.run.systemdStops && s.isEmptied(e): // systemd may not have reported it yet, or have no bus to report it on
			s.apply(e, session.ScopeEnded{Run: r.ID, At: now})
		}
	}
	s.settle()
}

// stay lets the loop run on for as long as there is something to wait for, but no longer than the agents that live have time to end.
func (s *Supervisor) stay(wait func() bool) {
	s.settle()
	if !wait() {
		return
	}
	most := s.Config.StopTimeout
	for _, e := range s.sessions {
		if e.rec.Run.Live() {
			most = max(most, s.stopTimeout(e.rec))
		}
	}
	most += shutdownMargin
	if s.Ending != nil {
		s.Ending(most)
	}
	limit, cancel := s.AfterFunc.Context(context.Background(), most)
	defer cancel()
	for wait() {
		select {
		case f := <-s.door:
			s.turn(f)
		case <-limit.Done():
			return
		}
	}
}

// findStopped lists the scopes, and sees to it that those that systemd stops are ended politely; all others are abandoned to systemd, which cannot know yet
// that this daemon exits. What has ended by such a stop before systemd could report it is recorded as stopped.
func (s *Supervisor) findStopped() {
	if !s.anyLive() {
		return
	}
	ctx, cancel := s.AfterFunc.Context(s.ctx, lastAnswerTime)
	defer cancel()
	scopes, err := s.World.Scopes(ctx)
	if err != nil {
		s.Log.Warn("cannot list the scopes that are stopped together with corrald", "err", err)
		return
	}
	active, running := map[*entry]bool{}, []string{}
	for _, sc := range scopes {
		e := s.byUnit(sc.Name)
		if e == nil || !isOf(e.rec.Run, sc.InvocationID) {
			continue
		}
		active[e] = sc.Active && !sc.Stopping
		switch {
		case sc.Stopping:
			e.run.systemdStops = true
			s.askFoundStopping(e)
		case sc.Active:
			running = append(running, sc.Name)
		}
	}
	stopping, err := s.World.Abandon(ctx, running)
	if err != nil {
		s.Log.Warn("cannot leave the scopes to systemd", "err", err)
	}
	for _, name := range stopping {
		e := s.byUnit(name)
		e.run.systemdStops = true
		s.askFoundStopping(e)
	}
	for _, e := range s.sorted() {
		if r := e.rec.Run; r.Live() && !active[e] {
			if asked, ok := s.stopTold(e); ok {
				e.run.systemdStops = true
				s.apply(e, asked)
			}
		}
	}
}

// anyStopped tells whether there are agents to wait for in scopes that systemd stops.
func (s *Supervisor) anyStopped() bool {
	if s.asking > 0 {
		return true
	}
	for _, e := range s.sessions {
		if e.run.systemdStops && e.rec.Run.Live() && !s.isEmptied(e) {
			return true
		}
	}
	return false
}

// isEmptied tells whether a run whose agent has ended has no processes any more, though systemd has not reported the end of its scope.
func (s *Supervisor) isEmptied(e *entry) bool {
	r := e.rec.Run
	return r.Live() && r.Ended() && r.ControlGroup != "" && !s.World.Occupied(r.ControlGroup)
}

// LastCall suspends every session because the machine is about to be shut down, and returns their ids once their scopes are empty. No run begins from
// now on: the sessions refuse with ShuttingDown, until CalledOff. It is accepted once all sessions are asked.
func (s *Supervisor) LastCall(ctx context.Context) ([]string, error) {
	return s.suspendAll(ctx, "the machine was shut down", func() {
		s.goingDown = true
		for _, e := range s.sessions {
			if r := e.rec.Run; !e.removed && !r.Ended() && r.Intent == session.NoIntent {
				s.interrupted[e.rec.ID] = r.ID
			}
		}
		s.tellShuttingDown(true)
	})
}

// CalledOff takes LastCall back, because the machine is not shut down after all: what was suspended for that is resumed, the oldest first and a few at a
// time, unless somebody has done something with it since. It returns the ids of those that run again. One that is still ending is not among them: who wants it
// back calls again once LastCall has returned. It is accepted once runs may begin again.
func (s *Supervisor) CalledOff(ctx context.Context) ([]string, error) {
	err := s.do(func() {
		s.goingDown = false
		s.tellShuttingDown(s.stopping)
		maps.DeleteFunc(s.interrupted, func(id, run string) bool {
			e := s.sessions[id]
			return e == nil || e.rec.Run == nil || e.rec.Run.ID != run
		})
	})
	if err != nil {
		return nil, err
	}
	accepted(ctx)
	// Those that are not resumed before it is announced again stay in the list for the next time.
	ids, err := s.idsWhere(func(e *entry) bool { return s.interrupted[e.rec.ID] != "" && e.rec.View().State == session.Suspended })
	if err != nil {
		return nil, err
	}
	return s.eachOf(ctx, ids, resumesAtATime, s.Resume)
}

// tellShuttingDown notes and announces that the end is near, or is not any more.
func (s *Supervisor) tellShuttingDown(on bool) {
	if on != s.shuttingDown && s.Announce != nil {
		s.Announce(on)
	}
	s.shuttingDown = on
}

// mayBegin refuses to begin anything that would be ended at once.
func (s *Supervisor) mayBegin() error {
	switch {
	case s.stopping:
		return refuse(ShuttingDown, "corrald is shutting down")
	case s.goingDown:
		return refuse(ShuttingDown, "the machine is shutting down")
	}
	return nil
}

// tellLive tells whether any agent lives, if that has changed.
func (s *Supervisor) tellLive() {
	live := false
	for _, e := range s.sessions {
		live = live || !e.removed && e.rec.Run.AgentAlive()
	}
	if s.Live != nil && live != s.wasLive {
		s.Live(live)
	}
	s.wasLive = live
}

// lastAnswerTime bounds a question to systemd at the end of the daemon: systemd has other things to do then, and may be gone.
const lastAnswerTime = 2 * time.Second

func (s *Supervisor) managerStops() bool {
	ctx, cancel := s.AfterFunc.Context(s.ctx, lastAnswerTime)
	defer cancel()
	return s.World.Stopping(ctx)
}

func (s *Supervisor) anyLive() bool {
	for _, e := range s.sessions {
		if e.rec.Run.Live() {
			return true
		}
	}
	return false
}

// AtLogin returns the ids of the sessions that Login has something to do with: those with OnLogin resume that are suspended, then those with OnLogin start
// that do not run; each the oldest first.
func (s *Supervisor) AtLogin() ([]string, error) {
	resume, err := s.idsWhere(func(e *entry) bool { return onLogin(e) == "resume" })
	if err != nil {
		return nil, err
	}
	start, err := s.idsWhere(func(e *entry) bool { return onLogin(e) == "start" })
	return append(resume, start...), err
}

// onLogin tells what would be done with the session at login, "" for nothing.
func onLogin(e *entry) string {
	if e.rec.OnLogin == "resume" && e.rec.View().State == session.Suspended || e.rec.OnLogin == "start" && startable(e) == nil {
		return e.rec.OnLogin
	}
	return ""
}

// Login does what users have asked to be done with these sessions at login, in this order and a few at a time, where there is something to do by then. Done is
// told of each as it is settled, by several goroutines. One that fails does not stop the others: its state says why.
func (s *Supervisor) Login(ctx context.Context, ids []string, done func(id string)) error {
	_, err := s.eachOf(ctx, ids, resumesAtATime, func(ctx context.Context, id string) error {
		err := s.loginOne(ctx, id)
		var refused *Error
		if err == nil || errors.As(err, &refused) && refused.Kind != ShuttingDown && refused.Kind != TimedOut {
			done(id)
		}
		return err
	})
	return err
}

func (s *Supervisor) loginOne(ctx context.Context, id string) error {
	what := ""
	if err := s.do(func() {
		if e, err := s.find(id); err == nil {
			what = onLogin(e)
		}
	}); err != nil || what == "" {
		return err
	}
	s.setUnattended(id, true)
	defer s.setUnattended(id, false)
	if what == "start" {
		return s.Start(ctx, id)
	}
	return s.Resume(ctx, id)
}

// setUnattended notes whether the session is being started without anybody who would be told of a failure.
func (s *Supervisor) setUnattended(id string, on bool) {
	_ = s.do(func() {
		if e, err := s.find(id); err == nil {
			e.unattended = on
		}
	})
}

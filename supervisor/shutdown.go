package supervisor

import (
	"context"
	"time"

	"github.com/corrald/corral/supervisor/session"
)

// shutdownMargin is what a shutdown may take beyond the agents' own time: for what is killed at its end to be gone, and saved.
const shutdownMargin = 5 * time.Second

// shutDown is what the loop does when the daemon is told to end. Where the daemon alone ends, the agents run on: each live session is marked, so that
// it counts as suspended if it is found to be gone. Where the whole user manager ends, at logout or poweroff, each is ended politely now, to be
// resumed: systemd stops the scopes only after us, and would give them SIGTERM all at once.
func (s *Supervisor) shutDown() {
	s.stopping = true
	for _, e := range s.sessions {
		if savable(e) { // for the last time
			s.touch(e)
		}
	}
	if !s.managerStops() {
		s.tellShuttingDown(s.goingDown != nil)
		now := time.Now()
		for _, e := range s.sorted() {
			if r := e.rec.Run; !r.Ended() {
				s.apply(e, session.LeftBehind{Run: r.ID, At: now})
			}
		}
		s.settle()
		return
	}
	s.tellShuttingDown(true)
	for _, e := range s.sorted() {
		if e.rec.Run.Live() {
			e.then, e.starts = nil, false
			s.ask(e, session.Suspend, "the login session ended")
			s.end(e, 0)
		}
	}
	s.settle()
	limit, cancel := s.AfterFunc.Context(context.Background(), s.Config.StopTimeout+shutdownMargin)
	defer cancel()
	for s.anyLive() {
		select {
		case f := <-s.door:
			s.turn(f)
		case <-limit.Done():
			return
		}
	}
}

// LastCall suspends every session because the machine is about to be shut down, and returns their ids once their scopes are empty. No run begins from
// now on: the sessions refuse with ShuttingDown, until CalledOff.
func (s *Supervisor) LastCall(ctx context.Context) ([]string, error) {
	err := s.do(func() {
		if s.goingDown == nil {
			s.goingDown = map[string]string{}
		}
		for _, e := range s.sessions {
			if r := e.rec.Run; !e.removed && !r.Ended() && r.Intent == session.NoIntent {
				s.goingDown[e.rec.ID] = r.ID
			}
		}
		s.tellShuttingDown(true)
	})
	if err != nil {
		return nil, err
	}
	return s.suspendAll(ctx, "the machine was shut down")
}

// CalledOff takes LastCall back, because the machine is not shut down after all: what was suspended for that is resumed, the oldest first and a few at a
// time, unless somebody has done something with it since. It returns the ids of those that run again.
func (s *Supervisor) CalledOff(ctx context.Context) ([]string, error) {
	var suspended map[string]string
	err := s.do(func() {
		suspended, s.goingDown = s.goingDown, nil
		s.tellShuttingDown(s.stopping)
	})
	if err != nil {
		return nil, err
	}
	ids, err := s.idsWhere(func(e *entry) bool {
		return suspended[e.rec.ID] != "" && suspended[e.rec.ID] == e.rec.Run.ID && e.rec.View().State == session.Suspended
	})
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
	case s.goingDown != nil:
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

func (s *Supervisor) managerStops() bool {
	const answerTime = 2 * time.Second // systemd has other things to do now, and may be gone
	ctx, cancel := s.AfterFunc.Context(s.ctx, answerTime)
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

// Login does what users have asked to be done with their sessions at login: those with OnLogin resume that are suspended are resumed, those with
// OnLogin start that do not run are started; the oldest first, and a few at a time. One that fails does not stop the others: its state says why.
func (s *Supervisor) Login(ctx context.Context) error {
	resume, err := s.idsWhere(func(e *entry) bool { return e.rec.OnLogin == "resume" && e.rec.View().State == session.Suspended })
	if err != nil {
		return err
	}
	start, err := s.idsWhere(func(e *entry) bool { return e.rec.OnLogin == "start" && startable(e) == nil })
	if err != nil {
		return err
	}
	afresh := make(map[string]bool, len(start))
	for _, id := range start {
		afresh[id] = true
	}
	_, err = s.eachOf(ctx, append(resume, start...), resumesAtATime, func(ctx context.Context, id string) error {
		s.setUnattended(id, true)
		defer s.setUnattended(id, false)
		if afresh[id] {
			return s.Start(ctx, id)
		}
		return s.Resume(ctx, id)
	})
	return err
}

// setUnattended notes whether the session is being started without anybody who would be told of a failure.
func (s *Supervisor) setUnattended(id string, on bool) {
	_ = s.do(func() {
		if e, err := s.find(id); err == nil {
			e.unattended = on
		}
	})
}

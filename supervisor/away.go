package supervisor

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/supervisor/session"
)

// lived are the sessions whose agents lived for all that is known.
func (s *Supervisor) lived() []*entry {
	var lived []*entry
	for _, e := range s.sessions {
		if e.rec.Run.AgentAlive() {
			lived = append(lived, e)
		}
	}
	return lived
}

// stopMargin is how long after the time for a stop an agent may be found to have ended of it.
const stopMargin = time.Second

// stoppedMeanwhile finds those among the agents that have ended because systemd stopped their scopes when no daemon was there to be told: their shims were
// told to end with them. What it was for that is no stop, such as want of memory or their time being up, is known by now. A scope that was stopped in an
// earlier life of the user's manager may have been so by the end of that: its session is suspended, so that what was to come back does.
func (s *Supervisor) stoppedMeanwhile(ctx context.Context, lived []*entry) error {
	for _, e := range lived {
		asked, ok := s.stopTold(e)
		if !ok {
			continue
		}
		began, err := s.World.Began(ctx)
		if err != nil {
			return err
		}
		switch {
		case e.rec.Run.BootID != s.BootID || asked.Monotonic < began:
			asked.Intent, asked.Why = session.Suspend, "its scope was stopped, and the login session ended"
		case s.World.Stopping(ctx):
			asked.Intent, asked.Why = session.Suspend, "the login session ended"
		}
		s.apply(e, asked)
	}
	return nil
}

// stopTold returns the stop that the record of the agent's exit reports, if there is one: the shim was told to end with its agent, and nobody had asked for an end.
func (s *Supervisor) stopTold(e *entry) (asked session.EndAsked, ok bool) {
	r := e.rec.Run
	if r.Intent != session.NoIntent || r.Exit == nil || r.Exit.SIGTERMMonotonic == 0 || r.OutOfMemory() || r.ScopeResult == session.OOMKill {
		return asked, false
	}
	took := r.Exit.ExitedMonotonic - r.Exit.SIGTERMMonotonic
	if took > s.stopTimeout(e.rec)+stopMargin {
		return asked, false
	}
	return session.EndAsked{
		Run: r.ID, Intent: session.Stop, Why: scopeStopped, Told: true, At: r.Exit.Exited.Add(-took), Monotonic: r.Exit.SIGTERMMonotonic,
	}, true
}

// isAlive tells whether exactly this process lives.
func (s *Supervisor) isAlive(p session.Process) bool {
	pidfd, alive := s.World.Alive(p)
	if alive {
		_ = unix.Close(pidfd)
	}
	return alive
}

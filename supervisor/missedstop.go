package supervisor

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/supervisor/session"
)

// aliveSessions returns the sessions whose agents are alive as far as is known.
func (s *Supervisor) aliveSessions() []*entry {
	var alive []*entry
	for _, e := range s.sessions {
		if e.rec.Run.AgentAlive() {
			alive = append(alive, e)
		}
	}
	return alive
}

// stopMargin is added to the stop timeout: an agent that exits even later after SIGTERM has not
// exited because of it.
const stopMargin = time.Second

// applyMissedStops applies the stops that happened while no daemon was running to be notified of
// them. Of the agents that were alive before, it finds those that have exited because systemd
// stopped their scopes: their shims got SIGTERM together with them. If systemd ended a scope for a
// reason other than a stop, such as a lack of memory or RuntimeMaxSec, that is known by now. A
// scope that was stopped under an earlier user manager may have been stopped because that manager
// exited: its session is suspended, so that it is resumed if it is configured to be.
func (s *Supervisor) applyMissedStops(ctx context.Context, alive []*entry) error {
	for _, e := range alive {
		stop, ok := s.recordedStop(e)
		if !ok {
			continue
		}
		managerStart, err := s.Systemd.StartTime(ctx)
		if err != nil {
			return err
		}
		switch {
		case e.rec.Run.BootID != s.BootID || stop.Monotonic < managerStart:
			stop.Intent, stop.Why = session.Suspend, "its scope was stopped, and the login session ended"
		case s.Systemd.IsStopping(ctx):
			stop.Intent, stop.Why = session.Suspend, "the login session ended"
		}
		s.apply(e, stop)
	}
	return nil
}

// recordedStop returns the stop that the record of the agent's exit shows, if there is one: the
// shim got SIGTERM too, and no end of the run was requested.
func (s *Supervisor) recordedStop(e *entry) (stop session.IntentSet, ok bool) {
	r := e.rec.Run
	if r.Intent != session.NoIntent || r.Exit == nil || r.Exit.SIGTERMMonotonic == 0 ||
		r.OutOfMemory() || r.ScopeResult == session.OOMKill {
		return stop, false
	}
	took := r.Exit.ExitedMonotonic - r.Exit.SIGTERMMonotonic
	if took > s.stopTimeout(e.rec)+stopMargin {
		return stop, false
	}
	return session.IntentSet{
		Run: r.ID, Intent: session.Stop, Why: reasonScopeStopped, SignalledBySystemd: true,
		At: r.Exit.Exited.Add(-took), Monotonic: r.Exit.SIGTERMMonotonic,
	}, true
}

// isAlive reports whether exactly this process is running.
func (s *Supervisor) isAlive(p session.Process) bool {
	pidfd, alive := s.Processes.OpenPidfd(p)
	if alive {
		_ = unix.Close(pidfd)
	}
	return alive
}

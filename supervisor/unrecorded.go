package supervisor

import (
	"time"

	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/supervisor/sources"
)

// recordTimeout is how long a shim may take to record the exit of its agent. A shim needs
// milliseconds; one that takes longer may be stopped (SIGSTOP).
const recordTimeout = time.Second

// watchAgent watches for the exit of the run's agent, by a pidfd, in order to notice an exit that
// the shim does not record because it is stopped. Only the shim's record reports the exit itself.
func (s *Supervisor) watchAgent(e *entry) {
	r := e.rec.Run
	if r.Exit != nil {
		s.unwatchAgent(e)
	}
	if r.Started.IsZero() || r.Exit != nil || r.Agent.PID == 0 || e.run.watchedAgent == r.Agent {
		return
	}
	e.run.watchedAgent, e.run.agentEnded = r.Agent, false
	run := r.ID
	pidfd, alive := s.Processes.OpenPidfd(r.Agent)
	if !alive {
		s.awaitExitRecord(e, run)
		return
	}
	var d sources.Descriptor
	d, err := s.descriptors.Watch(pidfd, func() {
		if e.run.agent == d {
			s.descriptors.Close(&e.run.agent)
			s.awaitExitRecord(e, run)
		}
	})
	if err != nil {
		s.Log.Warn("cannot watch an agent", "session", e.rec.ID, "err", err)
		return
	}
	s.descriptors.Close(&e.run.agent)
	e.run.agent = d
}

// awaitExitRecord sends SIGCONT to the run's shim and to its tmux server if the exit of the agent,
// which has exited, is not recorded within recordTimeout. If the scope has ended before the agent,
// the run ends if there is still no record after another recordTimeout.
func (s *Supervisor) awaitExitRecord(e *entry, run string) {
	e.run.agentEnded = true
	s.callIfUnrecorded(e, run, func() {
		s.queueEffect(e, session.ContinueShim{})
		s.callIfUnrecorded(e, run, func() {
			if e.run.deferredEnd != nil && !s.readExit(e) {
				s.apply(e, *e.run.deferredEnd)
			}
		})
	})
}

// callIfUnrecorded calls f on the loop after recordTimeout, unless the exit of the run's agent is
// recorded by then.
func (s *Supervisor) callIfUnrecorded(e *entry, run string, f func()) {
	if e.rec.Run.Exit != nil {
		return
	}
	e.run.recordTimer = s.AfterFunc(recordTimeout, func() {
		s.post(func() {
			if r := e.rec.Run; !e.removed && r.ID == run && r.Live() && r.Exit == nil {
				f()
			}
		})
	})
}

// unwatchAgent ends the watch of the agent and the wait for the record of its exit.
func (s *Supervisor) unwatchAgent(e *entry) {
	s.descriptors.Close(&e.run.agent)
	if e.run.recordTimer != nil {
		e.run.recordTimer.Stop()
		e.run.recordTimer = nil
	}
	e.run.watchedAgent, e.run.agentEnded = session.Process{}, false
}

package supervisor

import (
	"time"

	"github.com/corrald/corral/supervisor/session"
)

// recordTime is how long a shim may take to record the end of its agent. It does so within
// milliseconds; one that takes longer may be stopped (SIGSTOP).
const recordTime = time.Second

// watchAgent begins to wait for the end of the run's agent, by a pidfd. The end itself is reported
// by the shim's record alone: what is waited for here is an end that the shim does not record,
// because it is stopped.
func (s *Supervisor) watchAgent(e *entry) {
	r := e.rec.Run
	if r.Exit != nil {
		s.unwatchAgent(e)
	}
	if r.Started.IsZero() || r.Exit != nil || r.Agent.PID == 0 || e.run.awaited == r.Agent {
		return
	}
	e.run.awaited, e.run.agentEnded = r.Agent, false
	run := r.ID
	pidfd, alive := s.World.Alive(r.Agent)
	if !alive {
		s.awaitRecord(e, run)
		return
	}
	var d descriptor
	d, err := s.waitFor(pidfd, func() {
		if e.run.agent == d {
			s.drop(&e.run.agent)
			s.awaitRecord(e, run)
		}
	})
	if err != nil {
		s.Log.Warn("cannot watch an agent", "session", e.rec.ID, "err", err)
		return
	}
	s.drop(&e.run.agent)
	e.run.agent = d
}

// awaitRecord continues the run's shim and its tmux server unless the end of the agent, which is known to have ended, is recorded within recordTime. A run whose
// scope has ended before its agent ends if there is no record after another recordTime.
func (s *Supervisor) awaitRecord(e *entry, run string) {
	e.run.agentEnded = true
	s.unlessRecorded(e, run, func() {
		s.direct(e, "continue", func(t Target) error { return s.World.Continue(s.ctx, t) })
		s.unlessRecorded(e, run, func() {
			if e.run.outside != nil && !s.readExit(e) {
				s.apply(e, *e.run.outside)
			}
		})
	})
}

// unlessRecorded calls f on the loop after recordTime, unless the end of the run's agent is recorded by then.
func (s *Supervisor) unlessRecorded(e *entry, run string, f func()) {
	if e.rec.Run.Exit != nil {
		return
	}
	e.run.unrecorded = s.AfterFunc(recordTime, func() {
		s.post(func() {
			if r := e.rec.Run; !e.removed && r.ID == run && r.Live() && r.Exit == nil {
				f()
			}
		})
	})
}

// unwatchAgent ends what watchAgent has begun.
func (s *Supervisor) unwatchAgent(e *entry) {
	s.drop(&e.run.agent)
	if e.run.unrecorded != nil {
		e.run.unrecorded.Stop()
		e.run.unrecorded = nil
	}
	e.run.awaited, e.run.agentEnded = session.Process{}, false
}

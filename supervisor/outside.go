package supervisor

import (
	"strings"

	"github.com/corrald/corral/supervisor/session"
)

// livesOutside tells whether the agent has moved to another control group and lives there, though its scope has ended. Then the run lives on: the end of the scope is
// applied once the agent's exit is recorded, or its process is gone and nothing was recorded in time: see awaitRecord.
func (s *Supervisor) livesOutside(e *entry, ended session.ScopeEnded) bool {
	r := e.rec.Run
	switch {
	case r.Exit != nil || r.Agent.Start == 0 || s.isInScope(r, r.Agent.PID):
		return false
	case e.run.outside != nil:
		return true
	}
	if !s.isAlive(r.Agent) {
		return false
	}
	s.Log.Warn("an agent has left its scope", "session", e.rec.ID, "unit", r.Unit, "control_group", s.World.ControlGroup(r.Agent.PID))
	e.run.outside = &ended
	s.unsure = true
	return true
}

// endOutside applies the end of a scope that its agent had left, once the agent's exit is recorded.
func (s *Supervisor) endOutside(e *entry) {
	if e.run.outside != nil && e.rec.Run.Exit != nil {
		s.apply(e, *e.run.outside)
	}
}

// isInScope tells whether a process is in the control group of the run's scope or below, or is gone, or where the scope is is not known.
func (s *Supervisor) isInScope(r *session.Run, pid int) bool {
	group := s.World.ControlGroup(pid)
	return group == "" || r.ControlGroup == "" || group == r.ControlGroup || strings.HasPrefix(group, r.ControlGroup+"/")
}

// leftScope is the problem of a session whose agent lives outside of its scope.
const leftScope = "its agent has moved out of its scope, where limits do not apply; stop the session and start it again"

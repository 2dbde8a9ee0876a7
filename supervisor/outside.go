package supervisor

import (
	"strings"

	"github.com/corrald/corral/supervisor/session"
)

// deferScopeEnd defers the end of a scope if the agent has moved to another control group and still
// runs there, and returns whether that is the case. The run then continues: the end of the scope is
// applied once the agent's exit is recorded, or once its process has exited and nothing was
// recorded in time (see awaitExitRecord).
func (s *Supervisor) deferScopeEnd(e *entry, ended session.ScopeEnded) bool {
	r := e.rec.Run
	switch {
	case r.Exit != nil || r.Agent.Start == 0 || s.isInScope(r, r.Agent.PID):
		return false
	case e.run.deferredEnd != nil:
		return true
	}
	if !s.isAlive(r.Agent) {
		return false
	}
	s.Log.Warn("an agent has left its scope", "session", e.rec.ID, "unit", r.Unit,
		"control_group", s.Processes.ControlGroup(r.Agent.PID))
	e.run.deferredEnd = &ended
	s.problemsStale = true
	return true
}

// applyDeferredEnd applies the end of a scope that its agent had left, if the agent's exit is
// recorded.
func (s *Supervisor) applyDeferredEnd(e *entry) {
	if e.run.deferredEnd != nil && e.rec.Run.Exit != nil {
		s.apply(e, *e.run.deferredEnd)
	}
}

// isInScope reports whether a process is in the control group of the run's scope or in one below
// it. It also returns true if the process has exited or if the control group of the scope is
// unknown.
func (s *Supervisor) isInScope(r *session.Run, pid int) bool {
	group := s.Processes.ControlGroup(pid)
	return group == "" || r.ControlGroup == "" || group == r.ControlGroup || strings.HasPrefix(group, r.ControlGroup+"/")
}

// outsideScopeProblem is the text of the problem of a session whose agent runs outside of its
// scope.
const outsideScopeProblem = "its agent has moved out of its scope, where limits do not apply; " +
	"stop the session and start it again"

package supervisor

import (
	"cmp"
	"fmt"

	"github.com/corrald/corral/internal/config"
)

// Control is a call of an agent, or of a process that it has started, which changes a session or
// creates one.
type Control struct {
	Caller  string // the id of the agent's session
	Target  string // the id of the session that is changed, "" for any
	Types   bool   // it gives input to the agent of Target
	Creates bool   // it creates a session, and changes none
}

// CheckControl returns an error unless AgentsMayControl= permits the call. Errors: NotPermitted.
func (s *Supervisor) CheckControl(c Control) error {
	return s.loop.try(func() error {
		e, target := s.loop.sessions.byID[c.Caller], s.loop.sessions.byID[c.Target]
		if e == nil || target == nil && c.Target != "" {
			return nil // removed meanwhile, or it never existed, which the call itself returns
		}
		permitted := cmp.Or(e.definition().AgentsMayControl, e.loop.settings.config.AgentsMayControl)
		if needed, why := neededControl(c, e, target); needed != permitted && permitted != config.ControlAll {
			return refuse(NotPermitted, "%s: this requires AgentsMayControl=%s, in corral.conf or in the definition of agent %q",
				why, needed, e.rec.Agent)
		}
		return nil
	})
}

// neededControl returns the smallest value of AgentsMayControl= that permits the call of the agent
// of a session, and why it is not permitted otherwise. The target is nil for all sessions.
func neededControl(c Control, caller, target *entry) (needed, why string) {
	switch {
	case c.Creates:
		return config.ControlDescendants, fmt.Sprintf("no session can be created from session %q", c.Caller)
	case target == nil:
		return config.ControlAll, fmt.Sprintf("not all sessions can be controlled from session %q", c.Caller)
	case target == caller:
		if _, asks := target.rec.PermissionRequest(); asks && c.Types {
			return config.ControlAll, fmt.Sprintf("session %q cannot answer its own request for a permission", c.Target)
		}
		return config.ControlDescendants, fmt.Sprintf("session %q cannot be controlled from itself", c.Target)
	}
	why = fmt.Sprintf("session %q cannot be controlled from session %q", c.Target, c.Caller)
	if isDescendant(target, caller) {
		return config.ControlDescendants, why
	}
	return config.ControlAll, why
}

// isDescendant reports whether a session was created by another one, or by a descendant of it. A
// session that has the id of a parent but was created later than the child is not the parent.
func isDescendant(e, of *entry) bool {
	for e != of {
		parent := e.loop.sessions.byID[e.rec.Parent]
		if parent == nil || !parent.rec.Created.Before(e.rec.Created) {
			return false
		}
		e = parent
	}
	return true
}

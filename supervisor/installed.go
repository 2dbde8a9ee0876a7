package supervisor

import (
	"context"
	"slices"
	"strings"
)

// installed refuses a session of an agent whose own program is not there, before anything is made: a person has to install it. A client's Command is
// its own; and a session that is not to be started may wait for the agent. Errors: AgentNotInstalled.
func (s *Supervisor) installed(ctx context.Context, agent string, spec *Spec) error {
	if spec.NoStart || len(spec.Command) > 0 {
		return nil
	}
	agents, err := s.ListAgents()
	if err != nil {
		return err
	}
	def := agents[agent]
	if len(def.Command) == 0 || strings.Contains(def.Command[0], "%") {
		return nil
	}
	var path string
	for _, entry := range slices.Concat(def.Environment, spec.Environment) {
		if value, is := strings.CutPrefix(entry, "PATH="); is {
			path = value
		}
	}
	if strings.Contains(path, "%") || s.World.Installed(ctx, def.Command[0], path) {
		return nil
	}
	return refuse(AgentNotInstalled, "agent %q is not installed: command %q not found", agent, def.Command[0])
}

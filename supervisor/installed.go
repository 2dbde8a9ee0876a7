package supervisor

import (
	"context"
	"slices"
	"strings"

	"github.com/corrald/corral/internal/config"
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
	if s.Installed(ctx, def, spec.Environment) {
		return nil
	}
	return refuse(AgentNotInstalled, "agent %q is not installed: command %q not found", agent, def.Programs()[0])
}

// Installed tells whether one of the programs is there that show that an agent is installed, for sessions with these variables, NAME=VALUE. Where that cannot
// be told it says yes: the start will.
func (s *Supervisor) Installed(ctx context.Context, def config.Agent, environment []string) bool {
	programs := def.Programs()
	var path string
	for _, entry := range slices.Concat(def.Environment, environment) {
		if value, is := strings.CutPrefix(entry, "PATH="); is {
			path = value
		}
	}
	return len(programs) == 0 || strings.Contains(path, "%") || slices.ContainsFunc(programs, func(program string) bool {
		return strings.Contains(program, "%") || s.World.Installed(ctx, program, path)
	})
}

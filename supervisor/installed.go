package supervisor

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/supervisor/environments"
)

// IsInstalled reports whether one of the programs exists that show that an agent is installed, as
// found by a run without the environment of a caller. If that is unknown before a start,
// IsInstalled returns true: the start returns the error.
func (s *Supervisor) IsInstalled(ctx context.Context, def config.Agent) bool {
	found, err := s.loop.operations.creation.hasProgram(ctx, def, &Spec{})
	return found || err != nil
}

// checkInstalled returns an error if the program of the agent is missing, before anything is
// created: a person has to install the agent. A session that is not to be started may be created
// before its agent is installed. A client's Command is checked by checkExecutable. Errors:
// AgentNotInstalled, StartFailed.
func (c *creation) checkInstalled(ctx context.Context, agent string, spec *Spec) error {
	switch {
	case spec.NoStart:
		return nil
	case len(spec.Command) > 0 && spec.Worktree != nil:
		return c.checkExecutable(ctx, agent, spec, "") // the worktree does not exist yet
	case len(spec.Command) > 0:
		return c.checkExecutable(ctx, agent, spec, spec.WorkingDirectory)
	}
	agents, err := c.loop.agents()
	if err != nil {
		return err
	}
	def, _ := agents.Find(agent)
	if found, err := c.hasProgram(ctx, def, spec); found || err != nil {
		return err
	}
	return refuse(AgentNotInstalled, "agent %q is not installed: command %q not found", agent, def.Programs()[0])
}

// checkExecutable returns an error if the first run, in dir, could not execute a client's Command,
// so that a typing error leaves no failed session. An empty dir stands for a workspace that does
// not exist yet. Errors: StartFailed.
func (c *creation) checkExecutable(ctx context.Context, agent string, spec *Spec, dir string) error {
	agents, err := c.loop.agents()
	if err != nil {
		return err
	}
	def, _ := agents.Find(agent)
	env, known, err := c.firstEnvironment(def, spec)
	if err != nil || !known {
		return err
	}
	if err := c.loop.system.Environments.FindProgram(ctx, spec.Command[0], dir, env); err != nil {
		return refuse(StartFailed, "%v", err)
	}
	return nil
}

// hasProgram reports whether the first run would find one of the agent's programs. If that depends
// on specifiers whose values only a session has, it returns true: the start returns the error.
// Errors: StartFailed if an environment file of the definition cannot be used.
func (c *creation) hasProgram(ctx context.Context, def config.Agent, spec *Spec) (bool, error) {
	programs := def.Programs()
	hasSpecifier := func(program string) bool { return strings.Contains(program, "%") }
	if len(programs) == 0 || slices.ContainsFunc(programs, hasSpecifier) {
		return true, nil
	}
	env, known, err := c.firstEnvironment(def, spec)
	if err != nil || !known {
		return err == nil, err
	}
	for _, program := range programs {
		switch err := c.loop.system.Environments.FindProgram(ctx, program, "", env); {
		case err == nil:
			return true, nil
		case errors.As(err, new(*environment.FileError)):
			return false, refuse(StartFailed, "%v", err)
		}
	}
	return false, nil
}

// firstEnvironment returns the sources of the environment of a new session's first run. Known is
// false if its PATH depends on specifiers whose values only a session has.
func (c *creation) firstEnvironment(
	def config.Agent, spec *Spec,
) (env environments.Sources, known bool, err error) {
	var loginShell bool
	if err := c.loop.do(func() { loginShell = c.loop.settings.config.LoginShell }); err != nil {
		return env, false, err
	}
	env, unexpanded := environments.NewSources(
		def, loginShell, c.loop.settings.agentSpecifiers(def.Name), spec.CallerEnvironment, spec.Environment)
	return env, environments.IsPathKnown(unexpanded), nil
}

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
// before its agent is installed. A client's Command, and the Wrapper= of a sandbox, are checked by
// checkExecutable. Errors: AgentNotInstalled, ConfigError, Invalid, StartFailed.
func (c *creation) checkInstalled(ctx context.Context, agent string, spec *Spec) error {
	if spec.NoStart {
		return nil
	}
	agents, err := c.loop.agents()
	if err != nil {
		return err
	}
	def, _ := agents.Find(agent)
	command, err := c.wrapper(def, spec)
	switch {
	case err != nil:
		return err
	case command == nil:
		command = spec.Command
	case strings.Contains(command[0], "%"): // the start returns the error
		return nil
	}
	if len(command) > 0 {
		return c.checkExecutable(ctx, def, spec, command[0])
	}
	if found, err := c.hasProgram(ctx, def, spec); found || err != nil {
		return err
	}
	return refuse(AgentNotInstalled, "agent %q is not installed: command %q not found", agent, def.Programs()[0])
}

// wrapper returns the Wrapper= of a new session's sandbox, nil if it has none: the program of the
// agent is then one in the sandbox, which Corral cannot look up. Errors: ConfigError, Invalid.
func (c *creation) wrapper(def config.Agent, spec *Spec) (command []string, err error) {
	err = c.loop.try(func() error {
		name, err := c.loop.settings.chooseSandbox(def, spec.Sandbox)
		command = c.loop.settings.config.Sandboxes[name].Wrapper // no profile has an empty name
		return err
	})
	return command, err
}

// checkExecutable returns an error if the first run could not execute a program, so that a typing
// error leaves no failed session. Errors: StartFailed.
func (c *creation) checkExecutable(ctx context.Context, def config.Agent, spec *Spec, program string) error {
	env, known, err := c.firstEnvironment(def, spec)
	if err != nil || !known {
		return err
	}
	dir := spec.WorkingDirectory
	if spec.Worktree != nil && spec.determined.worktree == nil { // it does not exist yet
		dir = ""
	}
	if err := c.loop.system.Environments.FindProgram(ctx, program, dir, env); err != nil {
		return refuse(StartFailed, "%v", err)
	}
	return nil
}

// hasProgram reports whether the first run would find one of the agent's programs. If that depends
// on specifiers whose values only a session has, it returns true: the start returns the error.
// Errors: StartFailed if an environment file of the definition cannot be used.
func (c *creation) hasProgram(ctx context.Context, def config.Agent, spec *Spec) (bool, error) {
	programs := def.Programs()
	if wrapper, err := c.wrapper(def, spec); err == nil && wrapper != nil {
		programs = wrapper[:1]
	}
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

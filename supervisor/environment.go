package supervisor

import (
	"context"
	"slices"
	"strings"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/supervisor/environments"
	"github.com/corrald/corral/supervisor/session"
)

// environment returns the sources of a run's environment. It logs the entries of the agent's
// definition that cannot be expanded and are omitted. It is called on the event loop.
func (s *Supervisor) environment(rec *session.Session, def config.Agent, caller []string) environments.Sources {
	sources, unexpanded := environments.NewSources(def, s.Config.LoginShell, s.specifiers(rec), caller, rec.Environment)
	for _, u := range unexpanded {
		s.Log.Warn("ignored an invalid variable of an agent's definition",
			"session", rec.ID, "agent", rec.Agent, "variable", u.Name, "err", u.Err)
	}
	return sources
}

// Origins returns the origin of the variables of the session's last run. Errors: NoSuchSession,
// InvalidState.
func (s *Supervisor) Origins(id string) (o environments.Origins, err error) {
	var dir, run string
	if e := s.do(func() {
		var e *entry
		if e, err = s.find(id); err == nil && e.rec.Run != nil {
			dir, run = s.Records.SessionDir(id), e.rec.Run.ID
		}
	}); e != nil {
		return o, e
	}
	if err == nil && run == "" {
		err = refuse(InvalidState, "session %q was never started", id)
	}
	if err != nil {
		return o, err
	}
	if o, err = environments.ReadOrigins(dir); err != nil {
		return o, refuse(InvalidState, "cannot read the environment of the last run of session %q: %v", id, err)
	}
	if o.Run != run {
		return environments.Origins{}, refuse(InvalidState, "session %q: the origin of its environment was not recorded", id)
	}
	return o, nil
}

// dropCallerEnvironment drops the variables of the caller that are not needed once the run has
// begun.
func (s *Supervisor) dropCallerEnvironment(e *entry, run string) {
	if e.removed || e.rec.Run.ID != run {
		return
	}
	e.run.callerEnvironment = environments.CallerAfterStart(e.run.callerEnvironment, s.Agents[e.rec.Agent])
}

// IsInstalled reports whether one of the programs exists that show that an agent is installed, as
// found by a run without the environment of a caller. If that is unknown before a start,
// IsInstalled returns true: the start returns the error.
func (s *Supervisor) IsInstalled(ctx context.Context, def config.Agent) bool {
	found, err := s.hasProgram(ctx, def, nil, nil)
	return found || err != nil
}

// checkInstalled returns an error if the program of the agent is missing, before anything is
// created: a person has to install the agent. A session that is not to be started may be created
// before its agent is installed. A client's Command is checked by checkExecutable. Errors:
// AgentNotInstalled, StartFailed.
func (s *Supervisor) checkInstalled(ctx context.Context, agent string, spec *Spec) error {
	if spec.NoStart {
		return nil
	}
	agents, err := s.ListAgents()
	if err != nil {
		return err
	}
	def := agents[agent]
	if len(spec.Command) > 0 {
		dir := spec.WorkingDirectory
		if spec.Worktree != nil {
			dir = "" // the worktree does not exist yet
		}
		return s.checkExecutable(ctx, def, spec, dir)
	}
	if found, err := s.hasProgram(ctx, def, spec.CallerEnvironment, spec.Environment); found || err != nil {
		return err
	}
	return refuse(AgentNotInstalled, "agent %q is not installed: command %q not found", agent, def.Programs()[0])
}

// checkExecutable returns an error if the first run, in dir, could not execute a client's Command,
// so that a typing error leaves no failed session. An empty dir stands for a workspace that does
// not exist yet. Errors: StartFailed.
func (s *Supervisor) checkExecutable(ctx context.Context, def config.Agent, spec *Spec, dir string) error {
	env, known, err := s.firstEnvironment(def, spec.CallerEnvironment, spec.Environment)
	if err != nil || !known {
		return err
	}
	if err := s.Environments.FindProgram(ctx, spec.Command[0], dir, env); err != nil {
		return refuse(StartFailed, "%v", err)
	}
	return nil
}

// hasProgram reports whether a run with these variables would find one of the agent's programs. If
// that depends on specifiers whose values only a session has, it returns true: the start returns
// the error.
func (s *Supervisor) hasProgram(ctx context.Context, def config.Agent, caller, own []string) (bool, error) {
	programs := def.Programs()
	hasSpecifier := func(program string) bool { return strings.Contains(program, "%") }
	if len(programs) == 0 || slices.ContainsFunc(programs, hasSpecifier) {
		return true, nil
	}
	env, known, err := s.firstEnvironment(def, caller, own)
	if err != nil || !known {
		return err == nil, err
	}
	return slices.ContainsFunc(programs, func(program string) bool {
		return s.Environments.FindProgram(ctx, program, "", env) == nil
	}), nil
}

// firstEnvironment returns the sources of the environment of a new session's first run, with the
// caller's variables and the session's own. Known is false if its PATH depends on specifiers whose
// values only a session has.
func (s *Supervisor) firstEnvironment(
	def config.Agent, caller, own []string,
) (env environments.Sources, known bool, err error) {
	var loginShell bool
	if err := s.do(func() { loginShell = s.Config.LoginShell }); err != nil {
		return env, false, err
	}
	env, unexpanded := environments.NewSources(def, loginShell, config.Specifiers{Home: s.Home}, caller, own)
	return env, environments.IsPathKnown(unexpanded), nil
}

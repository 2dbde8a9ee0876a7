package supervisor

import (
	"slices"

	"github.com/corrald/corral/supervisor/environments"
)

// Origins returns the origin of the variables of the session's last run. Errors: NoSuchSession,
// InvalidState.
func (s *Supervisor) Origins(id string) (environments.Origins, error) {
	var none environments.Origins
	var dir, run string
	if err := s.loop.doWith(id, func(e *entry) error {
		if e.rec.Run == nil {
			return refuse(InvalidState, "session %q was never started", id)
		}
		dir, run = s.loop.records.SessionDir(id), e.rec.Run.ID
		return nil
	}); err != nil {
		return none, err
	}
	o, err := environments.ReadOrigins(dir)
	switch {
	case err != nil:
		return none, refuse(InvalidState, "cannot read the environment of the last run of session %q: %v", id, err)
	case o.Run != run:
		return none, refuse(InvalidState, "session %q: the origin of its environment was not recorded", id)
	}
	return o, nil
}

// environment returns the sources of the environment of the session's agent. Caller is the
// environment of the client that has requested the run. It logs the entries of the agent's
// definition that cannot be expanded and are omitted.
func (e *entry) environment(caller []string) environments.Sources {
	settings, def := &e.loop.settings, e.definition()
	if e.rec.Sandbox != "" {
		def.DefaultEnvironment = slices.Concat(def.DefaultEnvironment, def.SandboxDefaults)
	}
	sources, unexpanded := environments.NewSources(def,
		settings.config.LoginShell, settings.specifiers(e.rec), caller, e.rec.Environment)
	sources.Corral = portVariables(e.rec.Ports)
	for _, u := range unexpanded {
		e.loop.log.Warn("ignored an invalid variable of an agent's definition",
			"session", e.rec.ID, "agent", e.rec.Agent, "variable", u.Name, "err", u.Err)
	}
	return sources
}

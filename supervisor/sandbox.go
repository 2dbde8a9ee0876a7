package supervisor

import (
	"cmp"
	"errors"
	"path/filepath"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/supervisor/session"
)

// Confinement is the sandbox of a session's agent: a sandbox profile, with what the agent needs.
type Confinement struct {
	Profile config.Sandbox
	Err     error // why there is no such profile now; the run cannot start

	// Patterns of the agent's definition, as in Agent.
	Writable, ReadOnly []string

	Values   config.Specifiers
	StateDir string // of Corral: the agent must not see the logs and records there
	// RuntimeDir is $XDG_RUNTIME_DIR.
	RuntimeDir string
	CacheDir   string // with a directory for each profile, which contains the private directories
}

// confinement returns the sandbox of the session's agent, nil for none.
func (l *loop) confinement(rec *session.Session) *Confinement {
	set := &l.settings
	if rec.Sandbox == "" {
		return nil
	}
	profile, err := set.sandbox(rec.Sandbox)
	def := set.definition(rec)
	return &Confinement{
		Profile: profile, Err: err, Writable: def.SandboxWritable, ReadOnly: def.SandboxReadOnly,
		RuntimeDir: filepath.Dir(set.runDir), CacheDir: set.sandboxDir, Values: set.specifiers(rec),
		StateDir: filepath.Dir(filepath.Dir(l.records.SessionDir(rec.ID))),
	}
}

// sandbox returns a sandbox profile, or an error if there is none that can be used.
func (s *settings) sandbox(name string) (config.Sandbox, error) {
	profile, known := s.config.Sandboxes[name]
	if !known {
		return config.Sandbox{Name: name}, errors.New(s.config.Sandboxes.Missing(name))
	}
	return profile, nil
}

// chooseSandbox returns the name of the sandbox profile of a new session, "" for none: the one that
// the client has chosen, otherwise that of the agent's definition. Errors: Invalid.
func (s *settings) chooseSandbox(def config.Agent, chosen string) (string, error) {
	name := cmp.Or(chosen, def.Sandbox, config.NoSandbox)
	if name == config.NoSandbox {
		return "", nil
	}
	if _, err := s.sandbox(name); err != nil {
		if chosen == "" {
			return "", refuse(ConfigError, "agent %q: Sandbox=: %v", def.Name, err)
		}
		return "", refuse(Invalid, "invalid Sandbox: %v", err)
	}
	return name, nil
}

// sandboxTool returns the program that sets up a sandbox, and the Network= of the profile.
func (s *settings) sandboxTool(name string) (tool, network string) {
	profile, err := s.sandbox(name)
	switch {
	case name == "" || err != nil:
		return "", ""
	case len(profile.Wrapper) > 0:
		return filepath.Base(profile.Wrapper[0]), ""
	}
	return "bubblewrap", profile.Network
}

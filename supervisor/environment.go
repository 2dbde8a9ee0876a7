package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/safefile"
	"github.com/corrald/corral/supervisor/session"
)

// Environment contains the sources of a run's environment, except for the user manager and the
// login shell. Package environment combines all of them.
type Environment struct {
	LoginShell bool     // the login shell may be run for its environment, if the caller has no PATH of its own
	Definition []string // Set= of the agent's definition, NAME=VALUE
	Files      []string // EnvironmentFile= of the definition: paths, prefixed with - if the file may be missing
	Unset      []string // Unset= of the definition: names that are not inherited
	Caller     []string // environment of the client that has requested the run, as it was sent; it is not stored
	Session    []string // the session's own variables
}

// EnvironmentRecord is the name of the file in a session's directory that records the origin of the
// variables of its last run: their names, and the value of PATH.
const EnvironmentRecord = "environment"

// MaxEnvironmentRecord limits how much of that file is read, in bytes. The file contains only
// names, of fewer variables than an environment can have.
const MaxEnvironmentRecord = 16 << 20

// Origins is the content of that file.
type Origins struct {
	Run       string              `json:"run"`
	Path      string              `json:"path"` // the run's PATH
	Variables map[string][]string `json:"variables"`
	// Missing are the names that an earlier run had from the same origin, and that this run does not
	// have at all.
	Missing map[string][]string `json:"missing,omitempty"`
}

// environment returns the sources of a run's environment. It is called on the event loop.
func (s *Supervisor) environment(rec *session.Session, def config.Agent, caller []string) Environment {
	return Environment{
		LoginShell: s.usesLoginShell(def),
		Definition: s.expandEach(rec, def.Environment),
		Files:      s.expandEach(rec, def.EnvironmentFiles),
		Unset:      slices.Clone(def.UnsetEnvironment),
		Caller:     caller,
		Session:    slices.Clone(rec.Environment),
	}
}

// usesLoginShell reports whether the login shell may be run for the environment of the agent. It is
// called on the event loop.
func (s *Supervisor) usesLoginShell(def config.Agent) bool {
	if def.LoginShell != nil {
		return *def.LoginShell
	}
	return s.Config.LoginShell
}

// expandEach expands the specifiers in entries of the agent's definition that specify its
// environment. It omits, and logs, an entry that cannot be expanded.
func (s *Supervisor) expandEach(rec *session.Session, entries []string) []string {
	var all []string
	for _, entry := range entries {
		expanded, err := config.Expand([]string{entry}, s.specifiers(rec))
		if err != nil {
			name, _, _ := strings.Cut(entry, "=")
			s.Log.Warn("ignored an invalid variable of an agent's definition",
				"session", rec.ID, "agent", rec.Agent, "variable", name, "err", err)
		}
		all = append(all, expanded...)
	}
	return all
}

// Origins returns the origin of the variables of the session's last run. Errors: NoSuchSession,
// InvalidState.
func (s *Supervisor) Origins(id string) (o Origins, err error) {
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
	data, err := safefile.Read(filepath.Join(dir, EnvironmentRecord), MaxEnvironmentRecord)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return o, refuse(InvalidState, "cannot read the environment of the last run of session %q: %v", id, err)
	}
	if err != nil || json.Unmarshal(data, &o) != nil || o.Run != run {
		return Origins{}, refuse(InvalidState, "session %q: the origin of its environment was not recorded", id)
	}
	return o, nil
}

// How a client requests a run: see Begin.
const (
	HowStart   = "start"
	HowResume  = "resume"
	HowRestart = "restart"
)

// Begin is Start, Resume or Restart, as how specifies (one of the How constants), with the
// environment of the caller. It is used for this run only, and is not stored. Errors: those of the
// three, Invalid, OverLimit.
func (s *Supervisor) Begin(ctx context.Context, id, how string, caller []string) error {
	if err := checkTexts(&Spec{CallerEnvironment: caller}); err != nil {
		return err
	}
	switch how {
	case HowStart:
		return s.startBy(ctx, id, caller)
	case HowResume:
		return s.resumeBy(ctx, id, caller)
	case HowRestart:
		return s.restartBy(ctx, id, caller)
	}
	return refuse(Invalid, "invalid how %s: expected start, resume or restart", brief(how))
}

// dropCallerEnvironment drops the caller's environment once the run has begun, except for variables
// that occur in ResumeCondition= of the agent's definition: the search for its conversation needs
// these.
func (s *Supervisor) dropCallerEnvironment(e *entry, run string) {
	if e.removed || e.rec.Run.ID != run {
		return
	}
	conditions := strings.Join(s.Agents[e.rec.Agent].ResumeCondition, "\n")
	var kept []string
	for _, entry := range e.run.callerEnvironment {
		if name, _, _ := strings.Cut(entry, "="); strings.Contains(conditions, name) {
			kept = append(kept, entry)
		}
	}
	e.run.callerEnvironment = kept
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
	if err := s.Programs.FindProgram(ctx, spec.Command[0], dir, env); err != nil {
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
		return s.Programs.FindProgram(ctx, program, "", env) == nil
	}), nil
}

// firstEnvironment returns the sources of the environment of a new session's first run, with the
// caller's variables and the session's own. Known is false if its PATH depends on specifiers whose
// values only a session has.
func (s *Supervisor) firstEnvironment(
	def config.Agent, caller, own []string,
) (env Environment, known bool, err error) {
	env = Environment{LoginShell: true, Unset: def.UnsetEnvironment, Caller: caller, Session: own}
	if err := s.do(func() { env.LoginShell = s.usesLoginShell(def) }); err != nil {
		return env, false, err
	}
	for _, list := range []struct{ from, to *[]string }{
		{&def.Environment, &env.Definition}, {&def.EnvironmentFiles, &env.Files},
	} {
		for _, entry := range *list.from {
			expanded, err := config.Expand([]string{entry}, config.Specifiers{Home: s.Home})
			if err == nil {
				*list.to = append(*list.to, expanded...)
			} else if list.to == &env.Files || strings.HasPrefix(entry, "PATH=") {
				return env, false, nil
			}
		}
	}
	return env, true, nil
}

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

// Environment is what a run's environment is made of, beside what the user manager and the login shell have: see package environment, which puts it
// together.
type Environment struct {
	LoginShell bool     // the login shell may be asked, where the caller has no PATH of its own
	Definition []string // Set= of the agent's definition, NAME=VALUE
	Files      []string // EnvironmentFile= of it: paths, with a - in front where the file may be missing
	Unset      []string // Unset= of it: names that are not inherited
	Caller     []string // that of whoever asked for this run, as it was sent; it is kept nowhere
	Session    []string // the session's own
}

// EnvironmentRecord is the name of the file in a session's directory that tells where the variables of its last run come from: their names, and PATH.
const EnvironmentRecord = "environment"

// MaxEnvironmentRecord bounds what is read of that file, in bytes. It has names alone, of fewer variables than an environment can have.
const MaxEnvironmentRecord = 16 << 20

// Origins is what that file holds.
type Origins struct {
	Run       string              `json:"run"`
	Path      string              `json:"path"` // the run's PATH
	Variables map[string][]string `json:"variables"`
	Missing   map[string][]string `json:"missing,omitempty"` // the names that an earlier run had from there, and this one has not at all
}

// environment puts together what is known of a run's environment, on the loop.
func (s *Supervisor) environment(rec *session.Session, def config.Agent, caller []string) Environment {
	return Environment{
		LoginShell: s.loginShell(def),
		Definition: s.expandEach(rec, def.Environment),
		Files:      s.expandEach(rec, def.EnvironmentFiles),
		Unset:      slices.Clone(def.UnsetEnvironment),
		Caller:     caller,
		Session:    slices.Clone(rec.Environment),
	}
}

// loginShell tells whether the login shell may be asked for the agent, on the loop.
func (s *Supervisor) loginShell(def config.Agent) bool {
	if def.LoginShell != nil {
		return *def.LoginShell
	}
	return s.Config.LoginShell
}

// expandEach puts the session's values into what the agent's definition has for its environment. What cannot be expanded is left out.
func (s *Supervisor) expandEach(rec *session.Session, entries []string) []string {
	var all []string
	for _, entry := range entries {
		expanded, err := config.Expand([]string{entry}, s.specifiers(rec))
		if err != nil {
			name, _, _ := strings.Cut(entry, "=")
			s.Log.Warn("ignored an invalid variable of an agent's definition", "session", rec.ID, "agent", rec.Agent, "variable", name, "err", err)
		}
		all = append(all, expanded...)
	}
	return all
}

// Origins tells where the variables of the session's last run come from. Errors: NoSuchSession, InvalidState.
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

// How a run is begun on behalf of somebody.
const (
	HowStart   = "start"
	HowResume  = "resume"
	HowRestart = "restart"
)

// Begin is Start, Resume or Restart, one of the How constants, for a caller whose environment came along. It is that of this run and of no other, and is
// not kept. Errors: those of the three, Invalid, OverLimit.
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

// forgetCaller drops the caller's environment once the run has begun, but for what its conversation is looked for with.
func (s *Supervisor) forgetCaller(e *entry, run string) {
	if e.removed || e.rec.Run.ID != run {
		return
	}
	conditions := strings.Join(s.Agents[e.rec.Agent].ResumeCondition, "\n")
	var kept []string
	for _, entry := range e.run.caller {
		if name, _, _ := strings.Cut(entry, "="); strings.Contains(conditions, name) {
			kept = append(kept, entry)
		}
	}
	e.run.caller = kept
}

// Installed tells whether one of the programs is there that show that an agent is installed, for a run that nobody sends an environment along with. Where
// that cannot be told it says yes: the start will.
func (s *Supervisor) Installed(ctx context.Context, def config.Agent) bool {
	found, err := s.finds(ctx, def, nil, nil)
	return found || err != nil
}

// installed refuses a session of an agent whose own program is not there, before anything is made: a person has to install it. A session that is not to be
// started may wait for the agent. A client's Command is checked by executable. Errors: AgentNotInstalled, StartFailed.
func (s *Supervisor) installed(ctx context.Context, agent string, spec *Spec) error {
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
		return s.executable(ctx, def, spec, dir)
	}
	if found, err := s.finds(ctx, def, spec.CallerEnvironment, spec.Environment); found || err != nil {
		return err
	}
	return refuse(AgentNotInstalled, "agent %q is not installed: command %q not found", agent, def.Programs()[0])
}

// executable refuses a client's Command that its first run, in dir, could not execute, so that a typing error leaves no failed session. An empty dir stands
// for a workspace that is not known yet. Errors: StartFailed.
func (s *Supervisor) executable(ctx context.Context, def config.Agent, spec *Spec, dir string) error {
	env, known, err := s.firstEnvironment(def, spec.CallerEnvironment, spec.Environment)
	if err != nil || !known {
		return err
	}
	if err := s.World.FindProgram(ctx, spec.Command[0], dir, env); err != nil {
		return refuse(StartFailed, "%v", err)
	}
	return nil
}

// finds tells whether one of the agent's programs would be found by a run with these variables. Where that depends on what only a session has, it says yes: the
// start will tell.
func (s *Supervisor) finds(ctx context.Context, def config.Agent, caller, own []string) (bool, error) {
	programs := def.Programs()
	if len(programs) == 0 || slices.ContainsFunc(programs, func(program string) bool { return strings.Contains(program, "%") }) {
		return true, nil
	}
	env, known, err := s.firstEnvironment(def, caller, own)
	if err != nil || !known {
		return err == nil, err
	}
	return slices.ContainsFunc(programs, func(program string) bool { return s.World.FindProgram(ctx, program, "", env) == nil }), nil
}

// firstEnvironment returns what the environment of a new session's first run is made of, with the caller's variables and the session's own. Known is false where
// its PATH depends on what only a session has.
func (s *Supervisor) firstEnvironment(def config.Agent, caller, own []string) (env Environment, known bool, err error) {
	env = Environment{LoginShell: true, Unset: def.UnsetEnvironment, Caller: caller, Session: own}
	if err := s.do(func() { env.LoginShell = s.loginShell(def) }); err != nil {
		return env, false, err
	}
	for _, list := range []struct{ from, to *[]string }{{&def.Environment, &env.Definition}, {&def.EnvironmentFiles, &env.Files}} {
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

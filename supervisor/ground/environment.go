package ground

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/atomicfile"
	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/loginshell"
	"github.com/corrald/corral/internal/safefile"
	"github.com/corrald/corral/internal/sshagent"
	"github.com/corrald/corral/internal/transient"
	"github.com/corrald/corral/supervisor"
)

// startShell starts a login shell in a unit of its own: what it leaves running ends with that, and is in no session.
func (g *Ground) startShell(ctx context.Context, path string, args, set []string) (io.ReadCloser, error) {
	conn, err := bus.Dial(ctx, g.Tmux.BusAddr) // that of package units takes no descriptors along
	if err != nil {
		return nil, err
	}
	output, err := transient.Output(ctx, conn, transient.Service{
		Kind: "login-shell", Name: filepath.Base(path), Description: "What the login shell sets, for Corral's sessions", Slice: "app.slice",
		Path: path, Argv: args, Environment: set,
	}, loginshell.Limit+time.Second)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return shellOutput{output, conn}, nil
}

// shellOutput is what a shell prints, with the connection that is used for nothing else.
type shellOutput struct {
	io.ReadCloser
	conn *dbus.Conn
}

// Close implements io.Closer.
func (o shellOutput) Close() error { return errors.Join(o.ReadCloser.Close(), o.conn.Close()) }

// sources brings together what a run's environment is made of, less what is ours. A login shell that does not tell is no reason not to start.
func (g *Ground) sources(ctx context.Context, env supervisor.Environment) (environment.Sources, error) {
	s := environment.Sources{Definition: env.Definition, Caller: env.Caller, Session: env.Session, Unset: env.Unset}
	var err error
	if s.Manager, err = g.Units.Environment(ctx); err != nil {
		return s, fmt.Errorf("cannot read the manager's environment: %w", err)
	}
	if s.Files, err = environment.ReadFiles(env.Files); err != nil {
		return s, err
	}
	if env.LoginShell && !s.CallerHasPath() {
		s.LoginShell, err = g.loginShell.Added(ctx, s.Manager)
		if ctx.Err() == nil && g.Trouble != nil {
			g.Trouble(err)
		}
	}
	return s, ctx.Err()
}

// ForgetLoginShell has the login shell asked again.
func (g *Ground) ForgetLoginShell() { g.loginShell.Invalidate() }

// environment returns the environment of the run's agent.
func (g *Ground) environment(ctx context.Context, p supervisor.Plan) ([]string, error) {
	variables, err := g.variables(ctx, p)
	return environment.Entries(variables), err
}

// variables returns the variables of the run's agent.
func (g *Ground) variables(ctx context.Context, p supervisor.Plan) ([]environment.Variable, error) {
	s, err := g.sources(ctx, p.Environment)
	if err != nil {
		return nil, err
	}
	s.Corral = []string{
		"TERM=tmux-256color", "COLORTERM=truecolor", "PWD=" + p.Spec.Dir, "CORRAL_SESSION=" + p.ID,
		"XDG_RUNTIME_DIR=" + filepath.Dir(g.RuntimeDir), "DBUS_SESSION_BUS_ADDRESS=" + g.Tmux.BusAddr,
		"SSH_AUTH_SOCK=" + filepath.Join(g.RuntimeDir, sshagent.LinkName),
	}
	return s.Compose(), g.followAgent(s)
}

// followAgent leads the name that agents have of the user's ssh-agent to the caller's, or, where it leads nowhere, to the manager's.
func (g *Ground) followAgent(s environment.Sources) error {
	if socket, is := environment.Lookup(s.Caller, "SSH_AUTH_SOCK"); is {
		if err := sshagent.UpdateLink(g.RuntimeDir, socket); err != nil {
			return err
		}
	}
	if sshagent.IsLive(filepath.Join(g.RuntimeDir, sshagent.LinkName)) {
		return nil
	}
	socket, _ := environment.Lookup(s.Manager, "SSH_AUTH_SOCK")
	return sshagent.UpdateLink(g.RuntimeDir, socket)
}

// maxMissing bounds how many names of earlier runs are remembered.
const maxMissing = 1000

// recordOrigins notes where the run's variables come from, by their names. Nothing depends on it but what a person is told.
func recordOrigins(p supervisor.Plan, variables []environment.Variable) error {
	path := filepath.Join(p.Spec.StateDir, supervisor.EnvironmentRecord)
	o := supervisor.Origins{Run: p.Spec.RunID, Variables: map[string][]string{}}
	has := map[string]bool{}
	for _, v := range variables {
		o.Variables[v.Source] = append(o.Variables[v.Source], v.Name)
		if has[v.Name] = true; v.Name == "PATH" {
			o.Path = v.Value
		}
	}
	for _, names := range o.Variables {
		slices.Sort(names)
	}
	var before supervisor.Origins
	if data, err := safefile.Read(path, supervisor.MaxEnvironmentRecord); err == nil && json.Unmarshal(data, &before) == nil {
		o.Missing = missing(before, has)
	}
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	f, err := atomicfile.Create(p.Spec.StateDir, supervisor.EnvironmentRecord, 0o600)
	if err != nil {
		return err
	}
	return f.ReplaceUnsynced(data) // not synced: after a power cut there is another run
}

// missing returns the names that a run has not, and the one before it had, or missed.
func missing(before supervisor.Origins, has map[string]bool) map[string][]string {
	names := map[string][]string{}
	n := 0
	for _, had := range []map[string][]string{before.Variables, before.Missing} {
		for _, source := range slices.Sorted(maps.Keys(had)) {
			for _, name := range had[source] {
				if !has[name] && n < maxMissing {
					names[source] = append(names[source], name)
					n++
				}
			}
		}
	}
	return names
}

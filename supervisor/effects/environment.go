package effects

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

// startLoginShell starts a login shell in a unit of its own, so that its leftover processes end
// with that unit and are not in any session.
func (x *Executor) startLoginShell(ctx context.Context, path string, args, set []string) (io.ReadCloser, error) {
	conn, err := bus.Dial(ctx, x.Tmux.BusAddr) // the connection of package units cannot pass descriptors
	if err != nil {
		return nil, err
	}
	output, err := transient.Output(ctx, conn, transient.Service{
		Kind: "login-shell", Name: filepath.Base(path), Slice: "app.slice",
		Description: "What the login shell sets, for Corral's sessions",
		Path:        path, Argv: args, Environment: set,
	}, loginshell.Limit+time.Second)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return shellOutput{output, conn}, nil
}

// shellOutput is the output of a shell, with the bus connection that exists only for it.
type shellOutput struct {
	io.ReadCloser
	conn *dbus.Conn
}

// Close implements io.Closer.
func (o shellOutput) Close() error { return errors.Join(o.ReadCloser.Close(), o.conn.Close()) }

// sources returns the sources of a run's environment, except for Corral's own variables. If the
// login shell fails, the run starts without the variables that the shell did not report.
func (x *Executor) sources(ctx context.Context, env supervisor.Environment) (environment.Sources, error) {
	s := environment.Sources{Definition: env.Definition, Caller: env.Caller, Session: env.Session, Unset: env.Unset}
	var err error
	if s.Manager, err = x.Units.Environment(ctx); err != nil {
		return s, fmt.Errorf("cannot read the manager's environment: %w", err)
	}
	if s.Files, err = environment.ReadFiles(env.Files); err != nil {
		return s, err
	}
	if env.LoginShell && !s.CallerHasPath() {
		s.LoginShell, err = x.loginShell.Added(ctx, s.Manager)
		if ctx.Err() == nil && x.LoginShellProblem != nil {
			x.LoginShellProblem(err)
		}
	}
	return s, ctx.Err()
}

// ForgetLoginShell makes the next start run the login shell again.
func (x *Executor) ForgetLoginShell() { x.loginShell.Invalidate() }

// environment returns the environment of the run's agent as NAME=VALUE.
func (x *Executor) environment(ctx context.Context, p supervisor.Plan) ([]string, error) {
	variables, err := x.variables(ctx, p)
	return environment.Entries(variables), err
}

// variables returns the variables of the run's agent, with their sources.
func (x *Executor) variables(ctx context.Context, p supervisor.Plan) ([]environment.Variable, error) {
	s, err := x.sources(ctx, p.Environment)
	if err != nil {
		return nil, err
	}
	s.Corral = []string{
		"TERM=tmux-256color", "COLORTERM=truecolor", "PWD=" + p.Spec.Dir, "CORRAL_SESSION=" + p.ID,
		"XDG_RUNTIME_DIR=" + filepath.Dir(x.RuntimeDir), "DBUS_SESSION_BUS_ADDRESS=" + x.Tmux.BusAddr,
		"SSH_AUTH_SOCK=" + filepath.Join(x.RuntimeDir, sshagent.LinkName),
	}
	return s.Compose(), x.updateSSHAgentLink(s)
}

// updateSSHAgentLink makes the path at which agents find the user's ssh-agent point to the caller's
// ssh-agent. If no ssh-agent responds there then, the path points to that of the user manager.
func (x *Executor) updateSSHAgentLink(s environment.Sources) error {
	if socket, is := environment.Lookup(s.Caller, "SSH_AUTH_SOCK"); is {
		if err := sshagent.UpdateLink(x.RuntimeDir, socket); err != nil {
			return err
		}
	}
	if sshagent.IsLive(filepath.Join(x.RuntimeDir, sshagent.LinkName)) {
		return nil
	}
	socket, _ := environment.Lookup(s.Manager, "SSH_AUTH_SOCK")
	return sshagent.UpdateLink(x.RuntimeDir, socket)
}

// maxMissing bounds how many names of earlier runs are recorded.
const maxMissing = 1000

// recordOrigins records the source of each of the run's variables, by name. The record is only
// printed for people; nothing else depends on it.
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
	data, err := safefile.Read(path, supervisor.MaxEnvironmentRecord)
	if err == nil && json.Unmarshal(data, &before) == nil {
		o.Missing = missing(before, has)
	}
	data, err = json.Marshal(o)
	if err != nil {
		return err
	}
	f, err := atomicfile.Create(p.Spec.StateDir, supervisor.EnvironmentRecord, 0o600)
	if err != nil {
		return err
	}
	return f.ReplaceUnsynced(data) // not synced: after a power cut, the record of the next run replaces it
}

// missing returns the names that a run does not have and that the previous one had, or lacked as
// well, by source.
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

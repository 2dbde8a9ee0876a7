package environments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/loginshell"
	"github.com/corrald/corral/internal/program"
	"github.com/corrald/corral/internal/sshagent"
	"github.com/corrald/corral/internal/transient"
)

// Composer composes the environments of runs. Its methods may be called at the same time by several
// goroutines, but not by the event loop: they wait for systemd and for the login shell.
type Composer struct {
	// LoginShellProblem is called each time the environment of the login shell is used, with the
	// reason why that is not completely known, nil if it is. It may be nil. It is set before the first
	// call of a method.
	LoginShellProblem func(error)

	manager    func(context.Context) ([]string, error)
	loginShell *loginshell.Shell
	runtimeDir string
	busAddress string
}

// NewComposer returns a Composer for agents that use the bus at an address. Manager returns the
// environment of the user manager, shim is the path of corral-shim, and runtimeDir is
// $XDG_RUNTIME_DIR/corral.
func NewComposer(
	manager func(context.Context) ([]string, error), shim, runtimeDir, busAddress string,
) *Composer {
	c := &Composer{manager: manager, runtimeDir: runtimeDir, busAddress: busAddress}
	c.loginShell = loginshell.New(c.startLoginShell, shim)
	return c
}

// Compose returns the variables of the agent of the session, which runs in dir, with their sources.
// It updates the link to the ssh-agent so that it refers to the caller's ssh-agent, and creates the
// directories of the definition. It returns an error if the environment of the user manager or a
// file of the definition is not available, or if one of these cannot be updated or created.
func (c *Composer) Compose(ctx context.Context, sources Sources, session, dir string) ([]environment.Variable, error) {
	s, err := c.complete(ctx, sources)
	if err != nil {
		return nil, err
	}
	s.Corral = []string{
		"TERM=tmux-256color", "COLORTERM=truecolor", "PWD=" + dir, "CORRAL_SESSION=" + session,
		"XDG_RUNTIME_DIR=" + filepath.Dir(c.runtimeDir), "DBUS_SESSION_BUS_ADDRESS=" + c.busAddress,
		"SSH_AUTH_SOCK=" + filepath.Join(c.runtimeDir, sshagent.LinkName),
	}
	s.Corral, s.Unset = append(s.Corral, sources.Corral...), slices.Concat(s.Unset, names(sources.Corral))
	for _, dir := range sources.Directories {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("cannot create a directory of the agent's definition: %w", err)
		}
	}
	return s.Compose(), c.updateSSHAgentLink(s)
}

// complete adds the user manager and the login shell to the sources, and reads the files. If the
// login shell fails, the run starts without the variables that the shell did not report.
func (c *Composer) complete(ctx context.Context, sources Sources) (environment.Sources, error) {
	s := environment.Sources{
		Default: sources.Default, Definition: sources.Definition, Caller: sources.Caller,
		Session: sources.Session, Unset: sources.Unset,
	}
	var err error
	if s.Manager, err = c.manager(ctx); err != nil {
		return s, err
	}
	if s.Files, err = environment.ReadFiles(sources.Files); err != nil {
		return s, err
	}
	if sources.Account {
		s.Unset = slices.Concat(s.Unset, names(s.Definition), names(s.Files))
	}
	if sources.LoginShell && !s.CallerHasPath() {
		s.LoginShell, err = c.loginShell.Added(ctx, s.Manager)
		if ctx.Err() == nil && c.LoginShellProblem != nil {
			c.LoginShellProblem(err)
		}
	}
	return s, ctx.Err()
}

// names returns the names of variables, NAME=VALUE.
func names(entries []string) []string {
	all := make([]string, len(entries))
	for i, entry := range entries {
		all[i], _, _ = strings.Cut(entry, "=")
	}
	return all
}

// updateSSHAgentLink updates the link to the ssh-agent so that it refers to the caller's ssh-agent.
// If no ssh-agent responds there then, the link refers to that of the user manager.
func (c *Composer) updateSSHAgentLink(s environment.Sources) error {
	if socket, is := environment.Lookup(s.Caller, "SSH_AUTH_SOCK"); is {
		if err := sshagent.UpdateLink(c.runtimeDir, socket); err != nil {
			return err
		}
	}
	if sshagent.IsLive(filepath.Join(c.runtimeDir, sshagent.LinkName)) {
		return nil
	}
	socket, _ := environment.Lookup(s.Manager, "SSH_AUTH_SOCK")
	return sshagent.UpdateLink(c.runtimeDir, socket)
}

// FindProgram returns why a program, a path or a name in the PATH of the environment, could not be
// executed in dir. It returns nil if this cannot be determined before the start, as for a relative
// path if the workspace is unknown, for which dir is "". Errors: those of program.Find, and
// *environment.FileError if a file of the definition cannot be used.
func (c *Composer) FindProgram(ctx context.Context, name, dir string, sources Sources) error {
	if _, err := environment.ReadFiles(sources.Files); err != nil {
		return err
	}
	isUnknown := func(path string) bool { return dir == "" && !filepath.IsAbs(path) }
	if strings.Contains(name, "/") {
		if isUnknown(name) {
			return nil
		}
		_, err := program.Find(name, nil, dir)
		return err
	}
	s, err := c.complete(ctx, sources)
	if err != nil {
		return nil //nolint:nilerr // the start reports it
	}
	entries := environment.Entries(s.Compose())
	path := program.SearchPath(entries)
	if slices.ContainsFunc(strings.Split(path, ":"), isUnknown) {
		return nil
	}
	_, err = program.Find(name, entries, dir)
	if e := (*program.Error)(nil); errors.As(err, &e) && e.Code == program.NotFound {
		return fmt.Errorf("%w in PATH=%s", err, path)
	}
	return err
}

// ForgetLoginShell makes the next use of the login shell's environment run the shell again.
func (c *Composer) ForgetLoginShell() { c.loginShell.Invalidate() }

// startLoginShell starts a login shell in a unit of its own, so that its leftover processes end
// with that unit and are not in any session.
func (c *Composer) startLoginShell(ctx context.Context, path string, args, set []string) (io.ReadCloser, error) {
	conn, err := bus.Dial(ctx, c.busAddress) // the connection of package units cannot pass descriptors
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

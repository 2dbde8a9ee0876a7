package effects

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/program"
	"github.com/corrald/corral/internal/sandbox"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/environments"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/tmux"
	"github.com/corrald/corral/units"
)

// start starts a run: a tmux server, a scope around it, and the shim in a pane of the server.
func (x *Executor) start(ctx context.Context, p supervisor.Plan, report func(session.Event)) error {
	select {
	case x.starts <- struct{}{}:
		defer func() { <-x.starts }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := program.CheckWorkspace(p.Spec.Dir); err != nil {
		return err
	}
	if err := x.checkUnitFree(ctx, p); err != nil {
		return err
	}
	scope, err := newScope(p)
	if err != nil {
		return err
	}
	if p, err = x.withConversation(ctx, p, report); err != nil {
		return err
	}
	spec, err := x.writeSpec(ctx, p)
	if err == nil {
		failpoint.Hit("start.spec-written")
		if p.ExistingScope != nil {
			err = x.startInExistingScope(ctx, p, spec, report)
		} else {
			err = x.startInNewScope(ctx, p, spec, scope, report)
		}
	}
	if err != nil {
		_ = os.Remove(spec) // it contains the whole environment
	}
	return err
}

// checkUnitFree returns an error if a scope of this name is running already: that of a session
// whose record was lost, with its agent. The scope is left as it is.
func (x *Executor) checkUnitFree(ctx context.Context, p supervisor.Plan) error {
	if p.ExistingScope != nil {
		return nil
	}
	active, err := x.units.IsActive(ctx, p.Unit)
	if err != nil {
		return err
	}
	if active {
		return fmt.Errorf("scope %s of another session is already running; stop it: systemctl --user stop %s",
			p.Unit, p.Unit)
	}
	return nil
}

// writeSpec writes the file that specifies what the shim runs. The file is private and in memory
// (XDG_RUNTIME_DIR); the shim removes it once it has read it.
func (x *Executor) writeSpec(ctx context.Context, p supervisor.Plan) (string, error) {
	variables, err := x.variables(ctx, p)
	if err != nil {
		return "", err
	}
	spec := p.Spec
	request := sandbox.Request{Workspace: spec.Dir, Socket: spec.Notify, Shim: x.shim}
	confined, variables, err := x.confine(p.Confinement, request, variables)
	if err != nil {
		return "", fmt.Errorf("cannot set up sandbox %q: %w", spec.Sandbox, err)
	}
	if p.Confinement != nil && len(p.Confinement.Profile.Wrapper) == 0 {
		confined.Args = append(confined.Args, sandbox.ShimPath, "confined")
		spec.SandboxArgs, spec.Forbidden = len(confined.Args), confined.Forbidden
	}
	spec.Args = append(confined.Args, spec.Args...)
	spec.Env = environment.Entries(variables)
	// If the disk is full, the agent starts without that record.
	_ = environments.WriteOrigins(p.Spec.StateDir, p.Spec.RunID, variables)
	if err := os.MkdirAll(p.RuntimeDir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(p.RuntimeDir, shimwire.SpecName)
	for _, old := range []string{path, spec.Socket} {
		if err := os.Remove(old); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	data := spec.Append(nil)
	if len(data) > shimwire.MaxSpec {
		return "", errors.New("the command and its environment are too long")
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if e := f.Close(); err == nil {
		err = e
	}
	return path, err
}

// startInNewScope starts the run that the file spec specifies. The server is moved into the scope
// before it runs anything, so that no process of the agent is ever outside of the scope.
func (x *Executor) startInNewScope(
	ctx context.Context, p supervisor.Plan, spec string, scope units.Scope, report func(session.Event),
) error {
	server, err := x.startServer(p, -1)
	if err != nil {
		return err
	}
	defer server.child.Close()
	failpoint.Hit("start.tmux-started")
	if err = x.startScope(ctx, p, server, scope, report); err == nil {
		if err = x.openSession(ctx, p, server, []string{x.shim, "run", spec}); err != nil && shimTookSpec(spec) {
			return nil
		}
		if err != nil { // this start created the scope, and no agent runs in it
			_ = x.units.Kill(context.WithoutCancel(ctx), p.Unit, unix.SIGKILL)
		}
		failpoint.Hit("start.session-opened")
	}
	if err != nil {
		server.kill()
		x.cleanUp(context.WithoutCancel(ctx), supervisor.Target{Unit: p.Unit, RuntimeDir: p.RuntimeDir})
	}
	return err
}

// startInExistingScope starts the run that the file spec specifies in the scope that still has
// leftover processes of an earlier run.
func (x *Executor) startInExistingScope(
	ctx context.Context, p supervisor.Plan, spec string, report func(session.Event),
) error {
	scope := p.ExistingScope
	if err := endAgentWithoutShim(scope.Agent); err != nil {
		return err
	}
	report(session.ScopeStarted{Run: p.Spec.RunID, InvocationID: scope.InvocationID, ControlGroup: scope.ControlGroup})
	hasBegun := func() bool { return shimTookSpec(spec) }
	return x.openInGroup(ctx, p, scope.ControlGroup, []string{x.shim, "run", spec}, report, hasBegun)
}

// shimTookSpec reports whether a shim has read and removed the file that specifies what to run. If
// so, the run has begun, even if tmux has failed, and the shim reports everything that follows.
// Otherwise shimTookSpec removes the file, so that no shim can begin the run.
func shimTookSpec(spec string) bool { return errors.Is(os.Remove(spec), os.ErrNotExist) }

// endAgentWithoutShim ends an agent that has lost its shim, and with it its terminal, if the agent
// is still running: two processes must not continue the same conversation.
func endAgentWithoutShim(agent session.Process) error {
	pidfd, err := proc.OpenPidfd(proc.Identity(agent))
	if err != nil {
		return nil // it has exited
	}
	defer func() { _ = unix.Close(pidfd) }()
	if err := signalAgent(supervisor.Target{Agent: agent}); err != nil {
		return err
	}
	if !proc.WaitExit(pidfd, killTime) {
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
		proc.WaitExit(pidfd, killTime)
	}
	return nil
}

// rejoin starts a new tmux server in the scope of a run whose server has exited, and shows the
// agent in it.
func (x *Executor) rejoin(
	ctx context.Context, t supervisor.Target, p supervisor.Plan, report func(session.Event),
) error {
	hasBegun := func() bool { return false }
	return x.openInGroup(ctx, p, t.ControlGroup, []string{x.shim, "join", p.Spec.Socket}, report, hasBegun)
}

// openInGroup starts a tmux server in an existing control group, with command in its pane. If that
// fails, hasBegun reports whether command is running nevertheless, and can run without a server.
func (x *Executor) openInGroup(
	ctx context.Context, p supervisor.Plan, group string, command []string,
	report func(session.Event), hasBegun func() bool,
) error {
	dir, err := unix.Open(x.cgroups.file(group, ""), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot join the existing scope: %w", err)
	}
	defer func() { _ = unix.Close(dir) }()
	server, err := x.startServer(p, dir)
	if err != nil {
		return err
	}
	defer server.child.Close()
	failpoint.Hit("enter.tmux-started")
	if err := x.openSession(ctx, p, server, command); err != nil && !hasBegun() {
		server.kill()
		return err
	}
	failpoint.Hit("enter.session-opened")
	report(session.TmuxStarted{Run: p.Spec.RunID, Process: server.process})
	return nil
}

// server is a tmux server that is being started.
type server struct {
	tmux.Session
	child   *tmux.Server
	process session.Process

	configured bool // it reads a configuration of the user
}

// startServer starts the session's tmux server in the control group whose directory is open as the
// descriptor cgroup. If that is negative, the server's process waits until it is moved into a scope
// and child.Execute is called.
func (x *Executor) startServer(p supervisor.Plan, cgroup int) (*server, error) {
	s := &server{}
	var err error
	if s.Session, err = tmux.NewSession(p.RuntimeDir, p.ID); err != nil {
		return nil, err
	}
	configs, err := tmuxConfigs(p)
	if err != nil {
		return nil, err
	}
	s.configured = len(configs) > 0
	if s.child, err = x.tmux.StartServer(s.Session, cgroup, configs...); err != nil {
		return nil, err
	}
	s.ServerPID, s.Window = s.child.PID, p.Spec.Program
	st, err := proc.Stat(s.ServerPID)
	if err != nil {
		s.kill()
		s.child.Close()
		return nil, fmt.Errorf("tmux exited at once: %w", err)
	}
	s.process = session.Process(st.Identity)
	return s, nil
}

// tmuxConfigs returns the configuration files that tmux reads besides Corral's own: the file that
// the plan names, or those of the user that exist where tmux itself looks for them.
func tmuxConfigs(p supervisor.Plan) ([]string, error) {
	switch p.TmuxConfig {
	case "":
		return nil, nil
	case config.TmuxConfigUser:
		home := os.Getenv("HOME")
		files := []string{filepath.Join(home, ".tmux.conf"), filepath.Join(home, ".config/tmux/tmux.conf")}
		dir := os.Getenv("XDG_CONFIG_HOME")
		if filepath.IsAbs(dir) && filepath.Clean(dir) != filepath.Join(home, ".config") {
			files = slices.Insert(files, 1, filepath.Join(dir, "tmux/tmux.conf"))
		}
		return slices.DeleteFunc(files, func(file string) bool { return unix.Access(file, unix.R_OK) != nil }), nil
	}
	if err := unix.Access(p.TmuxConfig, unix.R_OK); err != nil {
		return nil, fmt.Errorf("cannot read tmux's configuration %q: %w", p.TmuxConfig, err)
	}
	return []string{p.TmuxConfig}, nil
}

// startScope starts the scope with the server's process in it, which then executes tmux.
func (x *Executor) startScope(
	ctx context.Context, p supervisor.Plan, s *server, scope units.Scope, report func(session.Event),
) error {
	scope.PIDs = []int{s.ServerPID}
	started, err := x.units.Start(ctx, scope)
	if err != nil {
		return err
	}
	s.child.Execute()
	failpoint.Hit("start.scope-started")
	run := p.Spec.RunID
	report(session.ScopeStarted{Run: run, InvocationID: started.InvocationID, ControlGroup: started.ControlGroup})
	report(session.TmuxStarted{Run: run, Process: s.process})
	return nil
}

// shimProcessors is a variable for the shim: Go's runtime, which reads it before any code of the
// shim is executed, sets aside memory for each processor, 0.3 MiB for a second one. The agent does
// not get it.
const shimProcessors = "GOMAXPROCS=1"

// openSession creates the tmux session on the server, with command in its pane.
func (x *Executor) openSession(ctx context.Context, p supervisor.Plan, s *server, command []string) error {
	if err := waitForSocket(ctx, s); err != nil {
		return err
	}
	failpoint.Hit("show.tmux-listens")
	if s.configured {
		if invalid := x.tmux.Reconfigure(ctx, s.Session); x.TmuxConfig != nil {
			x.TmuxConfig(p.TmuxConfig, invalid)
		}
	}
	return x.tmux.Run(ctx, s.Session, p.Spec.Dir, command, shimProcessors)
}

// waitForSocket attempts to connect to a tmux server that starts, at listenInterval, which is about
// how long tmux takes to listen, and for listenTimeout at most.
const (
	listenInterval = time.Millisecond
	listenTimeout  = 10 * time.Second
)

// waitForSocket waits until tmux accepts connections. No event reports listen(2).
func waitForSocket(ctx context.Context, s *server) error {
	ctx, cancel := deadline.Context(ctx, listenTimeout)
	defer cancel()
	tick := time.NewTicker(listenInterval)
	defer tick.Stop()
	for {
		conn, err := net.Dial("unix", s.Socket)
		switch {
		case err == nil:
			return conn.Close()
		case proc.WaitExit(s.child.PIDFD, 0):
			return errors.New("tmux exited at once")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("tmux does not listen: %w", err)
		}
	}
}

// killTime bounds how long a process may take to exit after SIGKILL.
const killTime = 5 * time.Second

// kill sends SIGKILL to the server and reaps it.
func (s *server) kill() {
	_ = unix.PidfdSendSignal(s.child.PIDFD, unix.SIGKILL, nil, 0)
	proc.WaitExit(s.child.PIDFD, killTime)
	tmux.Reap(s.child.PID)
}

// anticipateStart prepares the kernel for moving a process into a new control group. The first move
// after some time waits for an RCU grace period, about 10 ms; moves soon after it do not wait
// (percpu_down_write of cgroup_threadgroup_rwsem, rcu_sync_enter). So this moves the daemon into
// the control group in which it is already, which changes nothing but makes the following move by
// systemd faster. If that is not permitted, a start only takes longer.
func (x *Executor) anticipateStart() {
	if !x.anticipating.CompareAndSwap(false, true) {
		return // one move is enough for all starts that follow
	}
	go func() {
		defer x.anticipating.Store(false)
		if group, err := proc.Cgroup(os.Getpid()); err == nil {
			_ = x.cgroups.write(group, "cgroup.procs", strconv.Itoa(os.Getpid()))
		}
	}()
}

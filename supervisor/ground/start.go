package ground

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/internal/unitproperty"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/tmux"
	"github.com/corrald/corral/units"
)

// slice is where every scope of ours is.
const slice = "app-corral.slice"

// Start starts a run: a tmux server, a scope around it, and in it a pane with the shim. The server is in the scope before anything runs in it, so
// that no process of the agent's is ever elsewhere.
func (g *Ground) Start(ctx context.Context, p supervisor.Plan, tell func(session.Event)) (err error) {
	select {
	case g.starts <- struct{}{}:
		defer func() { <-g.starts }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := workspaceThere(p.Spec.Dir); err != nil {
		return err
	}
	if err := g.unitFree(ctx, p); err != nil {
		return err
	}
	scope, err := g.scope(p)
	if err != nil {
		return err
	}
	if p, err = g.withConversation(ctx, p, tell); err != nil {
		return err
	}
	specPath, err := g.writeSpec(ctx, p)
	defer func() {
		if err != nil {
			_ = os.Remove(specPath) // with all of the environment in it
		}
	}()
	if err != nil {
		return err
	}
	failpoint.Hit("start.spec-written")
	command := []string{g.Shim, "run", specPath}
	if p.Into != nil {
		if err := g.endLost(ctx, p.Into.Agent); err != nil {
			return err
		}
		tell(session.ScopeStarted{Run: p.Spec.RunID, InvocationID: p.Into.InvocationID, ControlGroup: p.Into.ControlGroup})
		return g.openInto(ctx, p, p.Into.ControlGroup, command, tell, func() bool { return specTaken(specPath) })
	}
	server, err := g.startServer(p, -1)
	if err != nil {
		return err
	}
	defer server.child.Close()
	failpoint.Hit("start.tmux-started")
	if err = g.enclose(ctx, p, server, scope, tell); err == nil {
		if err = g.show(ctx, p, server, command); err != nil && specTaken(specPath) {
			return nil
		}
		if err != nil { // the scope is ours, with nothing in it that anybody would miss
			_ = g.Units.Kill(context.WithoutCancel(ctx), p.Unit, unix.SIGKILL)
		}
		failpoint.Hit("start.session-opened")
	}
	if err != nil {
		server.kill()
		g.Clear(context.WithoutCancel(ctx), p.Unit, p.RuntimeDir)
	}
	return err
}

// specTaken tells whether a shim has taken the file that tells it what to run: then the run has begun, whatever has become of tmux, and its shim tells the rest.
// Else the file is taken away, and none begins.
func specTaken(spec string) bool { return errors.Is(os.Remove(spec), os.ErrNotExist) }

// unitFree makes sure that no scope of this name runs: it would be that of a session whose record was lost, with its agent in it. Nothing of it is
// touched.
func (g *Ground) unitFree(ctx context.Context, p supervisor.Plan) error {
	if p.Into != nil {
		return nil
	}
	active, err := g.Units.IsActive(ctx, p.Unit)
	if err != nil {
		return err
	}
	if active {
		return fmt.Errorf("scope %s of another session is already running; stop it: systemctl --user stop %s", p.Unit, p.Unit)
	}
	return nil
}

// endLost ends an agent that has lost its shim, and so its terminal, if it lives: two processes must not go on with one conversation.
func (g *Ground) endLost(ctx context.Context, agent session.Process) error {
	pidfd, err := proc.OpenPidfd(proc.Identity(agent))
	if err != nil {
		return nil // it is gone, as it should be
	}
	defer func() { _ = unix.Close(pidfd) }()
	if err := g.End(ctx, supervisor.Target{Agent: agent}); err != nil {
		return err
	}
	if !proc.WaitExit(pidfd, killTime) {
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
		proc.WaitExit(pidfd, killTime)
	}
	return nil
}

// Rejoin puts a new tmux server into the scope of a run whose server is gone, and shows the agent there.
func (g *Ground) Rejoin(ctx context.Context, t supervisor.Target, p supervisor.Plan, tell func(session.Event)) error {
	return g.openInto(ctx, p, t.ControlGroup, []string{g.Shim, "join", p.Spec.Socket}, tell, func() bool { return false })
}

// openInto starts a tmux server in a control group that is there already, with command in its pane. Where that fails, begun tells whether the command has
// begun all the same, to live without a server.
func (g *Ground) openInto(ctx context.Context, p supervisor.Plan, group string, command []string, tell func(session.Event), begun func() bool) error {
	dir, err := unix.Open(g.file(group, ""), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot join the existing scope: %w", err)
	}
	defer func() { _ = unix.Close(dir) }()
	server, err := g.startServer(p, dir)
	if err != nil {
		return err
	}
	defer server.child.Close()
	failpoint.Hit("enter.tmux-started")
	if err := g.show(ctx, p, server, command); err != nil && !begun() {
		server.kill()
		return err
	}
	failpoint.Hit("enter.session-opened")
	tell(session.TmuxStarted{Run: p.Spec.RunID, Process: server.process})
	return nil
}

// server is a tmux server that is being started.
type server struct {
	tmux.Session
	child   *tmux.Server
	process session.Process

	configured bool // it reads a configuration of the user's
}

// kill ends the server and collects it.
func (s *server) kill() {
	_ = unix.PidfdSendSignal(s.child.PIDFD, unix.SIGKILL, nil, 0)
	proc.WaitExit(s.child.PIDFD, killTime)
	tmux.Reap(s.child.PID)
}

// killTime is how long a process may take to be gone after SIGKILL.
const killTime = 5 * time.Second

// startServer starts the session's tmux server, in the control group whose directory is open as cgroup. If that is negative, it waits to be placed and executed.
func (g *Ground) startServer(p supervisor.Plan, cgroup int) (*server, error) {
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
	if s.child, err = g.Tmux.StartServer(s.Session, cgroup, configs...); err != nil {
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

// enclose starts the scope around the process of the server, and has it execute tmux there.
func (g *Ground) enclose(ctx context.Context, p supervisor.Plan, s *server, scope units.Scope, tell func(session.Event)) error {
	scope.PIDs = []int{s.ServerPID}
	started, err := g.Units.Start(ctx, scope)
	if err != nil {
		return err
	}
	s.child.Execute()
	failpoint.Hit("start.scope-started")
	run := p.Spec.RunID
	tell(session.ScopeStarted{Run: run, InvocationID: started.InvocationID, ControlGroup: started.ControlGroup})
	tell(session.TmuxStarted{Run: run, Process: s.process})
	return nil
}

// show opens the session on the server, with command in its pane.
func (g *Ground) show(ctx context.Context, p supervisor.Plan, s *server, command []string) error {
	if err := listening(ctx, s); err != nil {
		return err
	}
	failpoint.Hit("show.tmux-listens")
	if s.configured {
		if invalid := g.Tmux.Reconfigure(ctx, s.Session); g.TmuxConfig != nil {
			g.TmuxConfig(p.TmuxConfig, invalid)
		}
	}
	return g.Tmux.Run(ctx, s.Session, p.Spec.Dir, command)
}

// tmuxConfigs returns the configurations that tmux is to read beside ours: the one that is named, or those of the user's that there are, where tmux itself
// looks for them.
func tmuxConfigs(p supervisor.Plan) ([]string, error) {
	switch p.TmuxConfig {
	case "":
		return nil, nil
	case config.TmuxConfigUser:
		home := os.Getenv("HOME")
		files := []string{filepath.Join(home, ".tmux.conf"), filepath.Join(home, ".config/tmux/tmux.conf")}
		if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) && filepath.Clean(dir) != filepath.Join(home, ".config") {
			files = slices.Insert(files, 1, filepath.Join(dir, "tmux/tmux.conf"))
		}
		return slices.DeleteFunc(files, func(file string) bool { return unix.Access(file, unix.R_OK) != nil }), nil
	}
	if err := unix.Access(p.TmuxConfig, unix.R_OK); err != nil {
		return nil, fmt.Errorf("cannot read tmux's configuration %q: %w", p.TmuxConfig, err)
	}
	return []string{p.TmuxConfig}, nil
}

func workspaceThere(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("workspace %q does not exist", dir)
	case err != nil:
		return fmt.Errorf("cannot use workspace %q: %w", dir, errors.Unwrap(err))
	case !info.IsDir():
		return fmt.Errorf("workspace %q is not a directory", dir)
	}
	return nil
}

// scope returns the session's scope, less its processes.
func (g *Ground) scope(p supervisor.Plan) (units.Scope, error) {
	s := units.Scope{Name: p.Unit}
	props := map[string]dbus.Variant{}
	set := func(name string, value any) { props[name] = dbus.MakeVariant(value) }
	replace := func(name string, value dbus.Variant) {
		maps.DeleteFunc(props, func(earlier string, _ dbus.Variant) bool { return unitproperty.SameLimit(earlier, name) })
		props[name] = value
	}
	set("Description", p.Description)
	set("Slice", slice)
	set("Delegate", true) // a new tmux can be put into it later (AttachProcessesToUnit)
	set("TimeoutStopUSec", uint64(p.StopTimeout/time.Microsecond))
	set("Before", []string{"corrald.service"})                          // at logout the daemon is stopped first, and saves
	set("Documentation", []string{"https://github.com/corrald/corral"}) // shown by systemctl status
	for _, line := range p.Scope {
		name, value, err := unitproperty.Parse(line)
		if err != nil {
			return s, fmt.Errorf("cannot use the agent's [Scope]: %w", err)
		}
		replace(name, value)
	}
	for _, prop := range p.Properties {
		value, err := unitproperty.Decode(prop.Signature, prop.Value)
		if err != nil {
			return s, err
		}
		replace(prop.Name, value)
	}
	if _, given := props["OOMPolicy"]; !given {
		// One compiler that runs out of memory must not take the agent along (systemd 253; Delegate does the same before).
		s.Optional = []units.Property{{Name: "OOMPolicy", Value: dbus.MakeVariant("continue")}}
	}
	for name, value := range props {
		s.Properties = append(s.Properties, units.Property{Name: name, Value: value})
	}
	return s, nil
}

// writeSpec writes the file that tells the shim what to run. It is private, in memory, and unlinked by the shim once it was read.
func (g *Ground) writeSpec(ctx context.Context, p supervisor.Plan) (string, error) {
	variables, err := g.variables(ctx, p)
	if err != nil {
		return "", err
	}
	spec := p.Spec
	spec.Env = environment.Entries(variables)
	_ = recordOrigins(p, variables) // where there is no room for it the agent starts all the same, and nobody is told what is not so
	if err := os.MkdirAll(p.RuntimeDir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(p.RuntimeDir, "run")
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

// listening waits until tmux takes connections. listen(2) is no event that could be waited for, so it is asked every millisecond, which is
// about what it takes.
func listening(ctx context.Context, s *server) error {
	ctx, cancel := deadline.Context(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := net.Dial("unix", s.Socket)
		switch {
		case err == nil:
			return conn.Close()
		case hasEnded(s.child.PIDFD):
			return errors.New("tmux exited at once")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("tmux does not listen: %w", err)
		}
	}
}

// hasEnded tells whether the process of a pidfd has ended. It does not wait.
func hasEnded(pidfd int) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

// ExpectStart prepares the kernel for the move of a process into a new control group. The first move for a while waits for an RCU grace period, about 10 ms, while
// those that follow soon after do not (percpu_down_write of cgroup_threadgroup_rwsem, rcu_sync_enter). To move this process to where it is already is such a move
// and changes nothing: systemd's own, which follows, then waits for less. Where it is not permitted, a start merely takes longer.
func (g *Ground) ExpectStart() {
	if !g.expecting.CompareAndSwap(false, true) {
		return // one move serves all starts that follow
	}
	go func() {
		defer g.expecting.Store(false)
		if group, err := proc.Cgroup(os.Getpid()); err == nil {
			_ = g.write(group, "cgroup.procs", strconv.Itoa(os.Getpid()))
		}
	}()
}

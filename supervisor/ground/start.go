package ground

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

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
func (g *Ground) Start(ctx context.Context, p supervisor.Plan, tell func(session.Event)) error {
	select {
	case g.starts <- struct{}{}:
		defer func() { <-g.starts }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := workspaceThere(p.Spec.Dir); err != nil {
		return err
	}
	server, err := tmux.NewSession(p.RuntimeDir, p.ID)
	if err != nil {
		return err
	}
	scope, err := g.scope(p)
	if err != nil {
		return err
	}
	specPath, err := g.writeSpec(ctx, p)
	if err != nil {
		return err
	}
	pid, pidfd, err := g.Tmux.StartServer(server)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(pidfd) }()
	server.Server = pid
	if err := g.open(ctx, p, server, scope, specPath, tell); err != nil {
		g.undo(p, pid, pidfd)
		return err
	}
	return nil
}

func (g *Ground) open(
	ctx context.Context, p supervisor.Plan, server tmux.Session, scope units.Scope, specPath string, tell func(session.Event),
) error {
	st, err := proc.Stat(server.Server)
	if err != nil {
		return fmt.Errorf("tmux ended at once: %w", err)
	}
	scope.PIDs = []int{server.Server}
	started, err := g.Units.Start(ctx, scope)
	if err != nil {
		return err
	}
	run := p.Spec.RunID
	tell(session.ScopeStarted{Run: run, InvocationID: started.InvocationID, ControlGroup: started.ControlGroup})
	tell(session.TmuxStarted{Run: run, Process: session.Process(st.Identity)})
	if err := listening(ctx, server.Socket); err != nil {
		return err
	}
	return g.Tmux.Run(ctx, server, p.Spec.Dir, p.TmuxConfig, []string{g.Shim, "run", specPath})
}

// undo ends what Start has begun: everything in the scope, and the server, which may not have got there.
func (g *Ground) undo(p supervisor.Plan, pid, pidfd int) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = g.Units.Kill(ctx, p.Unit, unix.SIGKILL)
	_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 5000)
	tmux.Reap(pid)
	g.Clear(ctx, p.Unit, p.RuntimeDir)
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
	s := units.Scope{
		Name: p.Unit,
		Optional: []units.Property{
			// One compiler that runs out of memory must not take the agent along (systemd 253; Delegate does the same before).
			{Name: "OOMPolicy", Value: dbus.MakeVariant("continue")},
		},
	}
	props := map[string]dbus.Variant{}
	set := func(name string, value any) { props[name] = dbus.MakeVariant(value) }
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
		props[name] = value
	}
	for _, prop := range p.Properties {
		value, err := unitproperty.Decode(prop.Signature, prop.Value)
		if err != nil {
			return s, err
		}
		props[prop.Name] = value
	}
	for name, value := range props {
		s.Properties = append(s.Properties, units.Property{Name: name, Value: value})
	}
	return s, nil
}

// writeSpec writes the file that tells the shim what to run. It is private, in memory, and unlinked by the shim once it was read.
func (g *Ground) writeSpec(ctx context.Context, p supervisor.Plan) (string, error) {
	manager, err := g.Units.Environment(ctx)
	if err != nil {
		return "", fmt.Errorf("cannot read the manager's environment: %w", err)
	}
	spec := p.Spec
	fixed := []string{
		"TERM=tmux-256color", "COLORTERM=truecolor", "PWD=" + spec.Dir, "CORRAL_SESSION=" + p.ID,
		"XDG_RUNTIME_DIR=" + filepath.Dir(g.RuntimeDir), "DBUS_SESSION_BUS_ADDRESS=" + g.Tmux.BusAddr,
	}
	spec.Env = supervisor.BuildEnvironment(manager, p.Unset, fixed, spec.Env)
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
func listening(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("tmux does not listen: %w", err)
		}
	}
}

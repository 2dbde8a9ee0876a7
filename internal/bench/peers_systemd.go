package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/proc"
)

// corralPeer is Corral: services are sessions.
type corralPeer struct {
	b   *bench
	ids []string
}

func openCorral(_ context.Context, b *bench, _ string) (peer, error) { return &corralPeer{b: b}, nil }

func (p *corralPeer) start(ctx context.Context, name string, command []string) error {
	p.ids = append(p.ids, name)
	return p.b.create(ctx, name, command)
}

func (p *corralPeer) expectEnd(_ context.Context, name string) (func() error, error) {
	return awaiting(p.b.listener.expect(changed(name, "State", "failed"))), nil
}

func (p *corralPeer) reported(ctx context.Context, name string) string {
	s, err := p.b.client.Session(ctx, name)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s, %s: %s", s.State, s.Result, s.Reason)
}

func (p *corralPeer) pid(ctx context.Context, name string) int {
	s, err := p.b.client.Session(ctx, name)
	if err != nil || s.State != "running" {
		return 0
	}
	return int(s.MainPID)
}

func (p *corralPeer) processes(context.Context) ([]int, error) {
	shims, err := inScopes("corral-shim")
	servers, err2 := inScopes("tmux: server")
	return append(append([]int{p.b.daemon.Process.Pid}, shims...), servers...), errors.Join(err, err2)
}

func (p *corralPeer) victims(ctx context.Context, name string) []victim {
	nothing := func() error { return nil }
	return []victim{
		{"corrald", func() error { return p.b.killDaemon(ctx) }, func() error { return p.b.startDaemon(ctx) }},
		{"tmux, followed by `corralctl resume`", func() error {
			s, err := p.b.client.Session(ctx, name)
			if err != nil {
				return err
			}
			return killIn(s.ControlGroup, "tmux: server")
		}, func() error { return p.b.client.ResumeSession(ctx, name) }},
		{"shim", func() error {
			s, err := p.b.client.Session(ctx, name)
			if err != nil {
				return err
			}
			return killIn(s.ControlGroup, "corral-shim")
		}, nothing},
	}
}

func (p *corralPeer) close() {
	_ = parallel(len(p.ids), func(i int) error { return p.b.client.RemoveSession(context.Background(), p.ids[i], true) })
}

// killIn kills the processes with this name in a control group.
func killIn(group, comm string) error {
	pids, err := proc.Processes(group)
	for _, pid := range pids {
		if status, e := proc.Stat(pid); e == nil && status.Comm == comm {
			err = errors.Join(err, unix.Kill(pid, unix.SIGKILL))
		}
	}
	return err
}

// awaiting returns a function that waits for the arrival of a signal.
func awaiting(arrival <-chan time.Duration) func() error {
	return func() error {
		select {
		case <-arrival:
			return nil
		case <-time.After(timeout):
			return fmt.Errorf("waited %v for the report of an exit", timeout)
		}
	}
}

// systemdPeer is systemd: services are transient services or, with tmux, scopes.
type systemdPeer struct {
	b     *bench
	scope bool
	names []string
}

func openSystemd(ctx context.Context, b *bench, _ string) (peer, error) {
	return &systemdPeer{b: b}, b.listener.watchService(ctx)
}

func openScopes(ctx context.Context, b *bench, _ string) (peer, error) {
	return &systemdPeer{b: b, scope: true}, b.listener.watchService(ctx)
}

func (p *systemdPeer) unit(name string) string {
	if p.scope {
		return "scope-" + name + ".scope"
	}
	return "service-" + name + ".service"
}

func (p *systemdPeer) start(ctx context.Context, name string, command []string) error {
	p.names = append(p.names, name)
	args := []string{"--user", "--quiet", "--unit=" + p.unit(name)}
	if p.scope {
		args = append(args, "--scope", "tmux", "-L", name, "-f", "/dev/null", "new-session", "-d")
	}
	return run(ctx, "systemd-run", append(args, command...)...)
}

func (p *systemdPeer) expectEnd(ctx context.Context, name string) (func() error, error) {
	escaped := strings.NewReplacer("-", "_2d", ".", "_2e").Replace(p.unit(name))
	path := bus.SystemdPath + "/unit/" + dbus.ObjectPath(escaped)
	err := p.b.listener.conn.AddMatchSignalContext(ctx,
		dbus.WithMatchMember("PropertiesChanged"), dbus.WithMatchObjectPath(path))
	arrival := p.b.listener.expect(func(signal *dbus.Signal) bool {
		if signal.Path != path || signal.Name != changedSignal || len(signal.Body) < 2 {
			return false
		}
		properties, _ := signal.Body[1].(map[string]dbus.Variant)
		state := properties["ActiveState"].Value()
		return state == "failed" || state == "inactive"
	})
	return awaiting(arrival), err
}

func (p *systemdPeer) reported(ctx context.Context, name string) string {
	properties := "--property=ActiveState,Result,ExecMainCode,ExecMainStatus"
	return outputOf(ctx, "systemctl", "--user", "show", p.unit(name), properties)
}

func (p *systemdPeer) pid(ctx context.Context, name string) int {
	text := outputOf(ctx, "systemctl", "--user", "show", p.unit(name), "--property=MainPID", "--value")
	if p.scope {
		text = outputOf(ctx, "tmux", "-L", name, "display-message", "-p", "#{pane_pid}")
	}
	pid, _ := strconv.Atoi(text)
	return pid
}

func (p *systemdPeer) processes(context.Context) ([]int, error) {
	pids, err := processesNamed("systemd")
	if p.scope {
		servers, err2 := processesNamed("tmux: server")
		sessions, err3 := inScopes("tmux: server") // of Corral
		of := map[int]bool{}
		for _, pid := range sessions {
			of[pid] = true
		}
		for _, pid := range servers {
			if !of[pid] {
				pids = append(pids, pid)
			}
		}
		err = errors.Join(err, err2, err3)
	}
	return pids, err
}

func (p *systemdPeer) victims(ctx context.Context, name string) []victim {
	if !p.scope {
		return nil
	}
	return []victim{{"tmux", func() error {
		pid, err := strconv.Atoi(outputOf(ctx, "tmux", "-L", name, "display-message", "-p", "#{pid}"))
		if err != nil {
			return err
		}
		return unix.Kill(pid, unix.SIGKILL)
	}, func() error { return nil }}}
}

func (p *systemdPeer) close() {
	for _, name := range p.names {
		_ = run(context.Background(), "systemctl", "--user", "stop", p.unit(name))
	}
}

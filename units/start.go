package units

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/internal/proc"
)

// jobTimeout bounds the wait for a start job: on a loaded machine the kernel may need a while to
// move processes between control groups.
const jobTimeout = 25 * time.Second

// Scope describes a scope to start.
type Scope struct {
	Name       string
	PIDs       []int      // its first processes
	Properties []Property // all properties except PIDs and Controller
	Optional   []Property // omitted if this version of systemd does not know them
}

// Started identifies a scope that was started.
type Started struct {
	InvocationID string // hexadecimal, as systemctl shows it
	ControlGroup string // below the root of the cgroup hierarchy
}

// Property is a unit property, as StartTransientUnit and SetProperties take it.
type Property = systemd.Property

// Start starts a scope and returns once its processes are in it. From then on Events reports its
// end.
func (m *Manager) Start(ctx context.Context, s Scope) (Started, error) {
	ctx, cancel := deadline.Context(ctx, jobTimeout)
	defer cancel()
	var w *watch
	err := m.runOnLoop(ctx, func(ws *watches) {
		w = m.addWatch(ws, s.Name)
		w.startResult = make(chan string, 1)
		m.match("AddMatch", w.startJobRule())
	})
	if err != nil {
		return Started{}, fmt.Errorf("cannot start %q: %w", s.Name, err)
	}
	started, err := m.start(ctx, s, w)
	if err != nil {
		_ = m.Unwatch(ctx, s.Name)
		return Started{}, fmt.Errorf("cannot start %q: %w", s.Name, err)
	}
	return started, nil
}

func (m *Manager) start(ctx context.Context, s Scope, w *watch) (Started, error) {
	defer m.match("RemoveMatch", w.startJobRule())
	job, err := m.startTransient(ctx, s)
	if err != nil {
		return Started{}, err
	}
	failpoint.Hit("start.scope-asked")
	select {
	case result := <-w.startResult:
		if result != "done" {
			return Started{}, fmt.Errorf("its start job ended with %q", result)
		}
	case <-m.closed:
		return Started{}, ErrClosed
	case <-ctx.Done():
		m.cancelStart(ctx, job, w)
		return Started{}, fmt.Errorf("its start job was not done in time: %w", ctx.Err())
	}
	// systemd reports "done" even for a process that has already exited, so the kernel is asked.
	var group string
	for _, pid := range s.PIDs {
		var err error
		if group, err = proc.Cgroup(pid); err != nil {
			return Started{}, fmt.Errorf("process %d is gone: %w", pid, err)
		}
		if !strings.HasSuffix(group, "/"+s.Name) {
			return Started{}, fmt.Errorf("process %d is in control group %q", pid, group)
		}
	}
	if err := m.runOnLoop(ctx, func(*watches) { w.cgroup = group }); err != nil {
		return Started{}, err
	}
	id, err := m.invocationID(ctx, s.Name)
	if err == nil {
		err = m.runOnLoop(ctx, func(*watches) { w.invocationID = id })
	}
	return Started{InvocationID: id, ControlGroup: group}, err
}

// cancelStart cancels a start job after its timeout. A job that waits for other units, which a
// drop-in can make it do, would block the scope's name and finally start a scope whose processes
// have exited. cancelStart waits for the end of the job, which would otherwise be taken for the end
// of the next one.
func (m *Manager) cancelStart(ctx context.Context, job int, w *watch) {
	ctx, cancel := deadline.Context(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	_ = m.callMethod(ctx, bus.SystemdPath, bus.SystemdManager+".CancelJob", uint32(job)) // it may have finished already
	select {
	case <-w.startResult:
	case <-m.closed:
	case <-ctx.Done():
	}
}

// startTransient queues the start job and returns its id, or 0 if the job has already finished.
// It omits optional properties that systemd rejects, now and in later starts. If an earlier scope
// of this name has failed, it resets that first.
func (m *Manager) startTransient(ctx context.Context, s Scope) (job int, err error) {
	cleared := false
	for {
		var unsupported map[string]bool
		if err := m.runOnLoop(ctx, func(ws *watches) { unsupported = maps.Clone(ws.unsupported) }); err != nil {
			return 0, err
		}
		job, err := m.requestStart(ctx, s.Name, m.startProperties(s, unsupported))
		switch {
		case err == nil || !errors.As(err, new(dbus.Error)):
			return job, err
		case isAway(err):
			if started, err := m.isStarted(ctx, s); started || err != nil {
				return 0, err
			}
			continue
		case bus.HasErrorName(err, bus.SystemdName+".UnitExists") && !cleared:
			cleared = true
			if err := m.ResetFailed(ctx, s.Name); err != nil {
				return 0, err
			}
			continue
		}
		rejected := slices.IndexFunc(s.Optional, func(p Property) bool {
			return !unsupported[p.Name] && namesProperty(err, p)
		})
		if rejected < 0 {
			return 0, m.findRejectedInStart(ctx, err, s.Properties)
		}
		if err := m.runOnLoop(ctx, func(ws *watches) { ws.unsupported[s.Optional[rejected].Name] = true }); err != nil {
			return 0, err
		}
	}
}

func (m *Manager) requestStart(ctx context.Context, name string, props []Property) (job int, err error) {
	err = m.call(ctx, func(ctx context.Context, c *client) error {
		job, err = c.StartTransientUnitContext(ctx, name, "fail", props, nil)
		return err
	})
	return job, err
}

// isStarted reports whether systemd has started the scope although it was reexecuted before it
// could reply.
func (m *Manager) isStarted(ctx context.Context, s Scope) (bool, error) {
	if _, err := m.List(ctx, s.Name); err != nil { // returns once systemd has finished the reexecution
		return false, err
	}
	for _, pid := range s.PIDs {
		if group, err := proc.Cgroup(pid); err != nil || !strings.HasSuffix(group, "/"+s.Name) {
			return false, nil //nolint:nilerr // a process that has exited is in no scope
		}
	}
	return true, m.runOnLoop(ctx, func(ws *watches) {
		if w := ws.units[s.Name]; w != nil {
			w.running = true
			select {
			case w.startResult <- "done":
			default:
			}
		}
	})
}

func (m *Manager) startProperties(s Scope, unsupported map[string]bool) []Property {
	pids := make([]uint32, len(s.PIDs))
	for i, pid := range s.PIDs {
		pids[i] = uint32(pid)
	}
	props := []Property{
		systemd.PropPids(pids...),
		// With a controller, systemd asks Corral to stop the scope instead of killing it, for as long as
		// this connection lives.
		{Name: propertyController, Value: dbus.MakeVariant(m.conn.Names()[0])},
	}
	props = append(props, s.Properties...)
	for _, p := range s.Optional {
		if !unsupported[p.Name] {
			props = append(props, p)
		}
	}
	return props
}

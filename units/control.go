package units

import (
	"context"
	"fmt"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/deadline"
)

// Kill sends a signal to every process of the scope. It is not an error if the scope does not
// exist.
func (m *Manager) Kill(ctx context.Context, name string, signal unix.Signal) error {
	return m.change(ctx, "signal", name, func(ctx context.Context, c *client) error {
		return c.KillUnitWithTarget(ctx, name, systemd.All, int32(signal))
	}, bus.SystemdNoSuchUnit, bus.SystemdName+".NoSuchProcess")
}

// ResetFailed makes systemd discard the state that it keeps of a failed scope. It is not an error
// if the unit does not exist.
func (m *Manager) ResetFailed(ctx context.Context, name string) error {
	return m.change(ctx, "reset", name, func(ctx context.Context, c *client) error {
		return c.ResetFailedUnitContext(ctx, name)
	}, bus.SystemdNoSuchUnit)
}

// EnableUnit enables a unit file of the user if it is disabled, and returns whether it was. It does
// not change a unit that is enabled, linked or masked, and does nothing if the manager has no such
// unit file.
func (m *Manager) EnableUnit(ctx context.Context, name string) (enabled bool, err error) {
	err = m.change(ctx, "enable", name, func(ctx context.Context, c *client) error {
		var state string
		err := bus.Systemd(c.conn).
			CallWithContext(ctx, bus.SystemdManager+".GetUnitFileState", 0, name).Store(&state)
		if err != nil || state != "disabled" {
			return nil //nolint:nilerr // the unit file does not exist
		}
		_, _, err = c.EnableUnitFilesContext(ctx, []string{name}, false, false)
		enabled = err == nil
		return err
	})
	return enabled, err
}

// Release makes systemd end a scope that is empty but that systemd still considers active. This
// happens if the user had no inotify watches left when the scope started, so that systemd could not
// watch its cgroup.events. Release returns once the name can be used again. It is not an error if
// the scope does not exist.
func (m *Manager) Release(ctx context.Context, name string) error {
	ctx, cancel := deadline.Context(ctx, jobTimeout)
	defer cancel()
	// With a controller, systemd would ask Corral to stop the scope, and wait.
	err := m.callMethod(ctx, unitPath(name), scopeIface+".Abandon")
	if err == nil || !isGone(err) { // Abandon fails if the scope is already being stopped
		err = m.call(ctx, func(ctx context.Context, c *client) error {
			_, err := c.StopUnitContext(ctx, name, "replace", nil)
			return err
		})
	}
	if err == nil {
		err = m.awaitInactive(ctx, name)
	}
	if err == nil {
		err = m.ResetFailed(ctx, name)
	}
	if err != nil && !isGone(err) {
		return fmt.Errorf("cannot release %q: %w", name, err)
	}
	return nil
}

// awaitInactive waits until the unit is neither active nor being stopped. It checks the state after
// each finished job.
func (m *Manager) awaitInactive(ctx context.Context, name string) error {
	finished, stop, err := m.watchJobs(ctx)
	if err != nil {
		return err
	}
	defer stop()
	for {
		if active, err := m.IsActive(ctx, name); err != nil || !active {
			return err
		}
		select {
		case <-finished:
		case <-m.closed:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Freeze suspends every process of the scope. It returns once the kernel reports that none of them
// runs, or with an error after callTimeout.
func (m *Manager) Freeze(ctx context.Context, name string) error {
	return m.change(ctx, "freeze", name, func(ctx context.Context, c *client) error {
		return c.FreezeUnit(ctx, name)
	})
}

// Thaw resumes the processes of a frozen scope. It is not an error if the scope does not exist or
// is not frozen.
func (m *Manager) Thaw(ctx context.Context, name string) error {
	return m.change(ctx, "thaw", name, func(ctx context.Context, c *client) error {
		return c.ThawUnit(ctx, name)
	}, bus.SystemdNoSuchUnit)
}

// change makes a call that changes a unit. D-Bus errors with one of the ignored names are no
// errors.
func (m *Manager) change(
	ctx context.Context, verb, name string, f func(context.Context, *client) error, ignored ...string,
) error {
	if err := m.call(ctx, f); err != nil && !bus.HasErrorName(err, ignored...) {
		return fmt.Errorf("cannot %s %q: %w", verb, name, err)
	}
	return nil
}

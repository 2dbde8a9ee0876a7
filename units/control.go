package units

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/deadline"
)

// Kill sends a signal to every process of the scope. It is not an error if the scope does not
// exist.
func (m *Manager) Kill(ctx context.Context, name string, signal unix.Signal) error {
	err := m.call(ctx, systemdPath, managerIface+".KillUnit", name, "all", int32(signal)).Err
	if err != nil && !isNoSuchUnit(err) && !isNoProcesses(err) {
		return fmt.Errorf("cannot signal %q: %w", name, err)
	}
	return nil
}

// ResetFailed makes systemd discard the state that it keeps of a failed scope. It is not an error
// if the unit does not exist.
func (m *Manager) ResetFailed(ctx context.Context, name string) error {
	err := m.call(ctx, systemdPath, managerIface+".ResetFailedUnit", name).Err
	if err != nil && !isNoSuchUnit(err) {
		return fmt.Errorf("cannot reset %q: %w", name, err)
	}
	return nil
}

// EnableUnit enables a unit file of the user if it is disabled, and returns whether it was. It does
// not change a unit that is enabled, linked or masked, and does nothing if the manager has no such
// unit file.
func (m *Manager) EnableUnit(ctx context.Context, name string) (enabled bool, err error) {
	var state string
	err = m.call(ctx, systemdPath, managerIface+".GetUnitFileState", name).Store(&state)
	if err != nil || state != "disabled" {
		return false, nil //nolint:nilerr // the unit file does not exist
	}
	if err := m.call(ctx, systemdPath, managerIface+".EnableUnitFiles", []string{name}, false, false).Err; err != nil {
		return false, fmt.Errorf("cannot enable %q: %w", name, err)
	}
	return true, nil
}

// Release makes systemd end a scope that is empty but that systemd still considers active. This
// happens if the user had no inotify watches left when the scope started, so that systemd could not
// watch its cgroup.events. Release returns once the name can be used again. It is not an error if
// the scope does not exist.
func (m *Manager) Release(ctx context.Context, name string) error {
	ctx, cancel := deadline.Context(ctx, jobTimeout)
	defer cancel()
	// With a controller, systemd would ask Corral to stop the scope, and wait.
	err := m.call(ctx, unitPath(name), scopeIface+".Abandon").Err
	if err == nil || !isGone(err) { // Abandon fails if the scope is already being stopped
		err = m.call(ctx, systemdPath, managerIface+".StopUnit", name, "replace").Err
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
	if err := m.call(ctx, systemdPath, managerIface+".FreezeUnit", name).Err; err != nil {
		return fmt.Errorf("cannot freeze %q: %w", name, err)
	}
	return nil
}

// Thaw resumes the processes of a frozen scope. It is not an error if the scope does not exist or
// is not frozen.
func (m *Manager) Thaw(ctx context.Context, name string) error {
	if err := m.call(ctx, systemdPath, managerIface+".ThawUnit", name).Err; err != nil && !isNoSuchUnit(err) {
		return fmt.Errorf("cannot thaw %q: %w", name, err)
	}
	return nil
}

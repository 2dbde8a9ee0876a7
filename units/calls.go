package units

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/deadline"
)

// Kill sends a signal to every process of the scope. A scope that is not there has none, which is
// no error.
func (m *Manager) Kill(ctx context.Context, name string, signal unix.Signal) error {
	err := m.call(ctx, systemdPath, managerIface+".KillUnit", name, "all", int32(signal)).Err
	if err != nil && !isNoSuchUnit(err) && !isNoProcesses(err) {
		return fmt.Errorf("cannot signal %q: %w", name, err)
	}
	return nil
}

// ResetFailed clears away what systemd keeps of a scope that failed. A unit that is not there is no
// error.
func (m *Manager) ResetFailed(ctx context.Context, name string) error {
	err := m.call(ctx, systemdPath, managerIface+".ResetFailedUnit", name).Err
	if err != nil && !isNoSuchUnit(err) {
		return fmt.Errorf("cannot reset %q: %w", name, err)
	}
	return nil
}

// EnableUnit enables a unit of the user's, if it is disabled, and returns whether it was. One that
// is enabled, linked or masked stays as it is, and so does a manager that has no such unit file.
func (m *Manager) EnableUnit(ctx context.Context, name string) (enabled bool, err error) {
	var state string
	if err := m.call(ctx, systemdPath, managerIface+".GetUnitFileState", name).Store(&state); err != nil || state != "disabled" {
		return false, nil //nolint:nilerr // there is no such unit file
	}
	if err := m.call(ctx, systemdPath, managerIface+".EnableUnitFiles", []string{name}, false, false).Err; err != nil {
		return false, fmt.Errorf("cannot enable %q: %w", name, err)
	}
	return true, nil
}

// Release has systemd end a scope that has no processes and that systemd has not noticed to be
// empty: it has no inotify watch for the scope's cgroup.events where the user had none left when
// the scope started. Release returns once the name can be used again. A scope that is not there is
// no error.
func (m *Manager) Release(ctx context.Context, name string) error {
	ctx, cancel := deadline.Context(ctx, jobTimeout)
	defer cancel()
	err := m.call(ctx, unitPath(name), scopeIface+".Abandon").Err // else systemd asks us to stop the scope, and waits
	if err == nil || !isGone(err) {                               // it refuses where the scope is being stopped already
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

// awaitInactive waits until the unit is neither active nor being stopped: it looks whenever a job
// has ended.
func (m *Manager) awaitInactive(ctx context.Context, name string) error {
	ended, forget, err := m.followJobs(ctx)
	if err != nil {
		return err
	}
	defer forget()
	for {
		if active, err := m.IsActive(ctx, name); err != nil || !active {
			return err
		}
		select {
		case <-ended:
		case <-m.closed:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// StopCause returns why the scope ends, as long as the unit is there. A Result of timeout that is
// not RuntimeMaxSec= but a stop that has not come to its end in time says nothing of why it was to
// end.
func (m *Manager) StopCause(ctx context.Context, name string) (Cause, error) {
	v, err := m.get(ctx, name, scopeIface, "Result")
	if err != nil {
		return Cause{}, err
	}
	result, _ := v.Value().(string)
	if result == timeout {
		if v, err = m.get(ctx, name, scopeIface, "RuntimeMaxUSec"); err != nil {
			return Cause{}, err
		}
		runtimeMax, _ := v.Value().(uint64)
		if over, err := m.timedOut(ctx, name, runtimeMax); err != nil || over != 0 {
			return Cause{result, over}, err
		}
		result = "success"
	}
	v, err = m.get(ctx, name, unitIface, "ActiveExitTimestampMonotonic")
	return Cause{result, told(v)}, err
}

// IsActive tells whether a unit of this name has processes, as far as systemd knows.
func (m *Manager) IsActive(ctx context.Context, name string) (bool, error) {
	v, err := m.get(ctx, name, unitIface, "ActiveState")
	if isGone(err) {
		return false, nil
	}
	state, _ := v.Value().(string)
	return state != "inactive" && state != "failed", err
}

// State returns what systemctl --user is-system-running prints: running, stopping and so on.
func (m *Manager) State(ctx context.Context) (string, error) {
	var v dbus.Variant
	err := m.read(ctx, systemdPath, propertiesIface+".Get", managerIface, "SystemState").Store(&v)
	state, _ := v.Value().(string)
	return state, err
}

// Freeze holds every process of the scope. It returns once the kernel says that none of them runs,
// or with an error after callTimeout.
func (m *Manager) Freeze(ctx context.Context, name string) error {
	if err := m.call(ctx, systemdPath, managerIface+".FreezeUnit", name).Err; err != nil {
		return fmt.Errorf("cannot freeze %q: %w", name, err)
	}
	return nil
}

// Thaw lets the processes of a frozen scope go on. One that is not there, or not frozen, is no
// error.
func (m *Manager) Thaw(ctx context.Context, name string) error {
	if err := m.call(ctx, systemdPath, managerIface+".ThawUnit", name).Err; err != nil && !isNoSuchUnit(err) {
		return fmt.Errorf("cannot thaw %q: %w", name, err)
	}
	return nil
}

func (m *Manager) get(ctx context.Context, name, iface, property string) (dbus.Variant, error) {
	var v dbus.Variant
	err := m.read(ctx, unitPath(name), propertiesIface+".Get", iface, property).Store(&v)
	if err != nil {
		return v, fmt.Errorf("cannot read %s of %q: %w", property, name, err)
	}
	return v, nil
}

// read makes a call that changes nothing. A systemd that is executed again is away for a moment,
// and takes the calls that it has not answered along, as a bus does that ends: then it is asked
// again.
func (m *Manager) read(ctx context.Context, path dbus.ObjectPath, method string, args ...any) *dbus.Call {
	ctx, cancel := deadline.Context(ctx, callTimeout)
	defer cancel()
	tick := time.NewTicker(awayTick)
	defer tick.Stop()
	for {
		onBus := m.conn.Connected()
		c := m.call(ctx, path, method, args...)
		if onBus && isLost(c.Err) {
			_ = m.conn.Close() // the answer is gone with the bus
			continue
		}
		if !isAway(c.Err) {
			return c
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return c
		}
	}
}

// awayTick is how often a systemd that is away is asked again: it is for about a tenth of a second.
const awayTick = 20 * time.Millisecond

// isAway tells whether systemd has left the bus, as it does when it is executed again.
func isAway(err error) bool {
	return slices.ContainsFunc([]string{"NoReply", "ServiceUnknown", "NameHasNoOwner"}, func(name string) bool {
		return hasName(err, "org.freedesktop.DBus.Error."+name)
	})
}

// isLost tells whether a call failed because its connection did.
func isLost(err error) bool {
	var answer dbus.Error
	return err != nil && !errors.As(err, &answer) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

func isNoSuchUnit(err error) bool { return hasName(err, "org.freedesktop.systemd1.NoSuchUnit") }

func isNoProcesses(err error) bool { return hasName(err, "org.freedesktop.systemd1.NoSuchProcess") }

func isGone(err error) bool {
	return isNoSuchUnit(err) || hasName(err, "org.freedesktop.DBus.Error.UnknownObject")
}

func hasName(err error, name string) bool {
	var e dbus.Error
	return errors.As(err, &e) && e.Name == name
}

// unitPath returns the object path of a unit: its name with every byte but letters and digits (and
// a leading digit) as _xx.
func unitPath(name string) dbus.ObjectPath {
	var b strings.Builder
	b.WriteString(string(systemdPath) + "/unit/")
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' && i > 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return dbus.ObjectPath(b.String())
}

// Environment returns the environment that the manager gives to the services it starts, as it is
// now.
func (m *Manager) Environment(ctx context.Context) ([]string, error) {
	var v dbus.Variant
	err := m.read(ctx, systemdPath, propertiesIface+".Get", managerIface, "Environment").Store(&v)
	env, _ := v.Value().([]string)
	return env, err
}

// StartTime tells when the user's manager was started, by CLOCK_MONOTONIC. It stays the same when
// systemd is executed again.
func (m *Manager) StartTime(ctx context.Context) (time.Duration, error) {
	usec, err := readStart[uint64](ctx, m, "UserspaceTimestampMonotonic")
	return time.Duration(usec) * time.Microsecond, err
}

// Incarnation tells this life of the user's manager from every other: it stays the same when
// systemd is executed again, and is another after a new login, also if XDG_RUNTIME_DIR stayed.
func (m *Manager) Incarnation(ctx context.Context) (string, error) {
	v, err := readStart[any](ctx, m, "UserspaceTimestamp")
	if err != nil {
		return "", err
	}
	return fmt.Sprint(v), nil
}

func readStart[T any](ctx context.Context, m *Manager, property string) (T, error) {
	var v dbus.Variant
	err := m.read(ctx, systemdPath, propertiesIface+".Get", managerIface, property).Store(&v)
	if err != nil {
		err = fmt.Errorf("cannot ask systemd when it started: %w", err)
	}
	started, _ := v.Value().(T)
	return started, err
}

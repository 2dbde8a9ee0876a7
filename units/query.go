package units

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/deadline"
)

// StopCause returns the reason for the end of the scope while systemd knows the unit. The Result
// timeout without an expired RuntimeMaxSec= means that a requested stop took too long; StopCause
// then returns success, as for every requested stop.
func (m *Manager) StopCause(ctx context.Context, name string) (Cause, error) {
	v, err := m.get(ctx, name, scopeIface, "Result")
	if err != nil {
		return Cause{}, err
	}
	result, _ := v.Value().(string)
	if result == resultTimeout {
		if v, err = m.get(ctx, name, scopeIface, "RuntimeMaxUSec"); err != nil {
			return Cause{}, err
		}
		runtimeMax, _ := v.Value().(uint64)
		if over, err := m.runtimeMaxExpiry(ctx, name, runtimeMax); err != nil || over != 0 {
			return Cause{result, over}, err
		}
		result = "success"
	}
	v, err = m.get(ctx, name, unitIface, "ActiveExitTimestampMonotonic")
	return Cause{result, earliestSignal(v)}, err
}

// IsActive reports whether systemd considers the unit neither inactive nor failed, so that it may
// have processes.
func (m *Manager) IsActive(ctx context.Context, name string) (bool, error) {
	v, err := m.get(ctx, name, unitIface, "ActiveState")
	if isGone(err) {
		return false, nil
	}
	state, _ := v.Value().(string)
	return state != "inactive" && state != "failed", err
}

// State returns the state of the manager as systemctl --user is-system-running prints it, such as
// running or stopping.
func (m *Manager) State(ctx context.Context) (string, error) {
	var v dbus.Variant
	err := m.read(ctx, systemdPath, propertiesIface+".Get", managerIface, "SystemState").Store(&v)
	state, _ := v.Value().(string)
	return state, err
}

func (m *Manager) get(ctx context.Context, name, iface, property string) (dbus.Variant, error) {
	var v dbus.Variant
	err := m.read(ctx, unitPath(name), propertiesIface+".Get", iface, property).Store(&v)
	if err != nil {
		return v, fmt.Errorf("cannot read %s of %q: %w", property, name, err)
	}
	return v, nil
}

// read makes a call that changes nothing, and repeats it if systemd was unavailable. A systemd that
// is being reexecuted leaves the bus for a moment and drops unanswered calls, as does a bus that is
// being stopped.
func (m *Manager) read(ctx context.Context, path dbus.ObjectPath, method string, args ...any) *dbus.Call {
	ctx, cancel := deadline.Context(ctx, callTimeout)
	defer cancel()
	tick := time.NewTicker(retryInterval)
	defer tick.Stop()
	for {
		onBus := m.conn.Connected()
		c := m.call(ctx, path, method, args...)
		if onBus && isLost(c.Err) {
			_ = m.conn.Close() // the reply is lost with the bus; retry on the private socket
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

// retryInterval is the interval at which a systemd that is being reexecuted is called again.
// Reexecution takes about a tenth of a second.
const retryInterval = 20 * time.Millisecond

// isAway reports whether systemd has left the bus, as it does during reexecution.
func isAway(err error) bool {
	return slices.ContainsFunc([]string{"NoReply", "ServiceUnknown", "NameHasNoOwner"}, func(name string) bool {
		return hasName(err, "org.freedesktop.DBus.Error."+name)
	})
}

// isLost reports whether a call failed because its connection was closed.
func isLost(err error) bool {
	var reply dbus.Error
	return err != nil && !errors.As(err, &reply) &&
		!errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
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

// unitPath returns the object path of a unit: its name, with each byte other than a letter or a
// digit, and a leading digit, written as _xx in hexadecimal.
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

// Environment returns the environment that the manager currently passes to the services it starts.
func (m *Manager) Environment(ctx context.Context) ([]string, error) {
	var v dbus.Variant
	err := m.read(ctx, systemdPath, propertiesIface+".Get", managerIface, "Environment").Store(&v)
	env, _ := v.Value().([]string)
	return env, err
}

// StartTime returns when the user's manager was started, by CLOCK_MONOTONIC. Reexecution does not
// change it.
func (m *Manager) StartTime(ctx context.Context) (time.Duration, error) {
	usec, err := readStartTime[uint64](ctx, m, "UserspaceTimestampMonotonic")
	return time.Duration(usec) * time.Microsecond, err
}

// Incarnation returns an identifier of the running user manager. It stays the same when systemd is
// reexecuted, and changes when a new manager is started at the next login, even if XDG_RUNTIME_DIR
// was kept.
func (m *Manager) Incarnation(ctx context.Context) (string, error) {
	v, err := readStartTime[any](ctx, m, "UserspaceTimestamp")
	if err != nil {
		return "", err
	}
	return fmt.Sprint(v), nil
}

func readStartTime[T any](ctx context.Context, m *Manager, property string) (T, error) {
	var v dbus.Variant
	err := m.read(ctx, systemdPath, propertiesIface+".Get", managerIface, property).Store(&v)
	if err != nil {
		err = fmt.Errorf("cannot read the start time of systemd: %w", err)
	}
	started, _ := v.Value().(T)
	return started, err
}

package units

import (
	"context"
	"errors"
	"fmt"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/deadline"
)

// StopCause returns the reason for the end of the scope while systemd knows the unit. The Result
// timeout without an expired RuntimeMaxSec= means that a requested stop took too long; StopCause
// then returns success, as for every requested stop.
func (m *Manager) StopCause(ctx context.Context, name string) (Cause, error) {
	props, err := m.properties(ctx, name, "Scope")
	if err != nil {
		return Cause{}, err
	}
	result, _ := props[propertyResult].(string)
	if result == resultTimeout {
		if over, err := m.runtimeMaxExpiry(ctx, name, props); err != nil || over != 0 {
			return Cause{result, over}, err
		}
		result = resultSuccess
	}
	v, err := m.get(ctx, name, "Unit", propertyActiveExited)
	return Cause{result, earliestSignal(v)}, err
}

// IsActive reports whether systemd considers the unit neither inactive nor failed, so that it may
// have processes.
func (m *Manager) IsActive(ctx context.Context, name string) (bool, error) {
	v, err := m.get(ctx, name, "Unit", propertyActiveState)
	if isGone(err) {
		return false, nil
	}
	state, _ := v.(string)
	return state != "inactive" && state != "failed", err
}

// State returns the state of the manager as systemctl --user is-system-running prints it, such as
// running or stopping.
func (m *Manager) State(ctx context.Context) (string, error) {
	return managerProperty[string](ctx, m, "SystemState")
}

// get returns a property that units of the type have. All units have those of the type Unit.
func (m *Manager) get(ctx context.Context, name, unitType, property string) (any, error) {
	p, err := read(ctx, m, func(ctx context.Context, c *client) (*Property, error) {
		return c.GetUnitTypePropertyContext(ctx, name, unitType, property)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read %s of %q: %w", property, name, err)
	}
	return p.Value.Value(), nil
}

// properties returns all properties of the type of a unit, which is identified by its name or
// InvocationID. Those of the type Unit make systemd look for unit files on the disk.
func (m *Manager) properties(ctx context.Context, unit, unitType string) (map[string]any, error) {
	props, err := read(ctx, m, func(ctx context.Context, c *client) (map[string]any, error) {
		return c.GetUnitTypePropertiesContext(ctx, unit, unitType)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the properties of %q: %w", unit, err)
	}
	return props, nil
}

// managerProperty returns a property of the manager. go-systemd's method for this has no context,
// and returns text.
func managerProperty[T any](ctx context.Context, m *Manager, property string) (T, error) {
	value, err := read(ctx, m, func(ctx context.Context, c *client) (T, error) {
		return bus.SystemdProperty[T](ctx, c.conn, property)
	})
	if err != nil {
		err = fmt.Errorf("cannot read %s of systemd: %w", property, err)
	}
	return value, err
}

// read makes a call that changes nothing, and repeats it if systemd was unavailable. A systemd that
// is being reexecuted leaves the bus for a moment and drops unanswered calls, as does a bus that is
// being stopped.
func read[T any](
	ctx context.Context, m *Manager, f func(context.Context, *client) (T, error),
) (reply T, err error) {
	ctx, cancel := deadline.Context(ctx, callTimeout)
	defer cancel()
	tick := time.NewTicker(retryInterval)
	defer tick.Stop()
	for {
		onBus := m.conn.Connected()
		err = m.call(ctx, func(ctx context.Context, c *client) error {
			reply, err = f(ctx, c)
			return err
		})
		if onBus && err != nil && (errors.Is(err, ErrClosed) || !m.conn.Connected()) {
			_ = m.conn.Close() // the reply is lost with the bus; retry on the private socket
			continue
		}
		if !isAway(err) {
			return reply, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return reply, err
		}
	}
}

// retryInterval is the interval at which a systemd that is being reexecuted is called again.
// Reexecution takes about a tenth of a second.
const retryInterval = 20 * time.Millisecond

// isAway reports whether systemd has left the bus, as it does during reexecution.
func isAway(err error) bool {
	return bus.HasErrorName(err,
		bus.ErrorPrefix+"NoReply", bus.ErrorPrefix+"ServiceUnknown", bus.ErrorPrefix+"NameHasNoOwner")
}

func isGone(err error) bool {
	return bus.HasErrorName(err, bus.SystemdNoSuchUnit, bus.ErrorPrefix+"UnknownObject")
}

func unitPath(name string) dbus.ObjectPath {
	return bus.SystemdPath + "/unit/" + dbus.ObjectPath(systemd.PathBusEscape(name))
}

// Environment returns the environment that the manager currently passes to the services it starts.
func (m *Manager) Environment(ctx context.Context) ([]string, error) {
	return managerProperty[[]string](ctx, m, "Environment")
}

// StartTime returns when the user's manager was started, by CLOCK_MONOTONIC. Reexecution does not
// change it.
func (m *Manager) StartTime(ctx context.Context) (time.Duration, error) {
	usec, err := managerProperty[uint64](ctx, m, "UserspaceTimestampMonotonic")
	return time.Duration(usec) * time.Microsecond, err
}

// Incarnation returns an identifier of the running user manager. It stays the same when systemd is
// reexecuted, and changes when a new manager is started at the next login, even if XDG_RUNTIME_DIR
// was kept.
func (m *Manager) Incarnation(ctx context.Context) (string, error) {
	usec, err := managerProperty[uint64](ctx, m, "UserspaceTimestamp")
	return fmt.Sprint(usec), err
}

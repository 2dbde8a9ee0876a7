// Package logind calls systemd's login manager. It delays shutdown and sleep with delay locks
// (systemd-inhibit(1), and "Inhibitor Locks" in org.freedesktop.login1(5)), and lets sessions keep
// running after the last logout by lingering (enable-linger in loginctl(1)).
package logind

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/bus"
)

const (
	name    = "org.freedesktop.login1"
	path    = dbus.ObjectPath("/org/freedesktop/login1")
	manager = "org.freedesktop.login1.Manager"
)

// Manager is the login manager, called over its own connection to the system bus.
type Manager struct {
	conn     *dbus.Conn
	shutdown chan bool
	sleep    chan bool
	present  chan bool
	queries  chan queries // buffered: the pending queries
}

// queries specifies which properties of the login manager to read.
type queries struct{ shutdown, sleep, presence bool }

// Address returns the address of the system bus.
func Address() string {
	if address := os.Getenv("DBUS_SYSTEM_BUS_ADDRESS"); address != "" {
		return address
	}
	return "unix:path=/run/dbus/system_bus_socket"
}

// Connect connects to the login manager on the bus at address. The context limits only the time for
// connecting.
func Connect(ctx context.Context, address string) (*Manager, error) {
	conn, err := bus.DialGuarded(ctx, address, nil) // every user of the machine can send it messages
	if err != nil {
		return nil, err
	}
	m := &Manager{
		conn:     conn.Conn,
		shutdown: make(chan bool, 1),
		sleep:    make(chan bool, 1),
		present:  make(chan bool, 1),
		queries:  make(chan queries, 1),
	}
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	owner, err := m.subscribe(ctx)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("cannot subscribe to the login manager: %w", err)
	}
	go m.readSignals(signals, owner)
	go m.runQueries(context.WithoutCancel(ctx))
	return m, nil
}

func (m *Manager) subscribe(ctx context.Context) (*bus.Owner, error) {
	for _, member := range []string{"PrepareForShutdown", "PrepareForSleep"} {
		err := m.conn.AddMatchSignalContext(ctx,
			dbus.WithMatchSender(name), dbus.WithMatchInterface(manager), dbus.WithMatchMember(member))
		if err != nil {
			return nil, err
		}
	}
	if err := m.subscribeToPresence(ctx); err != nil {
		return nil, err
	}
	owner, err := bus.WatchOwner(ctx, m.conn, name)
	if err == nil {
		m.queries <- queries{presence: true}
		m.query(ctx, "PreparingForShutdown", m.shutdown) // a shutdown may have begun before the subscription
	}
	return owner, err
}

// readSignals reads signals and requests queries. A signal of the login manager only causes a query
// of the property, and signals of other senders are ignored. When a new login manager has started,
// for example after a crash, readSignals requests a query whether a shutdown began meanwhile.
func (m *Manager) readSignals(signals <-chan *dbus.Signal, owner *bus.Owner) {
	defer close(m.queries)
	for s := range signals {
		var q queries
		if owner.Update(s) {
			q = queries{shutdown: owner.UniqueName() != "", presence: true}
		} else if owner.Sent(s) {
			q = queries{s.Name == manager+".PrepareForShutdown", s.Name == manager+".PrepareForSleep", isAboutPresence(s)}
		}
		if q == (queries{}) {
			continue
		}
		select {
		case before := <-m.queries:
			q = queries{q.shutdown || before.shutdown, q.sleep || before.sleep, q.presence || before.presence}
		default:
		}
		m.queries <- q
	}
}

// runQueries runs the requested queries until the connection is lost. It waits for a login manager
// that hangs: a late reply is still correct, and the call fails when the login manager leaves the
// bus.
func (m *Manager) runQueries(ctx context.Context) {
	defer close(m.shutdown)
	for q := range m.queries {
		if q.shutdown {
			m.query(ctx, "PreparingForShutdown", m.shutdown)
		}
		if q.sleep {
			m.query(ctx, "PreparingForSleep", m.sleep)
		}
		if q.presence {
			setLatest(m.present, m.queryPresence(ctx))
		}
	}
}

// query reads a property of the login manager and sends its value to a channel. It sends nothing if
// the login manager is not running or does not return the property, because this does not mean
// false.
func (m *Manager) query(ctx context.Context, property string, to chan bool) {
	var value dbus.Variant
	call := m.conn.Object(name, path).
		CallWithContext(ctx, bus.Properties+".Get", dbus.FlagNoAutoStart, manager, property)
	if call.Store(&value) != nil {
		return
	}
	if on, ok := value.Value().(bool); ok {
		setLatest(to, on)
	}
}

// setLatest sends a value to a buffered channel, and replaces a value that was not received yet. It
// must not be called concurrently.
func setLatest(to chan bool, on bool) {
	select {
	case <-to:
	default:
	}
	to <- on
}

// PreparingForShutdown returns a channel with values that state whether the machine is about to
// shut down: first the current value, then each change, and the current value whenever a new login
// manager has started, if it returns one. The channel is closed when the connection is lost.
func (m *Manager) PreparingForShutdown() <-chan bool { return m.shutdown }

// PreparingForSleep returns a channel that receives true when the machine is about to sleep and
// false when it has woken up. The channel is never closed.
func (m *Manager) PreparingForSleep() <-chan bool { return m.sleep }

// Lock is a delay lock. While a process holds one, the login manager delays shutdown and sleep, for
// at most InhibitDelayMaxSec=.
type Lock struct{ file *os.File }

// Inhibit takes a delay lock for shutdown and sleep. who and why are shown to people. It fails if
// the policy does not allow the lock, or if no policy is available.
func (m *Manager) Inhibit(ctx context.Context, who, why string) (*Lock, error) {
	var fd dbus.UnixFD
	// No interactive authorization: a daemon must not cause a password prompt.
	err := m.conn.Object(name, path).
		CallWithContext(ctx, manager+".Inhibit", 0, "shutdown:sleep", who, why, "delay").Store(&fd)
	if err != nil {
		return nil, fmt.Errorf("cannot take a delay lock: %w", err)
	}
	if fd < 0 {
		return nil, errors.New("cannot take a delay lock: the reply contains no file descriptor")
	}
	return &Lock{os.NewFile(uintptr(fd), "delay lock")}, nil
}

// Release releases the lock. It does nothing if l is nil.
func (l *Lock) Release() {
	if l != nil {
		_ = l.file.Close()
	}
}

// Close closes the connection. Delay locks remain in effect until they are released.
func (m *Manager) Close() error { return m.conn.Close() }

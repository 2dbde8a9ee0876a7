// Package logind asks the login manager for what the user needs of it: time before the machine is
// shut down or sleeps, by its delay locks (systemd-inhibit(1) and org.freedesktop.login1(5),
// "Inhibitors"), and to go on after the last logout (loginctl(1), enable-linger).
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
	busName = "org.freedesktop.DBus"
)

// Manager is the login manager, on a connection of its own to the system bus.
type Manager struct {
	conn  *dbus.Conn
	down  chan bool
	sleep chan bool
	asks  chan asks // what is to be asked; holds one
}

// asks is what the login manager is to be asked.
type asks struct{ down, sleep bool }

// Address returns the address of the system bus.
func Address() string {
	if address := os.Getenv("DBUS_SYSTEM_BUS_ADDRESS"); address != "" {
		return address
	}
	return "unix:path=/run/dbus/system_bus_socket"
}

// Connect connects to the login manager on the bus at address. The context bounds the connecting.
func Connect(ctx context.Context, address string) (*Manager, error) {
	conn, err := bus.DialGuarded(ctx, address, nil) // every user of the machine can send it messages
	if err != nil {
		return nil, err
	}
	m := &Manager{conn: conn.Conn, down: make(chan bool, 1), sleep: make(chan bool, 1), asks: make(chan asks, 1)}
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	owner, err := m.open(ctx)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("cannot listen to the login manager: %w", err)
	}
	go m.listen(signals, owner)
	go m.askAll(context.WithoutCancel(ctx))
	return m, nil
}

func (m *Manager) open(ctx context.Context) (*bus.Owner, error) {
	for _, member := range []string{"PrepareForShutdown", "PrepareForSleep"} {
		if err := m.conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(name), dbus.WithMatchInterface(manager), dbus.WithMatchMember(member)); err != nil {
			return nil, err
		}
	}
	owner, err := bus.WatchOwner(ctx, m.conn, name)
	if err == nil {
		m.ask(ctx, "PreparingForShutdown", m.down) // it may have begun before anybody listened
	}
	return owner, err
}

// listen reads the signals. A signal of the login manager's is only the reason to ask it, and a
// signal that somebody else sent is none. A login manager that has just begun, after an accident or
// because somebody wanted it to, is asked what has been said while there was none.
func (m *Manager) listen(signals <-chan *dbus.Signal, owner *bus.Owner) {
	defer close(m.asks)
	for s := range signals {
		var a asks
		if owner.Update(s) {
			a.down = owner.UniqueName() != ""
		} else if owner.Sent(s) {
			a = asks{s.Name == manager+".PrepareForShutdown", s.Name == manager+".PrepareForSleep"}
		}
		if a == (asks{}) {
			continue
		}
		select {
		case before := <-m.asks:
			a = asks{a.down || before.down, a.sleep || before.sleep}
		default:
		}
		m.asks <- a
	}
}

// askAll asks what there is to ask and passes the answers on, until the connection is lost. A login
// manager that hangs is waited for: what it says late still holds, and once it is gone from the bus
// the call fails.
func (m *Manager) askAll(ctx context.Context) {
	defer close(m.down)
	for a := range m.asks {
		if a.down {
			m.ask(ctx, "PreparingForShutdown", m.down)
		}
		if a.sleep {
			m.ask(ctx, "PreparingForSleep", m.sleep)
		}
	}
}

// ask passes on what a property of the login manager's says. Of one that does not run, or does not
// say, nothing is passed on: that is no "no".
func (m *Manager) ask(ctx context.Context, property string, to chan bool) {
	var value dbus.Variant
	call := m.conn.Object(name, path).CallWithContext(ctx, busName+".Properties.Get", dbus.FlagNoAutoStart, manager, property)
	if call.Store(&value) != nil {
		return
	}
	if on, ok := value.Value().(bool); ok {
		tell(to, on)
	}
}

// tell puts a value in place of one that nobody has taken yet. It has one caller at a time.
func tell(to chan bool, on bool) {
	select {
	case <-to:
	default:
	}
	to <- on
}

// PreparingForShutdown tells whether the machine is about to be shut down: first what holds now,
// then what changes, and what holds whenever a login manager has begun anew, as far as that says
// so. It is closed when the connection is lost.
func (m *Manager) PreparingForShutdown() <-chan bool { return m.down }

// PreparingForSleep tells that the machine is about to sleep (true), or has woken (false). It is
// never closed.
func (m *Manager) PreparingForSleep() <-chan bool { return m.sleep }

// Lock is a delay lock: while it is held the login manager waits before it shuts the machine down
// or has it sleep, for InhibitDelayMaxSec= at most.
type Lock struct{ file *os.File }

// Inhibit takes a delay lock for shutdown and sleep; why is for people. It is refused where the
// policy has it so, or nobody knows a policy.
func (m *Manager) Inhibit(ctx context.Context, who, why string) (*Lock, error) {
	var fd dbus.UnixFD
	// No question to a person may come of this: it is a daemon that asks.
	err := m.conn.Object(name, path).CallWithContext(ctx, manager+".Inhibit", 0, "shutdown:sleep", who, why, "delay").Store(&fd)
	if err != nil {
		return nil, fmt.Errorf("cannot take a delay lock: %w", err)
	}
	if fd < 0 {
		return nil, errors.New("cannot take a delay lock: no descriptor came with it")
	}
	return &Lock{os.NewFile(uintptr(fd), "delay lock")}, nil
}

// Release gives the lock up. A nil lock is none.
func (l *Lock) Release() {
	if l != nil {
		_ = l.file.Close()
	}
}

// Close ends the connection. A lock that is held stays held.
func (m *Manager) Close() error { return m.conn.Close() }

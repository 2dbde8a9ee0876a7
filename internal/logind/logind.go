// Package logind asks the login manager for what the user needs of it: time before the machine is shut down or sleeps, by its delay locks
// (systemd-inhibit(1) and org.freedesktop.login1(5), "Inhibitors"), and to go on after the last logout (loginctl(1), enable-linger).
package logind

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/deadline"
)

const (
	name    = "org.freedesktop.login1"
	path    = dbus.ObjectPath("/org/freedesktop/login1")
	manager = "org.freedesktop.login1.Manager"
	busName = "org.freedesktop.DBus"
)

const answerTime = 5 * time.Second // more than it takes a login manager that is there

// Manager is the login manager, on a connection of its own to the system bus.
type Manager struct {
	conn  *dbus.Conn
	down  chan bool
	sleep chan bool
}

// Address returns the address of the system bus.
func Address() string {
	if address := os.Getenv("DBUS_SYSTEM_BUS_ADDRESS"); address != "" {
		return address
	}
	return "unix:path=/run/dbus/system_bus_socket"
}

// Connect connects to the login manager on the bus at address. The context bounds the connecting.
func Connect(ctx context.Context, address string) (*Manager, error) {
	conn, err := bus.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	m := &Manager{conn: conn, down: make(chan bool, 1), sleep: make(chan bool, 1)}
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	if err := m.open(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("cannot listen to the login manager: %w", err)
	}
	go m.listen(signals)
	return m, nil
}

func (m *Manager) open(ctx context.Context) error {
	for _, member := range []string{"PrepareForShutdown", "PrepareForSleep"} {
		if err := m.conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(name), dbus.WithMatchInterface(manager), dbus.WithMatchMember(member)); err != nil {
			return err
		}
	}
	err := m.conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(busName), dbus.WithMatchInterface(busName), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, name))
	if err != nil {
		return err
	}
	m.ask(ctx)
	return nil
}

// ask tells whether what PrepareForShutdown tells of has begun before anybody listened. Of a login manager that does not run, or does not say, nothing is
// told: that is no "no".
func (m *Manager) ask(ctx context.Context) {
	var value dbus.Variant
	call := m.conn.Object(name, path).CallWithContext(ctx, busName+".Properties.Get", dbus.FlagNoAutoStart, manager, "PreparingForShutdown")
	if call.Store(&value) != nil {
		return
	}
	if on, ok := value.Value().(bool); ok {
		tell(m.down, on)
	}
}

// listen passes on what the login manager says, the newest only: what was said before does not matter any more.
func (m *Manager) listen(signals <-chan *dbus.Signal) {
	defer close(m.down)
	for s := range signals {
		if s.Name == busName+".NameOwnerChanged" {
			if len(s.Body) == 3 && s.Body[0] == name && s.Body[2] != "" {
				m.began()
			}
			continue
		}
		told := map[string]chan bool{manager + ".PrepareForShutdown": m.down, manager + ".PrepareForSleep": m.sleep}[s.Name]
		if told == nil || len(s.Body) != 1 {
			continue
		}
		on, ok := s.Body[0].(bool)
		if !ok {
			continue
		}
		tell(told, on)
	}
}

// began asks a login manager that has just begun, after an accident or because somebody wanted it to, what has been said while there was none.
func (m *Manager) began() {
	ctx, cancel := deadline.Context(context.Background(), answerTime)
	defer cancel()
	m.ask(ctx)
}

// tell puts a value in place of one that nobody has taken yet.
func tell(to chan bool, on bool) {
	select {
	case <-to:
	default:
	}
	to <- on
}

// GoingDown tells whether the machine is about to be shut down: first what holds now, then what changes, and what holds whenever a login manager has begun
// anew, as far as that says so. It is closed when the connection is lost.
func (m *Manager) GoingDown() <-chan bool { return m.down }

// Sleeping tells that the machine is about to sleep (true), or has woken (false). It is never closed.
func (m *Manager) Sleeping() <-chan bool { return m.sleep }

// Lock is a delay lock: while it is held the login manager waits before it shuts the machine down or has it sleep, for InhibitDelayMaxSec= at most.
type Lock struct{ file *os.File }

// Delay takes a delay lock for shutdown and sleep; why is for people. It is refused where the policy has it so, or nobody knows a policy.
func (m *Manager) Delay(ctx context.Context, who, why string) (*Lock, error) {
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

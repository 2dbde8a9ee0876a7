package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/clock"
)

// The signal that the floors emit: see parentOfExits and emitSignals.
const (
	floorInterface = "io.github.corrald.Bench"
	floorPath      = dbus.ObjectPath("/io/github/corrald/Bench")
	floorSignal    = floorInterface + ".Exited"
)

const changedSignal = bus.Properties + ".PropertiesChanged"

// listener receives bus signals and records the time as soon as godbus has read them.
type listener struct {
	conn    *dbus.Conn
	arrived chan struct{} // contains an element if a signal has arrived since it was last drained

	mu      sync.Mutex
	wanted  func(*dbus.Signal) bool
	arrival chan time.Duration
}

func newListener(ctx context.Context) (*listener, error) {
	l := &listener{arrived: make(chan struct{}, 1)}
	var err error
	if l.conn, err = connect(ctx, dbus.WithSignalHandler(l)); err != nil {
		return nil, err
	}
	for _, options := range [][]dbus.MatchOption{
		{dbus.WithMatchInterface(floorInterface)},
		{dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, dbusapi.BusName)},
		{dbus.WithMatchMember("PropertiesChanged"), dbus.WithMatchPathNamespace(dbusapi.SessionsPath)},
	} {
		if err := l.conn.AddMatchSignalContext(ctx, options...); err != nil {
			l.close()
			return nil, fmt.Errorf("cannot subscribe to signals: %w", err)
		}
	}
	return l, nil
}

func connect(ctx context.Context, options ...dbus.ConnOption) (*dbus.Conn, error) {
	return bus.Dial(ctx, os.Getenv("DBUS_SESSION_BUS_ADDRESS"), options...)
}

func (l *listener) close() { _ = l.conn.Close() }

// DeliverSignal implements dbus.SignalHandler. godbus calls it for one signal after the other.
func (l *listener) DeliverSignal(_, _ string, signal *dbus.Signal) {
	now := clock.Monotonic()
	l.mu.Lock()
	if l.wanted != nil && l.wanted(signal) {
		l.wanted = nil
		l.arrival <- now
	}
	l.mu.Unlock()
	select {
	case l.arrived <- struct{}{}:
	default:
	}
}

// expect waits for one signal for which wanted returns true. It returns a channel that receives the
// time of its arrival.
func (l *listener) expect(wanted func(*dbus.Signal) bool) <-chan time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted, l.arrival = wanted, make(chan time.Duration, 1)
	return l.arrival
}

// changed matches the PropertiesChanged signal with this new value of a property of the session.
func changed(id, property, value string) func(*dbus.Signal) bool {
	path := dbusapi.SessionPath(id)
	return func(signal *dbus.Signal) bool {
		if signal.Path != path || signal.Name != changedSignal || len(signal.Body) < 2 {
			return false
		}
		properties, _ := signal.Body[1].(map[string]dbus.Variant)
		return properties[property].Value() == value
	}
}

// childExited matches the floor's signal.
func childExited(signal *dbus.Signal) bool { return signal.Name == floorSignal }

// plainService is the unit of the service in which systemd runs the program of the exits.
const plainService = "plain.service"

// servicePath is the object of plainService.
const servicePath = bus.SystemdPath + "/unit/plain_2eservice"

// watchService subscribes to the signals of systemd about plainService.
func (l *listener) watchService(ctx context.Context) error {
	err := bus.Systemd(l.conn).CallWithContext(ctx, bus.SystemdManager+".Subscribe", 0).Err
	if err == nil || bus.HasErrorName(err, bus.SystemdName+".AlreadySubscribed") {
		err = l.conn.AddMatchSignalContext(ctx,
			dbus.WithMatchMember("PropertiesChanged"), dbus.WithMatchObjectPath(servicePath))
	}
	if err != nil {
		return fmt.Errorf("cannot subscribe to systemd's signals: %w", err)
	}
	return nil
}

// serviceFailed matches the signal with which systemd publishes that plainService has failed.
func serviceFailed(signal *dbus.Signal) bool {
	if signal.Path != servicePath || signal.Name != changedSignal || len(signal.Body) < 2 {
		return false
	}
	properties, _ := signal.Body[1].(map[string]dbus.Variant)
	return properties["ActiveState"].Value() == "failed"
}

func (l *listener) hasOwner(ctx context.Context, name string) (bool, error) {
	var owned bool
	err := l.conn.BusObject().CallWithContext(ctx, bus.Name+".NameHasOwner", 0, name).Store(&owned)
	return owned, err
}

// await calls done now and after each signal until it returns true. It fails if the daemon exits.
func (l *listener) await(ctx context.Context, ended <-chan struct{}, what string, done func() (bool, error)) error {
	deadline := time.After(timeout)
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-l.arrived:
		case <-ended:
			return errors.New("corrald has ended")
		case <-deadline:
			return fmt.Errorf("waited %v for %s", timeout, what)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
)

// The signal that the parent of the exit floor emits: see parentOfExits.
const (
	floorInterface = "io.github.corrald.Bench"
	floorPath      = dbus.ObjectPath("/io/github/corrald/Bench")
	floorSignal    = floorInterface + ".Exited"
)

const changedSignal = "org.freedesktop.DBus.Properties.PropertiesChanged"

// ear hears signals of the bus, and notes the time as soon as godbus has read them.
type ear struct {
	conn *dbus.Conn
	news chan struct{} // one is in it when something was heard since it was last emptied

	mu     sync.Mutex
	wanted func(*dbus.Signal) bool
	came   chan time.Duration
}

func listen(ctx context.Context) (*ear, error) {
	e := &ear{news: make(chan struct{}, 1)}
	var err error
	if e.conn, err = connect(ctx, dbus.WithSignalHandler(e)); err != nil {
		return nil, err
	}
	for _, options := range [][]dbus.MatchOption{
		{dbus.WithMatchInterface(floorInterface)},
		{dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, dbusapi.BusName)},
		{dbus.WithMatchMember("PropertiesChanged"), dbus.WithMatchPathNamespace(dbusapi.SessionsPath)},
	} {
		if err := e.conn.AddMatchSignalContext(ctx, options...); err != nil {
			e.close()
			return nil, fmt.Errorf("cannot subscribe to signals: %w", err)
		}
	}
	return e, nil
}

func connect(ctx context.Context, options ...dbus.ConnOption) (*dbus.Conn, error) {
	conn, err := dbus.Dial(os.Getenv("DBUS_SESSION_BUS_ADDRESS"), append(options, dbus.WithContext(ctx))...)
	if err == nil {
		err = conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))})
	}
	if err == nil {
		err = conn.Hello()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the bus: %w", err)
	}
	return conn, nil
}

func (e *ear) close() { _ = e.conn.Close() }

// DeliverSignal is called by godbus for one signal after the other. It implements
// dbus.SignalHandler.
func (e *ear) DeliverSignal(_, _ string, signal *dbus.Signal) {
	now := monotonic()
	e.mu.Lock()
	if e.wanted != nil && e.wanted(signal) {
		e.wanted = nil
		e.came <- now
	}
	e.mu.Unlock()
	select {
	case e.news <- struct{}{}:
	default:
	}
}

// expect begins to wait for one signal that fits, and returns the channel that tells when it came.
func (e *ear) expect(wanted func(*dbus.Signal) bool) <-chan time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wanted, e.came = wanted, make(chan time.Duration, 1)
	return e.came
}

// becomes fits the PropertiesChanged that tells that the session's state is now this.
func becomes(id, state string) func(*dbus.Signal) bool {
	path := dbusapi.SessionPath(id)
	return func(signal *dbus.Signal) bool {
		if signal.Path != path || signal.Name != changedSignal || len(signal.Body) < 2 {
			return false
		}
		changed, _ := signal.Body[1].(map[string]dbus.Variant)
		return changed["State"].Value() == state
	}
}

// childExited fits the floor's signal.
func childExited(signal *dbus.Signal) bool { return signal.Name == floorSignal }

func (e *ear) hasOwner(ctx context.Context, name string) (bool, error) {
	var owned bool
	err := e.conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.NameHasOwner", 0, name).Store(&owned)
	return owned, err
}

// await looks whether something has come true, now and whenever something was heard, and gives up
// when the daemon has ended.
func (e *ear) await(ctx context.Context, ended <-chan struct{}, what string, done func() (bool, error)) error {
	deadline := time.After(patience)
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-e.news:
		case <-ended:
			return errors.New("corrald has ended")
		case <-deadline:
			return fmt.Errorf("waited %v for %s", patience, what)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

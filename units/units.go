// Package units starts, stops, lists and watches Corral's scopes in the user's systemd, over a bus
// connection of its own.
//
// systemd's signals are only hints; the listing is authoritative. A reader of Events calls List
// again after each Resync. No call waits longer than its context allows.
package units

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/deadline"
)

const scopeIface = bus.SystemdName + ".Scope"

// The beginnings of match rules for signals of systemd.
const (
	from        = "type='signal',sender='" + bus.SystemdName + "',"
	fromManager = from + "interface='" + bus.SystemdManager + "'"
)

// callTimeout bounds a call that systemd answers without waiting for a job.
const callTimeout = 10 * time.Second

// Unit is one row of List.
type Unit struct {
	Name         string
	Active       string // ActiveState: active, deactivating, inactive or failed
	HasStopJob   bool   // a stop job is queued; it may wait for the stop job of another unit
	Result       string // the scope's Result
	InvocationID string
	ControlGroup string
	// TimedOutAt is the CLOCK_MONOTONIC time at which RuntimeMaxSec= expired, 0 if the scope does not
	// end for that reason.
	TimedOutAt time.Duration
}

// Event is a change of a watched scope that systemd has reported.
type Event interface{ event() }

// Ended reports that the last process of a scope has exited. Result is success, resources, timeout
// or oom-kill. The InvocationID, here and in the events below, distinguishes the scope from others
// that have had the same name; it is "" if it is not known.
type Ended struct{ Name, Result, InvocationID string }

// StopRequested reports that systemd is stopping the scope and leaves it to Corral to end the
// processes: the unit was stopped, it exceeded RuntimeMaxSec= (Result is then timeout), or the
// user's session is ending.
type StopRequested struct{ Name, InvocationID string }

// Stopping reports that systemd has begun to end the scope's processes itself, for one of the same
// reasons or because memory ran out. systemd requests the stop only from the connection that
// started the scope.
type Stopping struct {
	Name         string
	Cause        Cause
	InvocationID string
}

// Cause is the reason for the end of a scope, as far as systemd knows it.
type Cause struct {
	Result string        // so far: success for a requested stop, timeout, oom-kill; "" if not known
	Since  time.Duration // earliest CLOCK_MONOTONIC time of systemd's first signal to the processes; 0 if not known
}

// Resync reports that events may have been lost because systemd was reloaded or reexecuted. The
// reader has to call List.
type Resync struct{}

func (Ended) event()         {}
func (StopRequested) event() {}
func (Stopping) event()      {}
func (Resync) event()        {}

// Manager is a connection to the user's systemd. One goroutine, the event loop, owns all of its
// state and exits when the connection is lost.
type Manager struct {
	conn       *dbus.Conn
	bus        *client                 // makes calls over conn
	private    func() (*client, error) // makes calls once conn is closed
	runtimeDir string
	events     chan Event
	mailbox    chan func(*watches)
	closed     chan struct{}
}

// watches is the state of the event loop.
type watches struct {
	units       map[string]*watch // by name
	byPath      map[dbus.ObjectPath]*watch
	unsupported map[string]bool // optional properties that systemd has rejected
	// jobWaiters receive a value after each finished job whose signal arrives; buffered by one.
	jobWaiters map[chan struct{}]bool
}

// watch is the state of one watched scope.
type watch struct {
	name        string
	path        dbus.ObjectPath
	startResult chan string // receives the result of the start job; buffered by one; nil for an adopted scope
	running     bool        // the scope has started, so inactive means that it has ended
	// stopReported is set once StopRequested or Stopping has been sent.
	stopReported bool
	result       string // of the scope, from systemd's signals
	cgroup       string // "" if not known yet
	invocationID string // "" if not known yet
}

// Connect connects to the user's bus at address and to systemd on it. The runtimeDir is systemd's
// $XDG_RUNTIME_DIR. The context bounds only the connecting.
func Connect(ctx context.Context, address, runtimeDir string) (*Manager, error) {
	conn, err := bus.DialGuarded(ctx, address, nil)
	if err != nil {
		return nil, err
	}
	m := &Manager{
		conn:       conn.Conn,
		private:    sync.OnceValues(func() (*client, error) { return dialPrivate(runtimeDir) }),
		runtimeDir: runtimeDir,
		events:     make(chan Event, 64),
		mailbox:    make(chan func(*watches)),
		closed:     make(chan struct{}),
	}
	signals := make(chan *dbus.Signal, 1024)
	conn.Signal(signals)
	owner, err := m.open(ctx)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("cannot talk to systemd on the bus: %w", err)
	}
	go m.run(signals, owner)
	return m, nil
}

func (m *Manager) open(ctx context.Context) (*bus.Owner, error) {
	m.match("AddMatch", fromManager+",member='Reloading'")
	owner, err := bus.WatchOwner(ctx, m.conn, bus.SystemdName)
	if err != nil {
		return nil, err
	}
	if m.bus, err = newClient(m.conn); err != nil {
		return nil, err
	}
	return owner, m.callMethod(ctx, bus.SystemdPath, bus.SystemdManager+".Subscribe")
}

// Close closes the connection. The event loop then closes Events.
func (m *Manager) Close() error { return m.conn.Close() }

// Events returns the channel of systemd's events, in order. It is closed when the connection is
// lost; the caller then needs a new Manager.
func (m *Manager) Events() <-chan Event { return m.events }

// match adds or removes a match rule without waiting for the reply: the bus handles the messages of
// one connection in order.
func (m *Manager) match(method, rule string) {
	m.conn.BusObject().Go(bus.Name+"."+method, dbus.FlagNoReplyExpected, nil, rule)
}

// client calls systemd over one connection: with the methods of go-systemd, or directly.
type client struct {
	*systemd.Conn // it receives no signals, and its Connected always returns false
	conn          *dbus.Conn
}

// newClient returns a client for conn. go-systemd requests a second connection, over which it would
// receive JobRemoved of every unit. It is given one over which nothing can be sent or received, and
// which is then closed, so that the goroutine that reads signals from it ends.
func newClient(conn *dbus.Conn) (*client, error) {
	pipe, other := net.Pipe()
	_ = other.Close() // the call of AddMatch, which has no time limit, fails at once
	signals, err := dbus.NewConn(pipe)
	if err != nil {
		return nil, err
	}
	defer func() { _ = signals.Close() }()
	next := conn
	c, err := systemd.NewConnection(func() (*dbus.Conn, error) {
		dialed := next
		next = signals
		return dialed, nil
	})
	return &client{c, conn}, err
}

// callMethod calls a method that go-systemd does not have. It ignores the values of the reply.
func (m *Manager) callMethod(ctx context.Context, path dbus.ObjectPath, method string, args ...any) error {
	return m.call(ctx, func(ctx context.Context, c *client) error {
		return c.conn.Object(bus.SystemdName, path).CallWithContext(ctx, method, 0, args...).Err
	})
}

// call calls systemd over the bus, or over systemd's private socket once the bus connection is
// lost.
func (m *Manager) call(ctx context.Context, f func(context.Context, *client) error) error {
	ctx, cancel := deadline.Context(ctx, callTimeout)
	defer cancel()
	c := m.bus
	if !m.conn.Connected() {
		var err error
		if c, err = m.private(); err != nil {
			return errors.Join(ErrClosed, err)
		}
	}
	err := f(ctx, c)
	if errors.Is(err, dbus.ErrClosed) || errors.As(err, new(*net.OpError)) {
		return ErrClosed
	}
	return err
}

// Watch starts to report events of the scopes. The state of a scope that is already watched is
// reset.
func (m *Manager) Watch(ctx context.Context, names ...string) error {
	return m.runOnLoop(ctx, func(ws *watches) {
		for _, name := range names {
			m.addWatch(ws, name).running = true
		}
	})
}

// addWatch adds or resets the watch of a scope. The caller sets running once the scope runs.
func (m *Manager) addWatch(ws *watches, name string) *watch {
	w := ws.units[name]
	if w == nil {
		w = &watch{name: name, path: unitPath(name)}
		ws.units[name], ws.byPath[w.path] = w, w
		for _, rule := range w.matchRules() {
			m.match("AddMatch", rule)
		}
	}
	w.startResult, w.running, w.stopReported, w.result, w.invocationID = nil, false, false, "", ""
	return w
}

// Unwatch ends the watches of scopes that Watch or Start has added.
func (m *Manager) Unwatch(ctx context.Context, names ...string) error {
	return m.runOnLoop(ctx, func(ws *watches) {
		for _, name := range names {
			w := ws.units[name]
			if w == nil {
				continue
			}
			for _, rule := range w.matchRules() {
				m.match("RemoveMatch", rule)
			}
			delete(ws.units, name)
			delete(ws.byPath, w.path)
		}
	})
}

// matchRules returns the match rules for the scope. They are as narrow as possible: systemd sends
// signals about every unit of the user, and each signal that matches wakes the daemon.
func (w *watch) matchRules() []string {
	return []string{
		fromManager + ",member='UnitRemoved',arg0='" + w.name + "'",
		from + "interface='" + bus.Properties + "',member='PropertiesChanged',path='" + string(w.path) + "'",
	}
}

// startJobRule returns the match rule for the end of the scope's start job.
func (w *watch) startJobRule() string {
	return anyJobRule + ",arg2='" + w.name + "'"
}

// ErrClosed is returned after the connection to the bus is lost.
var ErrClosed = errors.New("the connection to the bus is lost")

// runOnLoop runs f on the event loop and waits until it has returned.
func (m *Manager) runOnLoop(ctx context.Context, f func(*watches)) error {
	done := make(chan struct{})
	select {
	case m.mailbox <- func(ws *watches) { f(ws); close(done) }:
		<-done
		return nil
	case <-m.closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

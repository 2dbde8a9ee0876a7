// Package units starts, ends, lists and watches our scopes in the user's systemd, over one
// connection of its own.
//
// Signals are hints, listing is truth: whoever reads Events lists again after a Resync. No call
// waits longer than its context.
package units

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/failpoint"
	"github.com/corrald/corral/internal/proc"
)

const (
	systemdName     = "org.freedesktop.systemd1"
	systemdPath     = dbus.ObjectPath("/org/freedesktop/systemd1")
	managerIface    = "org.freedesktop.systemd1.Manager"
	unitIface       = "org.freedesktop.systemd1.Unit"
	jobIface        = "org.freedesktop.systemd1.Job"
	scopeIface      = "org.freedesktop.systemd1.Scope"
	propertiesIface = "org.freedesktop.DBus.Properties"
)

// callTimeout bounds a call that systemd answers without waiting for a job.
const callTimeout = 10 * time.Second

// jobTimeout bounds the wait for a start job: moving processes between cgroups can take the kernel
// a while on a loaded machine.
const jobTimeout = 25 * time.Second

// Property is a unit property, as StartTransientUnit and SetUnitProperties take it.
type Property struct {
	Name  string
	Value dbus.Variant
}

// Scope is a scope to be started.
type Scope struct {
	Name       string
	PIDs       []int      // its first processes
	Properties []Property // beside PIDs and Controller
	Optional   []Property // left out where this systemd does not know them
}

// Started tells where a scope was started.
type Started struct {
	InvocationID string // hexadecimal, as systemctl shows it
	ControlGroup string // below the root of the cgroup hierarchy
}

// Unit is one row of List.
type Unit struct {
	Name         string
	Active       string // ActiveState: active, deactivating, inactive, failed
	HasStopJob   bool   // it is about to be stopped: its stop job may wait for that of another unit
	Result       string // the scope's Result
	InvocationID string
	ControlGroup string
	TimedOutAt   time.Duration // by CLOCK_MONOTONIC: when RuntimeMaxSec= was over, 0 if it is not what ends or has ended the scope
}

// Event is what systemd tells of our scopes.
type Event interface{ event() }

// Ended tells that a scope's last process is gone. Result is success, resources, timeout or
// oom-kill. The InvocationID tells the scope from every other that has had its name, here and
// below; it is "" where it is not known.
type Ended struct{ Name, Result, InvocationID string }

// StopRequested tells that systemd wants the scope's processes to end and leaves it to us how:
// somebody stopped the unit, it exceeded RuntimeMaxSec (then Result says timeout), or the session
// is going down.
type StopRequested struct{ Name, InvocationID string }

// Stopping tells that systemd has begun to end the scope's processes itself, for one of the same
// reasons or for lack of memory: it asks only the connection that has started the scope.
type Stopping struct {
	Name         string
	Cause        Cause
	InvocationID string
}

// Cause is what systemd knows of why a scope ends.
type Cause struct {
	Result string        // so far: success where somebody stops it, timeout, oom-kill; "" if it is not known
	Since  time.Duration // by CLOCK_MONOTONIC: when its processes were told so at the earliest, 0 if that is not known
}

// Resync tells that events may have been missed: systemd was reloaded or executed again. List tells
// the truth.
type Resync struct{}

func (Ended) event()         {}
func (StopRequested) event() {}
func (Stopping) event()      {}
func (Resync) event()        {}

// Manager is the user's systemd. All its state is owned by one goroutine, which ends with the
// connection.
type Manager struct {
	conn       *dbus.Conn
	runtimeDir string
	private    func() (*dbus.Conn, error) // replaces conn for calls when that is closed
	events     chan Event
	door       chan func(*watches)
	closed     chan struct{}
}

// watches is what the goroutine owns.
type watches struct {
	units   map[string]*watch // by name
	byPath  map[dbus.ObjectPath]*watch
	unknown map[string]bool        // optional properties that this systemd refused
	jobs    map[chan struct{}]bool // told of each job that has ended, if it is heard of; buffered by one
}

type watch struct {
	name   string
	path   dbus.ObjectPath
	job    chan string // told the result of the start job; buffered by one
	armed  bool        // the scope runs: from now on inactive means ended
	asked  bool        // systemd has asked us to stop it, or told that it does so itself
	result string      // by systemd's signals
	group  string      // its control group, "" where it is not known yet
	id     string      // its InvocationID, "" where it is not known yet
}

// Connect connects to the user's bus at address and to the systemd on it, whose $XDG_RUNTIME_DIR is
// runtimeDir. The context bounds the connecting.
func Connect(ctx context.Context, address, runtimeDir string) (*Manager, error) {
	conn, err := bus.DialGuarded(ctx, address, nil)
	if err != nil {
		return nil, err
	}
	m := &Manager{
		conn:       conn.Conn,
		runtimeDir: runtimeDir,
		private:    sync.OnceValues(func() (*dbus.Conn, error) { return dialPrivate(runtimeDir) }),
		events:     make(chan Event, 64),
		door:       make(chan func(*watches)),
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
	m.match("AddMatch", "type='signal',sender='"+systemdName+"',interface='"+managerIface+"',member='Reloading'")
	owner, err := bus.WatchOwner(ctx, m.conn, systemdName)
	if err != nil {
		return nil, err
	}
	return owner, m.call(ctx, systemdPath, managerIface+".Subscribe").Err
}

// Close ends the connection. Events is closed soon after.
func (m *Manager) Close() error { return m.conn.Close() }

// Events returns what systemd tells, in order. It is closed when the connection is lost; then only
// a new Manager helps.
func (m *Manager) Events() <-chan Event { return m.events }

// match adds or removes a match rule without waiting: the bus handles what one connection sends in
// order.
func (m *Manager) match(method, rule string) {
	m.conn.BusObject().Go("org.freedesktop.DBus."+method, dbus.FlagNoReplyExpected, nil, rule)
}

// call calls systemd: over the bus, or over its private socket once the bus is lost.
func (m *Manager) call(ctx context.Context, path dbus.ObjectPath, method string, args ...any) *dbus.Call {
	ctx, cancel := deadline.Context(ctx, callTimeout)
	defer cancel()
	conn := m.conn
	if !conn.Connected() {
		var err error
		if conn, err = m.private(); err != nil {
			return &dbus.Call{Err: errors.Join(ErrClosed, err)}
		}
	}
	c := conn.Object(systemdName, path).CallWithContext(ctx, method, 0, args...)
	if errors.Is(c.Err, dbus.ErrClosed) {
		c.Err = ErrClosed
	}
	return c
}

// Watch begins to tell of the scopes; of one that it tells of already it begins anew.
func (m *Manager) Watch(ctx context.Context, names ...string) error {
	return m.do(ctx, func(ws *watches) {
		for _, name := range names {
			m.watch(ws, name).armed = true
		}
	})
}

// watch makes the watch of a scope, or resets it. It is armed once the scope runs.
func (m *Manager) watch(ws *watches, name string) *watch {
	w := ws.units[name]
	if w == nil {
		w = &watch{name: name, path: unitPath(name)}
		ws.units[name], ws.byPath[w.path] = w, w
		for _, rule := range w.rules() {
			m.match("AddMatch", rule)
		}
	}
	w.job, w.armed, w.asked, w.result, w.id = make(chan string, 1), false, false, "", ""
	return w
}

// Unwatch ends what Watch and Start have begun.
func (m *Manager) Unwatch(ctx context.Context, name string) error {
	return m.do(ctx, func(ws *watches) {
		w := ws.units[name]
		if w == nil {
			return
		}
		for _, rule := range w.rules() {
			m.match("RemoveMatch", rule)
		}
		delete(ws.units, name)
		delete(ws.byPath, w.path)
	})
}

// rules are as narrow as can be: systemd tells of every unit of the user, and each signal that gets
// through wakes us.
func (w *watch) rules() []string {
	from := "type='signal',sender='" + systemdName + "',"
	return []string{
		from + "interface='" + managerIface + "',member='UnitRemoved',arg0='" + w.name + "'",
		from + "interface='" + propertiesIface + "',member='PropertiesChanged',path='" + string(w.path) + "'",
	}
}

// jobRule is for the end of the scope's start job.
func (w *watch) jobRule() string {
	return "type='signal',sender='" + systemdName + "',interface='" + managerIface + "',member='JobRemoved',arg2='" + w.name + "'"
}

// ErrClosed is returned when the connection to the bus is lost.
var ErrClosed = errors.New("the connection to the bus is lost")

// do runs f on the goroutine that owns the watches, and waits for it.
func (m *Manager) do(ctx context.Context, f func(*watches)) error {
	done := make(chan struct{})
	select {
	case m.door <- func(ws *watches) { f(ws); close(done) }:
		<-done
		return nil
	case <-m.closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Start starts a scope and returns once its processes are in it. From then on Events tells of it.
func (m *Manager) Start(ctx context.Context, s Scope) (Started, error) {
	ctx, cancel := deadline.Context(ctx, jobTimeout)
	defer cancel()
	var w *watch
	err := m.do(ctx, func(ws *watches) {
		w = m.watch(ws, s.Name)
		m.match("AddMatch", w.jobRule())
	})
	if err != nil {
		return Started{}, fmt.Errorf("cannot start %q: %w", s.Name, err)
	}
	started, err := m.start(ctx, s, w)
	if err != nil {
		_ = m.Unwatch(ctx, s.Name)
		return Started{}, fmt.Errorf("cannot start %q: %w", s.Name, err)
	}
	return started, nil
}

func (m *Manager) start(ctx context.Context, s Scope, w *watch) (Started, error) {
	defer m.match("RemoveMatch", w.jobRule())
	job, err := m.startTransient(ctx, s)
	if err != nil {
		return Started{}, err
	}
	failpoint.Hit("start.scope-asked")
	select {
	case result := <-w.job:
		if result != "done" {
			return Started{}, fmt.Errorf("its start job ended with %q", result)
		}
	case <-m.closed:
		return Started{}, ErrClosed
	case <-ctx.Done():
		m.callOff(ctx, job, w)
		return Started{}, fmt.Errorf("its start job was not done in time: %w", ctx.Err())
	}
	// A process that had died already is accepted with "done", so the kernel is asked.
	var group string
	for _, pid := range s.PIDs {
		var err error
		if group, err = proc.Cgroup(pid); err != nil {
			return Started{}, fmt.Errorf("process %d is gone: %w", pid, err)
		}
		if !strings.HasSuffix(group, "/"+s.Name) {
			return Started{}, fmt.Errorf("process %d is in control group %q", pid, group)
		}
	}
	if err := m.do(ctx, func(*watches) { w.group = group }); err != nil {
		return Started{}, err
	}
	id, err := m.invocationID(ctx, s.Name)
	if err == nil {
		err = m.do(ctx, func(*watches) { w.id = id })
	}
	return Started{InvocationID: id, ControlGroup: group}, err
}

// callOff ends a start job that nobody waits for any more: one that waits for other units, as a
// drop-in may have it, would keep the scope's name from being used again, and at last start a scope
// whose processes are gone. It waits for the job's end, which would be taken for that of the next
// one.
func (m *Manager) callOff(ctx context.Context, job dbus.ObjectPath, w *watch) {
	ctx, cancel := deadline.Context(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	_ = m.call(ctx, job, jobIface+".Cancel").Err // it may have ended
	select {
	case <-w.job:
	case <-m.closed:
	case <-ctx.Done():
	}
}

// startTransient queues the start job, and returns its path, "" where it has ended by now. Optional
// properties that systemd refuses are left out from then on; what is left of an earlier scope of
// this name that failed is cleared away.
func (m *Manager) startTransient(ctx context.Context, s Scope) (job dbus.ObjectPath, err error) {
	cleared := false
	for {
		var unknown map[string]bool
		if err := m.do(ctx, func(ws *watches) { unknown = cloneSet(ws.unknown) }); err != nil {
			return "", err
		}
		err := m.call(ctx, systemdPath, managerIface+".StartTransientUnit", s.Name, "fail", m.properties(s, unknown), []auxUnit{}).Store(&job)
		var e dbus.Error
		switch {
		case err == nil || !errors.As(err, &e):
			return job, err
		case isAway(err):
			if placed, err := m.placed(ctx, s); placed || err != nil {
				return "", err
			}
			continue
		case e.Name == "org.freedesktop.systemd1.UnitExists" && !cleared:
			cleared = true
			if err := m.ResetFailed(ctx, s.Name); err != nil {
				return "", err
			}
			continue
		}
		name := refusedProperty(e, s.Optional, unknown)
		if name == "" {
			return "", m.whichProperty(ctx, err, s.Properties)
		}
		if err := m.do(ctx, func(ws *watches) { ws.unknown[name] = true }); err != nil {
			return "", err
		}
	}
}

// placed finds out whether a systemd that was executed again before it could answer has started the
// scope all the same.
func (m *Manager) placed(ctx context.Context, s Scope) (bool, error) {
	if _, err := m.List(ctx, s.Name); err != nil { // it is back, and has done what it had to do
		return false, err
	}
	for _, pid := range s.PIDs {
		if group, err := proc.Cgroup(pid); err != nil || !strings.HasSuffix(group, "/"+s.Name) {
			return false, nil //nolint:nilerr // a process that is gone is in no scope
		}
	}
	return true, m.do(ctx, func(ws *watches) {
		if w := ws.units[s.Name]; w != nil {
			w.armed = true
			select {
			case w.job <- "done":
			default:
			}
		}
	})
}

type auxUnit struct {
	Name       string
	Properties []Property
}

func (m *Manager) properties(s Scope, unknown map[string]bool) []Property {
	pids := make([]uint32, len(s.PIDs))
	for i, pid := range s.PIDs {
		pids[i] = uint32(pid)
	}
	props := []Property{
		{"PIDs", dbus.MakeVariant(pids)},
		// systemd then asks us to stop the scope instead of killing it, for as long as this connection
		// lives.
		{"Controller", dbus.MakeVariant(m.conn.Names()[0])},
	}
	props = append(props, s.Properties...)
	for _, p := range s.Optional {
		if !unknown[p.Name] {
			props = append(props, p)
		}
	}
	return props
}

// refusedProperty returns which of the optional properties the error is about, "" if none.
// systemd's message names it.
func refusedProperty(e dbus.Error, optional []Property, unknown map[string]bool) string {
	if len(e.Body) == 0 {
		return ""
	}
	text, _ := e.Body[0].(string)
	for _, p := range optional {
		if !unknown[p.Name] && strings.Contains(text, p.Name) {
			return p.Name
		}
	}
	return ""
}

func cloneSet(set map[string]bool) map[string]bool {
	c := make(map[string]bool, len(set))
	for name := range set {
		c[name] = true
	}
	return c
}

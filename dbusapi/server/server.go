// Package server converts calls on the bus to calls of the supervisor, and what the supervisor
// publishes to properties and signals.
//
// It does not use godbus's export table, which crashes if a client introspects while objects are
// added and removed. The handler here has no table: it looks up the session of a path for each
// call.
package server

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/deadline"
	"github.com/corrald/corral/internal/journal"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/supervisor"
)

// callLimit limits the duration of every call, in case an event that it waits for never occurs. The
// longest calls in practice are stops with a long grace time.
const callLimit = 15 * time.Minute

// Info describes the daemon for the properties of the Manager, and contains its operations that are
// not part of the supervisor.
type Info struct {
	Version  string
	Slice    string
	StateDir string
	Reload   func() error // reloads the configuration
	// SetNotifications enables or disables desktop notifications. The daemon publishes the result with
	// NotificationsChanged.
	SetNotifications func(on bool) error
	// ConfirmNotification records that another machine has shown a notification of the session, about
	// what the session has needed attention for since that time.
	ConfirmNotification func(id string, since time.Time) error
	// StartAtLogin is called on its own goroutine after a session was created, and with requested set
	// after a session was configured to start at login. It may be nil.
	StartAtLogin func(requested bool)
	CallBegins   func()       // is called for each call that is admitted, and must not block; it may be nil
	Log          *journal.Log // controlled by org.freedesktop.LogControl1
}

// Server serves the contract on one connection to the bus.
type Server struct {
	info            Info
	report          func(error) // logs errors that are not returned to a caller
	sup             *supervisor.Supervisor
	conn            *bus.Guarded
	batches         chan batch
	tails           map[string]<-chan struct{} // by order key: done of the last ticket; of the reading goroutine
	clients         map[string]*client         // by unique name; of the reading goroutine
	gate            *gate                      // counts the pending calls
	tickets         sync.Map                   // *dbus.Message → *ticket, from the reading goroutine to that of the call
	ready           chan struct{}              // closed once sup is set
	hasFileProblems atomic.Bool                // a problem is solved by removing a file
	saving          *saveResult                // of the last batch, until it is published; of the event loop
}

// New returns a Server. It answers calls after Connect and Serve. report is called from any
// goroutine with errors that are not returned to a caller.
func New(info Info, report func(error)) *Server {
	return &Server{
		info:    info,
		report:  report,
		batches: make(chan batch),
		tails:   map[string]<-chan struct{}{},
		clients: map[string]*client{},
		gate:    newGate(),
		ready:   make(chan struct{}),
	}
}

// startAtLogin makes systemd start the daemon at login. It does not wait for that.
func (s *Server) startAtLogin(requested bool) {
	if s.info.StartAtLogin != nil {
		go s.info.StartAtLogin(requested)
	}
}

// Connect connects to the bus at address. It returns ErrNameTaken if another corrald owns the bus
// name, because that process supervises the sessions. No calls are answered before Serve. The
// context limits only the time for connecting.
func (s *Server) Connect(ctx context.Context, address string) error {
	conn, err := bus.DialGuarded(ctx, address, s.order, dbus.WithHandler(s))
	if err != nil {
		return err
	}
	s.conn = conn
	if pid := s.owner(ctx); pid > 0 {
		_ = conn.Close()
		return fmt.Errorf("%w, as process %d", ErrNameTaken, pid)
	}
	go s.emit()
	return nil
}

// owner returns the id of the process that owns the bus name, 0 if there is none. It checks that
// the process is running, because the bus may still report one that has just exited.
func (s *Server) owner(ctx context.Context) (pid int) {
	var owner uint32
	const method = "org.freedesktop.DBus.GetConnectionUnixProcessID"
	if s.conn.BusObject().CallWithContext(ctx, method, 0, dbusapi.BusName).Store(&owner) != nil {
		return 0
	}
	if status, err := proc.Stat(int(owner)); err != nil || status.State == 'Z' {
		return 0
	}
	return int(owner)
}

// ErrNameTaken is returned when another process owns the bus name.
var ErrNameTaken = fmt.Errorf("another corrald owns %s", dbusapi.BusName)

// Serve acquires the bus name, answers calls with operations of sup from now on, and sends signals
// for what sup publishes. It has to be called before sup.Run: what sup has published before Serve
// is complete then, so that no client reads a state whose change is not announced to it.
func (s *Server) Serve(sup *supervisor.Supervisor) error {
	// The field belongs to the event loop, which must not run yet: otherwise this panics, or the race
	// detector reports it.
	if s.saving != nil {
		panic("Serve is called while changes are being saved")
	}
	s.sup = sup
	close(s.ready)
	reply, err := s.conn.RequestName(dbusapi.BusName, dbus.NameFlagDoNotQueue)
	if err != nil {
		return fmt.Errorf("cannot own %s: %w", dbusapi.BusName, err)
	}
	if reply != dbus.RequestNameReplyPrimaryOwner {
		return ErrNameTaken
	}
	return nil
}

// Done is closed when the connection to the bus is lost.
func (s *Server) Done() <-chan struct{} { return s.conn.Context().Done() }

// closeTimeout limits the time for which Close waits until the bus has accepted the last replies
// and signals.
const closeTimeout = 2 * time.Second

// Close closes the connection after the last replies and signals have been sent. It must be called
// after the supervisor has ended, so that pending calls end; new calls are refused.
func (s *Server) Close() error {
	s.gate.shut()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		<-s.gate.empty
		s.readView(func(*view) {})
	}()
	limit, cancel := deadline.Context(context.Background(), closeTimeout)
	defer cancel()
	select {
	case <-sent:
	case <-s.Done():
	case <-limit.Done():
	}
	return s.conn.Close()
}

// LookupObject implements dbus.Handler: it returns the object at a path. For a path without an
// object, it returns an object that refuses all calls, because the refusal needs the message: the
// next call may wait for its ticket.
func (s *Server) LookupObject(path dbus.ObjectPath) (dbus.ServerObject, bool) {
	<-s.ready
	o := &object{server: s, path: path}
	id, isSession := dbusapi.SessionID(path)
	switch {
	case isSession:
		o.session, o.interfaces = id, sessionInterfaces // each method checks whether the session exists
	case path == dbusapi.ManagerPath:
		o.interfaces = managerInterfaces
	case path == logControlPath:
		o.interfaces = logControlInterfaces
	case path == dbusapi.SessionsPath, childNames[path] != nil:
		o.interfaces = folderInterfaces
	default:
		o.missing = newError(dbusapi.UnknownObject, fmt.Sprintf("no such object: %s", path))
	}
	return o, true
}

// object is an object on the bus for the duration of one call.
type object struct {
	server     *Server
	path       dbus.ObjectPath
	session    string // id of the session, "" if the object is not a session
	interfaces map[string]methods
	missing    error // the error of all calls if the object does not exist
	client     *client
	caller     uint32 // id of the calling process, 0 until it was determined
}

// methods are the methods of an interface, by name.
type methods map[string]*method

// method is one method of the contract.
type method struct {
	in   dbus.Signature // of its arguments
	call func(ctx context.Context, o *object, msg *dbus.Message) ([]any, error)
}

// LookupInterface implements dbus.ServerObject. name is "" in a call that specifies no interface.
func (o *object) LookupInterface(name string) (dbus.Interface, bool) {
	return &iface{o, name}, true
}

type iface struct {
	object *object
	name   string
}

// LookupMethod implements dbus.Interface.
func (i *iface) LookupMethod(name string) (dbus.Method, bool) {
	v := &invocation{object: i.object}
	methods, known := i.object.interfaces[i.name]
	v.method = methods[name]
	for _, methods := range i.object.interfaces {
		if m := methods[name]; i.name == "" && m != nil {
			v.method = m
		}
	}
	switch {
	case i.object.missing != nil:
		v.refusal = i.object.missing
	case !known && i.name != "":
		v.refusal = newError(dbusapi.UnknownInterface, fmt.Sprintf("%s has no such interface: %s", i.object.path, i.name))
	case v.method == nil:
		v.refusal = newError(dbusapi.UnknownMethod, fmt.Sprintf("%s has no such method: %s", i.object.path, name))
	}
	return v, true
}

// Package server turns calls on the bus into calls of the supervisor, and what the supervisor
// publishes into properties and signals.
//
// godbus's own export table is not used: it crashes when a client introspects while objects come
// and go. The handler here keeps no table; it asks the supervisor whether the session of a path is
// there.
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

// callLimit bounds every call, in case that what it waits for never comes; the longest real one is
// a stop with its grace.
const callLimit = 15 * time.Minute

// Info is what the Manager tells of the daemon itself.
type Info struct {
	Version  string
	Slice    string
	StateDir string
	Reload   func() error // reads the configuration again
	// SetNotifications turns desktop notifications on or off. NotificationsChanged tells what they
	// are.
	SetNotifications func(on bool) error
	// StartAtLogin is called, on a goroutine of its own, after a session was created, and after one
	// was to begin at login (wished). nil does nothing.
	StartAtLogin func(wished bool)
	Log          *journal.Log // what org.freedesktop.LogControl1 is about
}

// Server serves the contract on one connection to the bus.
type Server struct {
	info    Info
	report  func(error) // of what no caller can be told
	sup     *supervisor.Supervisor
	conn    *bus.Guarded
	batches chan batch
	tails   map[string]<-chan struct{} // by order key: the last call's end; belongs to the connection's reader
	clients map[string]*client         // by unique name; belongs to the connection's reader
	gate    *gate                      // what calls come in through
	tickets sync.Map                   // *dbus.Message → *ticket, from the reader to the goroutine of the call
	ready   chan struct{}              // closed once sup is set
	mends   atomic.Bool                // a problem is over once a person has taken a file away
}

// New makes a Server. Connect and Serve make it answer. Report is told what no caller can be told;
// it is called from any goroutine.
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

// startAtLogin has the daemon started at login; whoever calls does not wait for that.
func (s *Server) startAtLogin(wished bool) {
	if s.info.StartAtLogin != nil {
		go s.info.StartAtLogin(wished)
	}
}

// Connect connects to the bus at address, unless another corrald serves there: what that supervises
// is not to be touched. Nothing is answered before Serve. The context bounds the connecting.
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

// owner returns the process that owns the bus name, 0 for none. The bus may still name one that has
// just ended.
func (s *Server) owner(ctx context.Context) (pid int) {
	var of uint32
	err := s.conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.GetConnectionUnixProcessID", 0, dbusapi.BusName).Store(&of)
	if err != nil {
		return 0
	}
	if status, err := proc.Stat(int(of)); err != nil || status.State == 'Z' {
		return 0
	}
	return int(of)
}

// ErrNameTaken is returned when another process owns the bus name.
var ErrNameTaken = fmt.Errorf("another corrald owns %s", dbusapi.BusName)

// Serve answers calls on sup's behalf from now on, under the bus name, and emits what is published.
func (s *Server) Serve(sup *supervisor.Supervisor) error {
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

// closeTimeout bounds how long the last answers and signals may take to be read by the bus.
const closeTimeout = 2 * time.Second

// Close ends the connection, once what was to be said is said. The supervisor has ended, so that
// calls end, too; those that come now are refused.
func (s *Server) Close() error {
	s.gate.shut()
	said := make(chan struct{})
	go func() {
		defer close(said)
		<-s.gate.empty
		s.look(func(*view) {})
	}()
	limit, cancel := deadline.Context(context.Background(), closeTimeout)
	defer cancel()
	select {
	case <-said:
	case <-s.Done():
	case <-limit.Done():
	}
	return s.conn.Close()
}

// LookupObject finds the object at a path: it implements dbus.Handler. What is not there is found
// too, and refuses when its method is called: only then is the message at hand, and with it the
// ticket that the next call may wait for.
func (s *Server) LookupObject(path dbus.ObjectPath) (dbus.ServerObject, bool) {
	<-s.ready
	o := &object{server: s, path: path}
	id, isSession := dbusapi.SessionID(path)
	switch {
	case isSession:
		o.session, o.interfaces = id, sessionInterfaces // whether it is there is asked by what is done with it
	case path == dbusapi.ManagerPath:
		o.interfaces = managerInterfaces
	case path == logControlPath:
		o.interfaces = logControlInterfaces
	case path == dbusapi.SessionsPath, children[path] != nil:
		o.interfaces = folderInterfaces
	default:
		o.lost = answer(dbusapi.UnknownObject, fmt.Sprintf("no such object: %s", path))
	}
	return o, true
}

// object is one object for the time of one call.
type object struct {
	server     *Server
	path       dbus.ObjectPath
	session    string // id, "" if the object is none
	interfaces map[string]methods
	lost       error // why nothing can be called, nil if the object is there
}

// methods is an interface: what it can, by name.
type methods map[string]*method

// method is one method of the contract.
type method struct {
	in, out dbus.Signature
	call    func(ctx context.Context, o *object, msg *dbus.Message) ([]any, error)
}

// LookupInterface implements dbus.ServerObject. A call may leave the interface out.
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
	case i.object.lost != nil:
		v.refusal = i.object.lost
	case !known && i.name != "":
		v.refusal = answer(dbusapi.UnknownInterface, fmt.Sprintf("%s has no such interface: %s", i.object.path, i.name))
	case v.method == nil:
		v.refusal = answer(dbusapi.UnknownMethod, fmt.Sprintf("%s has no such method: %s", i.object.path, name))
	}
	return v, true
}

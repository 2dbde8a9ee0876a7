package client

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/bus"
)

// Event is a signal that Watch has received: one of the types below.
type Event interface{ event() }

// SessionChanged contains the changed properties of a session.
type SessionChanged struct {
	ID          string
	Properties  Properties
	Invalidated []string // properties that have changed; their new values are not sent
}

// ManagerChanged contains the changed properties of the daemon itself. Host is the name of its host
// for a Client of ConnectHosts.
type ManagerChanged struct {
	Host       string
	Properties Properties
}

// SessionNew reports that a session was created, SessionRemoved that it was removed.
type (
	SessionNew     struct{ ID string }
	SessionRemoved struct{ ID string }
)

// StateChanged reports that the State of a session has changed. It follows the SessionChanged
// event. Details contains Result, ExecMainCode, ExecMainStatus and Reason.
type StateChanged struct {
	ID, Old, New string
	Details      Properties
}

// AttentionRequested reports that a session needs a person.
type AttentionRequested struct{ ID, Reason string }

// DaemonGone reports that the daemon has left the bus, DaemonBack that a daemon is running again.
// After DaemonBack, all state of its host must be read again. Host is its name for a Client of
// ConnectHosts, and Err is why the host cannot be reached, nil if it can.
type (
	DaemonGone struct {
		Host string
		Err  error
	}
	DaemonBack struct{ Host string }
)

func (SessionChanged) event()     {}
func (ManagerChanged) event()     {}
func (SessionNew) event()         {}
func (SessionRemoved) event()     {}
func (StateChanged) event()       {}
func (AttentionRequested) event() {}
func (DaemonGone) event()         {}
func (DaemonBack) event()         {}

// Watch subscribes to the signals of the Manager and to the property changes of the sessions with
// these ids. Without ids, it subscribes to the property changes of all sessions and of the Manager.
// It returns once the bus has registered the subscription: changes after a later read are not
// missed. Events arrive in the order in which they were sent. The channel is closed when ctx is
// done or the connection is lost.
//
// A Client of ConnectHosts connects again to a host that was lost, and reports that by DaemonGone
// and DaemonBack. Watch does not wait longer than two seconds for a host if there are others.
func (c *Client) Watch(ctx context.Context, ids ...string) (<-chan Event, error) {
	if c.hosts != nil {
		return c.watchHosts(ctx, ids)
	}
	rules := []string{signalRule + "interface='" + dbusapi.ManagerInterface + "'"}
	for _, id := range ids {
		rules = append(rules, changesRule+"path='"+string(dbusapi.SessionPath(id))+"'")
	}
	if len(ids) == 0 {
		rules = append(rules, changesRule+"path_namespace='"+string(dbusapi.ManagerPath)+"'")
	}
	return c.watch(ctx, rules)
}

// WatchManager subscribes to the property changes of the Manager alone, as Watch does.
func (c *Client) WatchManager(ctx context.Context) (<-chan Event, error) {
	return c.watch(ctx, []string{changesRule + "path='" + string(dbusapi.ManagerPath) + "'"})
}

// Beginnings of match rules.
const (
	signalRule  = "type='signal',sender='" + dbusapi.BusName + "',"
	changesRule = signalRule + "interface='org.freedesktop.DBus.Properties',member='PropertiesChanged',"
)

func (c *Client) watch(ctx context.Context, rules []string) (<-chan Event, error) {
	signals := make(chan *dbus.Signal, 64) // godbus queues further signals, in order
	c.conn.Signal(signals)
	owner, err := c.subscribe(ctx, rules)
	if err != nil {
		c.conn.RemoveSignal(signals)
		return nil, fmt.Errorf("cannot subscribe to signals: %w", err)
	}
	w := &watch{signals: signals, events: make(chan Event), daemon: owner, processed: c.processedSignals}
	go func() {
		w.run(ctx)
		c.conn.RemoveSignal(signals)
	}()
	return w.events, nil
}

func (c *Client) subscribe(ctx context.Context, rules []string) (*bus.Owner, error) {
	for _, rule := range rules {
		if err := c.bus(ctx, "AddMatch", []any{rule}); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return bus.WatchOwner(ctx, c.conn, dbusapi.BusName)
}

// bus calls a method of the bus driver.
func (c *Client) bus(ctx context.Context, method string, args []any, results ...any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus."+method, 0, args...).Store(results...)
}

// watch converts signals to events.
type watch struct {
	signals chan *dbus.Signal
	events  chan Event
	daemon  *bus.Owner

	processed *atomic.Int64 // see boundedSignals; nil on a local connection
}

func (w *watch) run(ctx context.Context) {
	defer close(w.events)
	for {
		select {
		case <-ctx.Done():
			return
		case signal, ok := <-w.signals:
			if !ok {
				return
			}
			if event := w.event(signal); event != nil {
				select {
				case w.events <- event:
				case <-ctx.Done():
					return
				}
			}
			if w.processed != nil {
				w.processed.Store(int64(signal.Sequence))
			}
		}
	}
}

// event returns the event of a signal, or nil if the signal is malformed or not from the daemon.
func (w *watch) event(signal *dbus.Signal) Event {
	if w.daemon.Update(signal) {
		if w.daemon.UniqueName() == "" {
			return DaemonGone{}
		}
		return DaemonBack{}
	}
	if !w.daemon.Sent(signal) {
		return nil
	}
	if signal.Name == "org.freedesktop.DBus.Properties.PropertiesChanged" {
		return propertiesChanged(signal)
	}
	member, ok := strings.CutPrefix(signal.Name, dbusapi.ManagerInterface+".")
	if !ok {
		return nil
	}
	return managerSignal(member, signal.Body)
}

func propertiesChanged(signal *dbus.Signal) Event {
	var iface string
	var e SessionChanged
	if dbus.Store(signal.Body, &iface, &e.Properties, &e.Invalidated) != nil {
		return nil
	}
	if signal.Path == dbusapi.ManagerPath && iface == dbusapi.ManagerInterface {
		return ManagerChanged{Properties: e.Properties}
	}
	id, ok := dbusapi.SessionID(signal.Path)
	if !ok || iface != dbusapi.SessionInterface {
		return nil
	}
	e.ID = id
	return e
}

func managerSignal(member string, body []any) Event {
	var id, text, newState string
	var path dbus.ObjectPath
	var details Properties
	switch member {
	case "SessionNew":
		if dbus.Store(body, &id, &path) == nil {
			return SessionNew{id}
		}
	case "SessionRemoved":
		if dbus.Store(body, &id, &path) == nil {
			return SessionRemoved{id}
		}
	case "SessionStateChanged":
		if dbus.Store(body, &id, &path, &text, &newState, &details) == nil {
			return StateChanged{ID: id, Old: text, New: newState, Details: details}
		}
	case "AttentionRequested":
		if dbus.Store(body, &id, &path, &text) == nil {
			return AttentionRequested{ID: id, Reason: text}
		}
	}
	return nil
}

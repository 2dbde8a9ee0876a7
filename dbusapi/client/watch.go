package client

import (
	"context"
	"fmt"
	"strings"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/bus"
)

// Event is what Watch tells of: one of the types below.
type Event interface{ event() }

// SessionChanged tells new values of a session's properties.
type SessionChanged struct {
	ID          string
	Properties  Properties
	Invalidated []string // changed, the value is to be asked for
}

// ManagerChanged tells new values of the daemon's own properties.
type ManagerChanged struct{ Properties Properties }

// SessionNew tells that a session was created, SessionRemoved that it was forgotten.
type (
	SessionNew     struct{ ID string }
	SessionRemoved struct{ ID string }
)

// StateChanged tells that a session's State changed; it comes after the SessionChanged. Details has
// Result, ExecMainCode, ExecMainStatus and Reason.
type StateChanged struct {
	ID, Old, New string
	Details      Properties
}

// AttentionRequested tells that a session wants a person.
type AttentionRequested struct{ ID, Reason string }

// DaemonGone tells that the daemon left the bus; DaemonBack, that there is one again, after which
// everything is to be read anew.
type (
	DaemonGone struct{}
	DaemonBack struct{}
)

func (SessionChanged) event()     {}
func (ManagerChanged) event()     {}
func (SessionNew) event()         {}
func (SessionRemoved) event()     {}
func (StateChanged) event()       {}
func (AttentionRequested) event() {}
func (DaemonGone) event()         {}
func (DaemonBack) event()         {}

// Watch subscribes to the daemon's signals: those of the Manager, and the property changes of the
// sessions with these ids (of all, and of the Manager, if none is named). It returns once the bus
// has the subscription, so what is read afterwards misses nothing. Events come in the order in
// which they were sent; the channel is closed when ctx ends or the connection is lost.
func (c *Client) Watch(ctx context.Context, ids ...string) (<-chan Event, error) {
	signals := make(chan *dbus.Signal, 64) // what does not fit waits in godbus's queue, in order
	c.conn.Signal(signals)
	owner, err := c.subscribe(ctx, ids)
	if err != nil {
		c.conn.RemoveSignal(signals)
		return nil, fmt.Errorf("cannot subscribe to signals: %w", err)
	}
	w := &watch{signals: signals, events: make(chan Event), daemon: owner}
	go func() {
		w.run(ctx)
		c.conn.RemoveSignal(signals)
	}()
	return w.events, nil
}

func (c *Client) subscribe(ctx context.Context, ids []string) (*bus.Owner, error) {
	rules := []string{
		"type='signal',sender='" + dbusapi.BusName + "',interface='" + dbusapi.ManagerInterface + "'",
	}
	changes := "type='signal',sender='" + dbusapi.BusName + "',interface='org.freedesktop.DBus.Properties',member='PropertiesChanged',"
	for _, id := range ids {
		rules = append(rules, changes+"path='"+string(dbusapi.SessionPath(id))+"'")
	}
	if len(ids) == 0 {
		rules = append(rules, changes+"path_namespace='"+string(dbusapi.ManagerPath)+"'")
	}
	for _, rule := range rules {
		if err := c.bus(ctx, "AddMatch", []any{rule}); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return bus.WatchOwner(ctx, c.conn, dbusapi.BusName)
}

// bus calls a method of the bus itself.
func (c *Client) bus(ctx context.Context, method string, args []any, results ...any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus."+method, 0, args...).Store(results...)
}

// watch turns signals into events.
type watch struct {
	signals chan *dbus.Signal
	events  chan Event
	daemon  *bus.Owner
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
			event := w.event(signal)
			if event == nil {
				continue
			}
			select {
			case w.events <- event:
			case <-ctx.Done():
				return
			}
		}
	}
}

// event returns what a signal tells, nil if it is none of ours or malformed.
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
		return ManagerChanged{e.Properties}
	}
	id, ok := dbusapi.SessionID(signal.Path)
	if !ok || iface != dbusapi.SessionInterface {
		return nil
	}
	e.ID = id
	return e
}

func managerSignal(member string, body []any) Event {
	var id, text, after string
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
		if dbus.Store(body, &id, &path, &text, &after, &details) == nil {
			return StateChanged{ID: id, Old: text, New: after, Details: details}
		}
	case "AttentionRequested":
		if dbus.Store(body, &id, &path, &text) == nil {
			return AttentionRequested{ID: id, Reason: text}
		}
	}
	return nil
}

package server

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/supervisor"
)

// batch is what one turn of the loop publishes.
type batch struct {
	changes []supervisor.Change
	after   []func()
	manager properties // of the Manager, that do not follow from its sessions
	looks   []func(*view)
	untold  bool // nobody can know of us yet: who comes later asks for all objects
}

// Publish implements supervisor.Publisher: it hands the changes to the goroutine that emits them,
// which is always ready to take them.
func (s *Server) Publish(changes []supervisor.Change, after []func()) {
	b := batch{changes: changes, after: after, untold: true}
	select {
	case <-s.ready:
		b.untold = false
	default:
	}
	s.batches <- b
}

// PublishProblems implements supervisor.Publisher.
func (s *Server) PublishProblems(all []supervisor.Problem) {
	s.mends.Store(slices.ContainsFunc(all, func(p supervisor.Problem) bool { return p.Path != "" }))
	s.batches <- batch{manager: properties{"Problems": problemRows(all)}}
}

// maxWaiting is how many batches may wait for the bus before they are made one: then there are
// never more than there are sessions.
const maxWaiting = 256

// emit takes batches at once and emits them as fast as the bus reads.
func (s *Server) emit() {
	out := make(chan batch)
	go s.emitAll(out)
	var waiting []batch
	for {
		var next batch
		to := out
		if len(waiting) == 0 {
			to = nil
		} else {
			next = waiting[0]
		}
		select {
		case b := <-s.batches:
			if waiting = append(waiting, b); len(waiting) >= maxWaiting {
				waiting = merge(waiting)
			}
		case to <- next:
			waiting[0] = batch{}
			waiting = waiting[1:]
		}
	}
}

// merge makes one batch of those that anybody can be told of: of each session, what it was before
// the first and is after the last. Who was not read from for so long is told less often, not less
// truly.
func merge(waiting []batch) []batch {
	var untold []batch
	one := batch{manager: properties{}}
	at := map[string]int{} // by session: the change that later ones are taken into
	for _, b := range waiting {
		if b.untold {
			untold = append(untold, b)
			continue
		}
		for _, c := range b.changes {
			one.changes = mergeChange(one.changes, at, c)
		}
		maps.Copy(one.manager, b.manager)
		one.looks = append(one.looks, b.looks...)
		one.after = append(one.after, b.after...)
	}
	return append(untold, one)
}

func mergeChange(changes []supervisor.Change, at map[string]int, c supervisor.Change) []supervisor.Change {
	if c.New == nil { // another session may be given the id
		delete(at, c.Old.ID)
		return append(changes, c)
	}
	if i, earlier := at[c.New.ID]; earlier {
		changes[i].New = c.New
		return changes
	}
	at[c.New.ID] = len(changes)
	return append(changes, c)
}

// emitAll emits batch after batch, and lets look at what was told so far. It knows what the
// Manager's properties were when it last told of them.
func (s *Server) emitAll(batches <-chan batch) {
	v := &view{byID: map[string]*supervisor.Snapshot{}, manager: properties{}}
	told := counted(nil)
	for b := range batches {
		for _, c := range b.changes {
			v.apply(c)
			if !b.untold {
				s.emitState(c)
			}
		}
		if len(b.changes) > 0 {
			now := counted(v.sessions)
			if !b.untold {
				s.emitProperties(dbusapi.ManagerPath, dbusapi.ManagerInterface, changed(told, now))
			}
			told = now
		}
		maps.Copy(v.manager, b.manager)
		s.emitProperties(dbusapi.ManagerPath, dbusapi.ManagerInterface, b.manager)
		for _, c := range b.changes {
			if !b.untold {
				s.emitEvent(c)
			}
		}
		for _, look := range b.looks {
			look(v)
		}
		for _, f := range b.after {
			f()
		}
	}
}

// emitState tells what a session is now: by InterfacesAdded, PropertiesChanged or
// InterfacesRemoved.
func (s *Server) emitState(c supervisor.Change) {
	switch {
	case c.Old == nil:
		s.signal(dbusapi.ManagerPath, objectManagerInterface+".InterfacesAdded", dbusapi.SessionPath(c.New.ID),
			map[string]map[string]dbus.Variant{dbusapi.SessionInterface: sessionProperties(c.New).variants()})
	case c.New == nil:
		s.signal(dbusapi.ManagerPath, objectManagerInterface+".InterfacesRemoved", dbusapi.SessionPath(c.Old.ID), []string{dbusapi.SessionInterface})
	default:
		s.emitProperties(dbusapi.SessionPath(c.New.ID), dbusapi.SessionInterface, changed(sessionProperties(c.Old), sessionProperties(c.New)))
	}
}

// emitEvent tells what happened to a session. By then everything that follows from it was told: its
// properties, those of the others that changed with it, and the Manager's counts.
func (s *Server) emitEvent(c supervisor.Change) {
	switch {
	case c.Old == nil:
		s.signal(dbusapi.ManagerPath, dbusapi.ManagerInterface+".SessionNew", c.New.ID, dbusapi.SessionPath(c.New.ID))
	case c.New == nil:
		s.signal(dbusapi.ManagerPath, dbusapi.ManagerInterface+".SessionRemoved", c.Old.ID, dbusapi.SessionPath(c.Old.ID))
	default:
		s.emitStateChange(c)
		if wantsAnew(c.Old, c.New) {
			s.signal(dbusapi.ManagerPath, dbusapi.ManagerInterface+".AttentionRequested", c.New.ID, dbusapi.SessionPath(c.New.ID), c.New.Attention)
		}
	}
}

func (s *Server) emitStateChange(c supervisor.Change) {
	if c.Old.State == c.New.State {
		return
	}
	s.signal(dbusapi.ManagerPath, dbusapi.ManagerInterface+".SessionStateChanged", c.New.ID, dbusapi.SessionPath(c.New.ID), c.Old.State, c.New.State,
		map[string]dbus.Variant{
			"Result":         dbus.MakeVariant(c.New.Result),
			"ExecMainCode":   dbus.MakeVariant(c.New.ExecMainCode),
			"ExecMainStatus": dbus.MakeVariant(c.New.ExecMainStatus),
			"Reason":         dbus.MakeVariant(c.New.Reason),
		})
}

// wantsAnew returns whether the session wants a person, and for something else than before, or once
// more after a person has acknowledged it.
func wantsAnew(before, now *supervisor.Snapshot) bool {
	if now.Attention == "" || now.AttentionAcknowledged {
		return false
	}
	return before.AttentionAcknowledged ||
		now.Attention != before.Attention || now.AttentionSource != before.AttentionSource || now.AttentionMessage != before.AttentionMessage
}

// silent are the properties whose changes are not told, by their annotation in the contract; of the
// hidden ones it is told that they have changed, and not to what.
var (
	silent = map[string]bool{"LastActivityTimestamp": true, "ControlGroup": true}
	hidden = map[string]bool{"AttentionMessage": true, "StatusText": true}
)

// changed returns what is different in now.
func changed(before, now properties) properties {
	different := properties{}
	for name, value := range now {
		if !silent[name] && !reflect.DeepEqual(before[name], value) {
			different[name] = value
		}
	}
	return different
}

// emitProperties emits one PropertiesChanged for all of them; none if there are none.
func (s *Server) emitProperties(path dbus.ObjectPath, iface string, p properties) {
	if len(p) == 0 {
		return
	}
	values, invalidated := p.variants(), []string{}
	for name := range hidden {
		if _, there := values[name]; there {
			delete(values, name)
			invalidated = append(invalidated, name)
		}
	}
	s.signal(path, propertiesInterface+".PropertiesChanged", iface, values, invalidated)
}

func (s *Server) signal(path dbus.ObjectPath, name string, args ...any) {
	if err := s.conn.Emit(path, name, args...); err != nil && s.conn.Connected() {
		s.report(fmt.Errorf("cannot emit %s: %w", name, err))
	}
}

// ShuttingDownChanged tells that the machine, or the login session, is about to end, or is not any
// more.
func (s *Server) ShuttingDownChanged(on bool) {
	s.batches <- batch{manager: properties{"ShuttingDown": on}}
}

// LingeringChanged tells that the user lingers now, or does not any more.
func (s *Server) LingeringChanged(on bool) {
	s.batches <- batch{manager: properties{"Lingering": on}}
}

// NotificationsChanged tells that desktop notifications are sent from now on, or are not any more.
func (s *Server) NotificationsChanged(on bool) {
	s.batches <- batch{manager: properties{"Notifications": on}}
}

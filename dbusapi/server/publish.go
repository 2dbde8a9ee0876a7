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
	untold  bool       // nobody can know of us yet: who comes later asks for all objects
}

// Publish implements supervisor.Publisher: it hands the changes to the goroutine that emits them, which is always ready to take them.
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
	s.batches <- batch{manager: properties{"Problems": problemRows(all)}}
}

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
			waiting = append(waiting, b)
		case to <- next:
			waiting[0] = batch{}
			waiting = waiting[1:]
		}
	}
}

// emitAll emits batch after batch. It knows what the Manager's properties were when it last told of them.
func (s *Server) emitAll(batches <-chan batch) {
	shown := map[string]*supervisor.Snapshot{}
	told := counted(nil)
	for b := range batches {
		for _, c := range b.changes {
			if !b.untold {
				s.emitChange(c)
			}
			if c.New == nil {
				delete(shown, c.Old.ID)
			} else {
				shown[c.New.ID] = c.New
			}
		}
		if len(b.changes) > 0 {
			now := countsOf(shown)
			if !b.untold {
				s.emitProperties(dbusapi.ManagerPath, dbusapi.ManagerInterface, changed(told, now))
			}
			told = now
		}
		s.emitProperties(dbusapi.ManagerPath, dbusapi.ManagerInterface, b.manager)
		for _, f := range b.after {
			f()
		}
	}
}

func countsOf(shown map[string]*supervisor.Snapshot) properties {
	return counted(slices.Collect(maps.Values(shown)))
}

// emitChange emits what became of one session: PropertiesChanged before SessionStateChanged, InterfacesAdded before SessionNew.
func (s *Server) emitChange(c supervisor.Change) {
	switch {
	case c.Old == nil:
		path := dbusapi.SessionPath(c.New.ID)
		all := sessionProperties(c.New)
		s.send(dbusapi.ManagerPath, objectManagerInterface+".InterfacesAdded", path,
			map[string]map[string]dbus.Variant{dbusapi.SessionInterface: all.variants()})
		s.send(dbusapi.ManagerPath, dbusapi.ManagerInterface+".SessionNew", c.New.ID, path)
	case c.New == nil:
		path := dbusapi.SessionPath(c.Old.ID)
		s.send(dbusapi.ManagerPath, objectManagerInterface+".InterfacesRemoved", path, []string{dbusapi.SessionInterface})
		s.send(dbusapi.ManagerPath, dbusapi.ManagerInterface+".SessionRemoved", c.Old.ID, path)
	default:
		path := dbusapi.SessionPath(c.New.ID)
		s.emitProperties(path, dbusapi.SessionInterface, changed(sessionProperties(c.Old), sessionProperties(c.New)))
		if c.Old.State != c.New.State {
			s.send(dbusapi.ManagerPath, dbusapi.ManagerInterface+".SessionStateChanged", c.New.ID, path, c.Old.State, c.New.State,
				map[string]dbus.Variant{
					"Result":         dbus.MakeVariant(c.New.Result),
					"ExecMainCode":   dbus.MakeVariant(c.New.ExecMainCode),
					"ExecMainStatus": dbus.MakeVariant(c.New.ExecMainStatus),
					"Reason":         dbus.MakeVariant(c.New.Reason),
				})
		}
	}
}

// silent are the properties whose changes are not told, by their annotation in the contract; of the hidden ones it is told that they have changed,
// and not to what.
var (
	silent = map[string]bool{"LastActivityTimestamp": true, "ControlGroup": true}
	hidden = map[string]bool{"AttentionMessage": true}
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
	s.send(path, propertiesInterface+".PropertiesChanged", iface, values, invalidated)
}

func (s *Server) send(path dbus.ObjectPath, name string, args ...any) {
	if err := s.conn.Emit(path, name, args...); err != nil && s.conn.Connected() {
		s.report(fmt.Errorf("cannot emit %s: %w", name, err))
	}
}

// ShuttingDownChanged tells that the machine, or the login session, is about to end, or is not any more.
func (s *Server) ShuttingDownChanged(on bool) {
	s.batches <- batch{manager: properties{"ShuttingDown": on}}
}

// LingeringChanged tells that the user lingers now, or does not any more.
func (s *Server) LingeringChanged(on bool) {
	s.batches <- batch{manager: properties{"Lingering": on}}
}

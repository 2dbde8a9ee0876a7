package server

import (
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/supervisor"
)

// batch contains what one iteration of the event loop publishes.
type batch struct {
	changes []supervisor.Change
	after   []func()      // called when everything else has been sent
	manager properties    // changed properties of the Manager that do not depend on its sessions
	reads   []func(*view) // called with the view when the signals have been sent
	initial bool          // from before Serve: no signals are needed, since a new client reads all objects
	saved   chan struct{} // closed once the changes are saved; nil for a batch that is not from Prepare
	result  *saveResult   // to be read once saved is closed

	states, events []bus.Signal // of the changes, once prepared
}

// saveResult is the part of a batch that is known only once its changes are saved.
type saveResult struct {
	manager properties // the problems, if they have changed
	after   []func()   // called when everything else has been sent
}

// withResult returns the batch with the result of saving its changes, which has to be known.
func (b batch) withResult() batch {
	if b.result == nil {
		return b
	}
	manager := properties{}
	maps.Copy(manager, b.manager)
	maps.Copy(manager, b.result.manager)
	b.manager, b.after, b.result = manager, slices.Concat(b.after, b.result.after), nil
	return b
}

// Prepare implements supervisor.Publisher. It passes the changes to the goroutine that sends
// signals, which always accepts them immediately.
func (s *Server) Prepare(changes []supervisor.Change) (publish func(after []func())) {
	s.saving = &saveResult{}
	b := batch{changes: changes, initial: true, saved: make(chan struct{}), result: s.saving}
	select {
	case <-s.ready:
		b.initial = false
	default:
	}
	s.batches <- b
	return func(after []func()) {
		s.saving.after = after
		s.saving = nil
		close(b.saved)
		runtime.Gosched() // emitAll sends now, instead of when another thread has woken up
	}
}

// PublishProblems implements supervisor.Publisher.
func (s *Server) PublishProblems(all []supervisor.Problem) {
	s.hasFileProblems.Store(slices.ContainsFunc(all, func(p supervisor.Problem) bool { return p.Path != "" }))
	changed := properties{"Problems": problemRows(all)}
	if s.saving != nil {
		s.saving.manager = changed
	} else {
		s.batches <- batch{manager: changed}
	}
}

// maxPendingBatches is the number of batches waiting for the bus at which they are merged into one.
// A merged batch has at most one change for each session, and one for each removal.
const maxPendingBatches = 256

// emit accepts batches immediately and passes them to emitAll, which sends them as fast as the bus
// accepts them.
func (s *Server) emit() {
	out := make(chan batch)
	go s.emitAll(out)
	var pending []batch
	for {
		var next batch
		to := out
		if len(pending) == 0 {
			to = nil
		} else {
			next = pending[0]
		}
		select {
		case b := <-s.batches:
			if pending = append(pending, b); len(pending) >= maxPendingBatches {
				pending = merge(pending)
			}
		case to <- next:
			pending[0] = batch{}
			pending = pending[1:]
		}
	}
}

// merge merges all batches except the initial ones into one. For each session, it contains one
// change from the state before the first to the state after the last, and its removal. If the bus
// does not accept signals for a long time, clients therefore receive fewer signals, and these are
// still correct.
func merge(pending []batch) []batch {
	var initial []batch
	one := batch{manager: properties{}}
	at := map[string]int{} // by session: the index of the change with which later ones are merged
	for _, b := range pending {
		if b.initial {
			initial = append(initial, b)
			continue
		}
		for _, c := range b.changes {
			one.changes = mergeChange(one.changes, at, c)
		}
		if isClosed(b.saved) {
			b = b.withResult()
		}
		maps.Copy(one.manager, b.manager)
		one.reads = append(one.reads, b.reads...)
		one.after = append(one.after, b.after...)
		if b.saved != nil {
			one.saved, one.result = b.saved, b.result // those of earlier changes are closed
		}
	}
	return append(initial, one)
}

func mergeChange(changes []supervisor.Change, at map[string]int, c supervisor.Change) []supervisor.Change {
	if c.New == nil { // a new session may get the same id
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

// emitAll sends the signals of each batch, keeps the view up to date, and runs the functions that
// read it. A batch whose changes are still being saved does not delay the batches that arrive
// meanwhile: these precede it.
func (s *Server) emitAll(batches <-chan batch) {
	v := newView()
	var unsaved batch
	emitUnsaved := func() {
		s.emitBatch(unsaved, v)
		unsaved = batch{}
	}
	for {
		select {
		case b := <-batches:
			if isClosed(unsaved.saved) {
				emitUnsaved()
			}
			if b.saved == nil {
				s.emitBatch(b, v)
			} else {
				unsaved = s.encode(b)
			}
		case <-unsaved.saved:
			emitUnsaved()
		}
	}
}

// encode returns the batch with the signals of its changes.
func (s *Server) encode(b batch) batch {
	if !b.initial {
		for _, c := range b.changes {
			b.states = s.appendState(b.states, c)
			b.events = s.appendEvent(b.events, c)
		}
	}
	return b
}

// emitBatch sends the signals of a batch, updates the view, and runs the functions of the batch.
// Everything that follows from an event is sent before the event: the properties of its session,
// those of other sessions that have changed with it, and the counts of the Manager.
func (s *Server) emitBatch(b batch, v *view) {
	b = b.withResult()
	s.sendSignals(b.states)
	for _, c := range b.changes {
		v.apply(c)
	}
	if len(b.changes) > 0 {
		before := v.counts
		if v.counts = countProperties(v.sessions); !b.initial {
			s.emitOfManager(changed(before, v.counts))
		}
	}
	maps.Copy(v.manager, b.manager)
	s.emitOfManager(b.manager)
	s.sendSignals(b.events)
	for _, read := range b.reads {
		read(v)
	}
	for _, f := range b.after {
		f()
	}
}

// appendState appends the signal of the new state of a session: InterfacesAdded, PropertiesChanged
// or InterfacesRemoved.
func (s *Server) appendState(to []bus.Signal, c supervisor.Change) []bus.Signal {
	switch {
	case c.Old == nil:
		return s.append(to, dbusapi.ManagerPath, objectManagerInterface, "InterfacesAdded", dbusapi.SessionPath(c.New.ID),
			map[string]map[string]dbus.Variant{dbusapi.SessionInterface: sessionProperties(c.New).variants()})
	case c.New == nil:
		return s.append(to, dbusapi.ManagerPath, objectManagerInterface, "InterfacesRemoved",
			dbusapi.SessionPath(c.Old.ID), []string{dbusapi.SessionInterface})
	default:
		return s.appendProperties(to, dbusapi.SessionPath(c.New.ID), dbusapi.SessionInterface,
			snapshotFields.changed(c.Old, c.New))
	}
}

// appendEvent appends the signals about events of a session.
func (s *Server) appendEvent(to []bus.Signal, c supervisor.Change) []bus.Signal {
	event := func(member, id string, args ...any) {
		args = append([]any{id, dbusapi.SessionPath(id)}, args...)
		to = s.append(to, dbusapi.ManagerPath, dbusapi.ManagerInterface, member, args...)
	}
	switch {
	case c.Old == nil:
		event("SessionNew", c.New.ID)
	case c.New == nil:
		event("SessionRemoved", c.Old.ID)
	default:
		if c.Old.State != c.New.State {
			event("SessionStateChanged", c.New.ID, c.Old.State, c.New.State, map[string]dbus.Variant{
				"Result":         dbus.MakeVariant(c.New.Result),
				"ExecMainCode":   dbus.MakeVariant(c.New.ExecMainCode),
				"ExecMainStatus": dbus.MakeVariant(c.New.ExecMainStatus),
				"Reason":         dbus.MakeVariant(c.New.Reason),
			})
		}
		if hasNewAttention(c.Old, c.New) {
			event("AttentionRequested", c.New.ID, c.New.Attention)
		}
	}
	return to
}

// hasNewAttention reports whether the session needs a person for another reason than before, or
// again after a person has acknowledged it.
func hasNewAttention(before, now *supervisor.Snapshot) bool {
	if now.Attention == "" || now.AttentionAcknowledged {
		return false
	}
	return before.AttentionAcknowledged ||
		now.Attention != before.Attention ||
		now.AttentionSource != before.AttentionSource ||
		now.AttentionMessage != before.AttentionMessage
}

// published contains how changes of each property are announced. A name that both interfaces
// have is announced in the same way by both.
var published = func() map[string]dbusapi.Announcement {
	all := map[string]dbusapi.Announcement{}
	for _, p := range slices.Concat(dbusapi.ManagerProperties, dbusapi.SessionProperties) {
		all[p.Name] = p.Announced
	}
	return all
}()

// changed returns the properties in now that differ from before and are published.
func changed(before, now properties) properties {
	different := properties{}
	for name, value := range now {
		if published[name] != dbusapi.NotAnnounced && !reflect.DeepEqual(before[name], value) {
			different[name] = value
		}
	}
	return different
}

// appendProperties appends one PropertiesChanged signal for all of the properties, or none if there
// are no properties.
func (s *Server) appendProperties(to []bus.Signal, path dbus.ObjectPath, iface string, p properties) []bus.Signal {
	if len(p) == 0 {
		return to
	}
	values, invalidated := p.variants(), []string{}
	for name := range values {
		if published[name] == dbusapi.AnnouncedWithoutValue {
			delete(values, name)
			invalidated = append(invalidated, name)
		}
	}
	return s.append(to, path, propertiesInterface, "PropertiesChanged", iface, values, invalidated)
}

// append appends a signal. It reports one that cannot be encoded, and leaves it out.
func (s *Server) append(to []bus.Signal, path dbus.ObjectPath, iface, member string, args ...any) []bus.Signal {
	signal, err := bus.NewSignal(path, iface, member, args...)
	if err != nil {
		s.report(fmt.Errorf("cannot encode the signal %s.%s of %s: %w", iface, member, path, err))
		return to
	}
	return append(to, signal)
}

// emitOfManager sends one PropertiesChanged signal for properties of the Manager.
func (s *Server) emitOfManager(p properties) {
	s.sendSignals(s.appendProperties(nil, dbusapi.ManagerPath, dbusapi.ManagerInterface, p))
}

func (s *Server) sendSignals(signals []bus.Signal) {
	for _, signal := range signals {
		if err := s.conn.Emit(signal); err != nil && s.conn.Connected() {
			s.report(fmt.Errorf("cannot send a signal: %w", err))
		}
	}
}

// ShuttingDownChanged publishes whether the machine is shutting down or the login session is
// ending.
func (s *Server) ShuttingDownChanged(on bool) {
	s.batches <- batch{manager: properties{"ShuttingDown": on}}
}

// LingeringChanged publishes whether lingering is enabled for the user.
func (s *Server) LingeringChanged(on bool) {
	s.batches <- batch{manager: properties{"Lingering": on}}
}

// NotificationsChanged publishes whether desktop notifications are enabled.
func (s *Server) NotificationsChanged(on bool) {
	s.batches <- batch{manager: properties{"Notifications": on}}
}

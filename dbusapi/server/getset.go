package server

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/logind"
	"github.com/corrald/corral/supervisor"
)

// properties contains the values of an interface's properties, by name.
type properties map[string]any

// sessionProperties returns all properties of a session except those that are read on demand.
func sessionProperties(n *supervisor.Snapshot) properties {
	p := make(properties, len(snapshotFields))
	maps.Insert(p, snapshotFields.of(n))
	return p
}

func (s *Server) managerProperties(v *view) properties {
	p := properties{
		"Problems":       problemRows(nil),
		"Version":        s.info.Version,
		"Slice":          s.info.Slice,
		"StateDirectory": s.info.StateDir,
		"ShuttingDown":   false,
		"Lingering":      logind.IsLingering(),
		"Notifications":  false,
	}
	maps.Copy(p, countProperties(v.sessions))
	maps.Copy(p, v.manager)
	return p
}

func problemRows(problems []supervisor.Problem) []dbusapi.Problem {
	rows := make([]dbusapi.Problem, 0, len(problems))
	for _, p := range problems {
		rows = append(rows, dbusapi.Problem{Session: p.Session, Text: p.Text})
	}
	return rows
}

// countProperties returns the properties of the Manager that depend on its sessions.
func countProperties(all []*supervisor.Snapshot) properties {
	c := supervisor.CountOf(all)
	entries := []dbusapi.AttentionRow{}
	for _, n := range all {
		if n.Attention != "" && !n.AttentionAcknowledged {
			entries = append(entries, dbusapi.AttentionRow{ID: n.ID, Reason: n.Attention, Path: dbusapi.SessionPath(n.ID)})
		}
	}
	slices.SortFunc(entries, func(a, b dbusapi.AttentionRow) int { return strings.Compare(a.ID, b.ID) })
	return properties{
		"NSessions": c.Sessions, "NRunning": c.Running, "NWaiting": c.Waiting, "NTurnEnded": c.TurnsEnded,
		"NLimited": c.Limited,
		"NFailed":  c.Failed, "NStale": c.Stale, "NSuspended": c.Suspended, "NQueued": c.Queued,
		"Attention": entries,
	}
}

// properties returns the properties of an interface of the object, except those that are read on
// demand.
func (o *object) properties(v *view, iface string) (properties, error) {
	if o.session != "" {
		n, err := o.findIn(v)
		if err != nil {
			return nil, err
		}
		if iface == dbusapi.SessionInterface {
			return sessionProperties(n), nil
		}
	}
	if iface == dbusapi.ManagerInterface && o.path == dbusapi.ManagerPath {
		return o.server.managerProperties(v), nil
	}
	if iface == logControlInterface && o.path == logControlPath {
		return o.server.logProperties(), nil
	}
	if _, known := o.interfaces[iface]; known || iface == peerInterface {
		return properties{}, nil
	}
	return nil, newError(dbusapi.UnknownInterface, "no such interface: "+iface)
}

// readOnDemand returns the properties of the interface that are read on demand: the named one if it
// is one of them, or all if name is empty. Reading them may block, so it must not run on the
// goroutine that sends signals. It does not use the event loop, except for the Manager: if there
// are problems that a person can solve by removing a file, it makes the loop check them.
func (o *object) readOnDemand(iface, name string) (properties, error) {
	p, s := properties{}, o.server
	if iface == dbusapi.ManagerInterface && o.path == dbusapi.ManagerPath && s.hasFileProblems.Load() {
		_ = s.sup.CheckProblems() // while the daemon is exiting, no more problems are published
	}
	if iface != dbusapi.SessionInterface || o.session == "" {
		return p, nil
	}
	n, err := o.snapshot()
	if err != nil {
		return nil, err
	}
	if name == "" || onDemandFields.has(name) {
		maps.Insert(p, onDemandFields.of(n))
	}
	if name == "" || measuredFields.has(name) {
		m := s.sup.Measure(n)
		m.QueuePosition = s.queuePosition(n)
		maps.Insert(p, measuredFields.of(&m))
	}
	return p, nil
}

func getProperty(_ context.Context, o *object, msg *dbus.Message) ([]any, error) {
	name := msg.Body[1].(string)
	return o.replyProperties(msg, name, func(p properties) ([]any, error) {
		value, ok := p[name]
		if !ok {
			return nil, newError(dbusapi.UnknownProperty, "no such property: "+name)
		}
		return []any{dbus.MakeVariant(value)}, nil
	})
}

func getAllProperties(_ context.Context, o *object, msg *dbus.Message) ([]any, error) {
	return o.replyProperties(msg, "", func(p properties) ([]any, error) { return []any{p.variants()}, nil })
}

// replyProperties replies to a call with what f returns for the properties of the interface that
// the call names. They include the named property, or all, of those that are read on demand.
func (o *object) replyProperties(
	msg *dbus.Message, name string, f func(properties) ([]any, error),
) ([]any, error) {
	iface := msg.Body[0].(string)
	more, err := o.readOnDemand(iface, name)
	if err != nil {
		return nil, err
	}
	return o.server.replyInOrder(msg, func(v *view) ([]any, error) {
		p, err := o.properties(v, iface)
		if err != nil {
			return nil, err
		}
		maps.Copy(p, more)
		return f(p)
	})
}

func setProperty(_ context.Context, o *object, msg *dbus.Message) ([]any, error) {
	iface, name := msg.Body[0].(string), msg.Body[1].(string)
	var p properties
	var err error
	o.server.readView(func(v *view) { p, err = o.properties(v, iface) })
	if err != nil {
		return nil, err
	}
	_, known := p[name]
	isOnDemand := iface == dbusapi.SessionInterface && (onDemandFields.has(name) || measuredFields.has(name))
	switch {
	case !known && !isOnDemand:
		return nil, newError(dbusapi.UnknownProperty, "no such property: "+name)
	case name == "Notifications" && iface == dbusapi.ManagerInterface:
		return nil, o.server.setNotifications(msg.Body[2].(dbus.Variant))
	case iface == logControlInterface:
		if writable, err := o.server.setLogProperty(name, msg.Body[2].(dbus.Variant)); writable {
			return nil, err
		}
	}
	return nil, newError(dbusapi.PropertyReadOnly, "property "+name+" cannot be set")
}

func (s *Server) setNotifications(value dbus.Variant) error {
	var on bool
	if err := store(value, &on); err != nil {
		return newError(dbusapi.InvalidArgs, "Notifications "+err.Error())
	}
	return s.info.SetNotifications(on)
}

func (p properties) variants() map[string]dbus.Variant {
	v := make(map[string]dbus.Variant, len(p))
	for name, value := range p {
		v[name] = dbus.MakeVariant(value)
	}
	return v
}

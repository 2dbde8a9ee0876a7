package server

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/logind"
	"github.com/corrald/corral/internal/unitproperty"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

// properties contains the values of an interface's properties, by name.
type properties map[string]any

// sessionProperties returns all properties of a session except those that are read on demand.
func sessionProperties(n *supervisor.Snapshot) properties {
	return properties{
		"Id":                            n.ID,
		"Agent":                         n.Agent,
		"Command":                       orEmpty(n.Command),
		"WorkingDirectory":              n.WorkingDirectory,
		"Worktree":                      n.Worktree,
		"Repository":                    n.Repository,
		"Timestamp":                     usec(n.Created),
		"Description":                   n.Description,
		"Labels":                        labels(n.Labels),
		"OnLogin":                       n.OnLogin,
		"State":                         n.State,
		"Lifecycle":                     n.Lifecycle,
		"Activity":                      n.Activity,
		"Attention":                     n.Attention,
		"AttentionMessage":              n.AttentionMessage,
		"AttentionSource":               n.AttentionSource,
		"AttentionTimestamp":            usec(n.AttentionSince),
		"AttentionAcknowledged":         n.AttentionAcknowledged,
		"StatusText":                    n.StatusText,
		"ConversationId":                n.ConversationID,
		"Result":                        n.Result,
		"Reason":                        n.Reason,
		"EndCause":                      n.EndCause,
		"ExecMainCode":                  n.ExecMainCode,
		"ExecMainStatus":                n.ExecMainStatus,
		"ExecMainStartTimestamp":        usec(n.Started),
		"ExecMainExitTimestamp":         usec(n.Exited),
		"StateChangeTimestamp":          usec(n.StateChanged),
		"StateChangeTimestampMonotonic": uint64(n.ChangedMonotonic.Microseconds()),
		"SessionAlive":                  n.SessionAlive,
		"AgentAlive":                    n.AgentAlive,
		"Frozen":                        n.Frozen,
		"Resumable":                     n.Resumable,
		"Resumed":                       n.Resumed,
		"IdleHint":                      n.Idle,
		"IdleSinceHint":                 usec(n.IdleSince),
		"Unit":                          n.Unit,
		"MainPID":                       n.MainPID,
		"NRuns":                         n.NRuns,
		"ExpireTimestamp":               usec(n.Expires),
		"ControlGroup":                  n.ControlGroup,
	}
}

// onDemand contains the properties that are read on demand, with the values that they have if
// nothing is known. For those of the control group, this is systemd's value for "not available".
var onDemand = properties{
	"MemoryCurrent": ^uint64(0), "MemoryPeak": ^uint64(0), "CPUUsageNSec": ^uint64(0), "TasksCurrent": ^uint64(0),
	"ExecMainCPUUsageNSec": ^uint64(0), "ExecMainMaxRSS": ^uint64(0), "TotalRuntimeUSec": uint64(0),
	"Runs": []dbusapi.RunRow{}, "UnitProperties": []dbusapi.UnitProperty{},
	"LastActivityTimestamp": uint64(0), // its changes are not published
}

// isCounter reports whether a property is a counter of the session's control group.
func isCounter(name string) bool {
	return onDemand[name] == ^uint64(0) && !strings.HasPrefix(name, "ExecMain")
}

// counters returns the counters of the session's control group, none if it has no scope.
func (s *Server) counters(n *supervisor.Snapshot) map[string]uint64 {
	u, exists := s.sup.Usage(n)
	if !exists {
		return nil
	}
	return map[string]uint64{
		"CPUUsageNSec": u.CPUTime, "MemoryCurrent": u.Memory, "MemoryPeak": u.MemoryPeak, "TasksCurrent": u.Tasks,
	}
}

func runRows(runs []session.RunSummary) []dbusapi.RunRow {
	rows := make([]dbusapi.RunRow, 0, len(runs))
	for _, r := range runs {
		rows = append(rows, dbusapi.RunRow{
			ID: r.ID, Start: usec(r.Began), End: usec(r.Ended),
			Result: r.Result, Code: int32(r.Code), Status: int32(r.Status), Reason: r.Reason,
		})
	}
	return rows
}

// unitPropertyRows converts stored properties of a scope to the form that systemd expects. It omits
// those that it cannot decode.
func unitPropertyRows(saved []session.Property) []dbusapi.UnitProperty {
	all := []dbusapi.UnitProperty{}
	for _, p := range saved {
		if value, err := unitproperty.Decode(p.Signature, p.Value); err == nil {
			all = append(all, dbusapi.UnitProperty{Name: p.Name, Value: value})
		}
	}
	return all
}

// managerProperties returns all properties of the Manager.
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

// attention is an entry of the Manager's Attention property.
type attention struct {
	ID, Reason string
	Path       dbus.ObjectPath
}

// countProperties returns the properties of the Manager that depend on its sessions.
func countProperties(all []*supervisor.Snapshot) properties {
	c := supervisor.CountOf(all)
	entries := []attention{}
	for _, n := range all {
		if n.Attention != "" && !n.AttentionAcknowledged {
			entries = append(entries, attention{n.ID, n.Attention, dbusapi.SessionPath(n.ID)})
		}
	}
	slices.SortFunc(entries, func(a, b attention) int { return strings.Compare(a.ID, b.ID) })
	return properties{
		"NSessions": c.Sessions, "NRunning": c.Running, "NWaiting": c.Waiting, "NTurnEnded": c.TurnsEnded,
		"NFailed": c.Failed, "NStale": c.Stale, "NSuspended": c.Suspended, "Attention": entries,
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

// readOnDemand returns those of the named properties that are read on demand. Reading them may
// block, so it must not run on the goroutine that sends signals. It does not use the event loop,
// except for the Manager: if there are problems that a person can solve by removing a file, it
// makes the loop check them.
func (o *object) readOnDemand(iface string, names ...string) (properties, error) {
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
	for _, name := range names {
		if unknown, ok := onDemand[name]; ok {
			p[name] = unknown
		}
	}
	if _, wanted := p["Runs"]; wanted {
		p["Runs"] = runRows(n.Runs)
	}
	if _, wanted := p["TotalRuntimeUSec"]; wanted {
		p["TotalRuntimeUSec"] = uint64(n.TotalRuntime(time.Now()).Microseconds())
	}
	if _, wanted := p["ExecMainCPUUsageNSec"]; wanted && n.CPUTime > 0 {
		p["ExecMainCPUUsageNSec"] = uint64(n.CPUTime.Nanoseconds())
	}
	if _, wanted := p["ExecMainMaxRSS"]; wanted && n.MaxRSS > 0 {
		p["ExecMainMaxRSS"] = n.MaxRSS
	}
	if _, wanted := p["UnitProperties"]; wanted {
		p["UnitProperties"] = unitPropertyRows(n.UnitProperties)
	}
	if _, wanted := p["LastActivityTimestamp"]; wanted {
		p["LastActivityTimestamp"] = usec(s.sup.LastOutput(n.ID))
	}
	if !slices.ContainsFunc(names, isCounter) {
		return p, nil
	}
	for name, n := range s.counters(n) {
		if _, wanted := p[name]; wanted {
			p[name] = n
		}
	}
	return p, nil
}

func getProperty(_ context.Context, o *object, msg *dbus.Message) ([]any, error) {
	iface, name := msg.Body[0].(string), msg.Body[1].(string)
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
		value, ok := p[name]
		if !ok {
			return nil, newError(dbusapi.UnknownProperty, "no such property: "+name)
		}
		return []any{dbus.MakeVariant(value)}, nil
	})
}

func getAllProperties(_ context.Context, o *object, msg *dbus.Message) ([]any, error) {
	iface := msg.Body[0].(string)
	more, err := o.readOnDemand(iface, slices.Collect(maps.Keys(onDemand))...)
	if err != nil {
		return nil, err
	}
	return o.server.replyInOrder(msg, func(v *view) ([]any, error) {
		p, err := o.properties(v, iface)
		if err != nil {
			return nil, err
		}
		maps.Copy(p, more)
		return []any{p.variants()}, nil
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
	_, isOnDemand := onDemand[name]
	switch {
	case !known && (!isOnDemand || iface != dbusapi.SessionInterface):
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

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func labels(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func usec(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.UnixMicro())
}

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
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

// properties is the values of an interface's properties, by name.
type properties map[string]any

// sessionProperties returns all properties of a session but those that are read when somebody asks for them.
func sessionProperties(n *supervisor.Snapshot) properties {
	return properties{
		"Id":                     n.ID,
		"Agent":                  n.Agent,
		"Command":                orEmpty(n.Command),
		"WorkingDirectory":       n.WorkingDirectory,
		"Timestamp":              usec(n.Created),
		"Description":            n.Description,
		"Labels":                 labels(n.Labels),
		"OnLogin":                n.OnLogin,
		"State":                  n.State,
		"Lifecycle":              n.Lifecycle,
		"Activity":               n.Activity,
		"Attention":              n.Attention,
		"AttentionMessage":       "",
		"AttentionSource":        n.AttentionSource,
		"ConversationId":         n.ConversationID,
		"Result":                 n.Result,
		"Reason":                 n.Reason,
		"ExecMainCode":           n.ExecMainCode,
		"ExecMainStatus":         n.ExecMainStatus,
		"ExecMainStartTimestamp": usec(n.Started),
		"ExecMainExitTimestamp":  usec(n.Exited),
		"StateChangeTimestamp":   usec(n.StateChanged),
		"SessionAlive":           n.SessionAlive,
		"AgentAlive":             n.AgentAlive,
		"Frozen":                 n.Frozen,
		"Resumable":              n.Resumable,
		"IdleHint":               n.Idle,
		"IdleSinceHint":          usec(n.IdleSince),
		"LastActivityTimestamp":  usec(n.LastActivity),
		"Unit":                   n.Unit,
		"MainPID":                n.MainPID,
		"NRuns":                  n.NRuns,
		"ExpireTimestamp":        usec(n.Expires),
		"ControlGroup":           n.ControlGroup,
	}
}

// measured are the properties that are read when asked for, each with what it is where nobody can tell: of those of the control group, systemd's own
// "no value".
var measured = properties{
	"MemoryCurrent": ^uint64(0), "MemoryPeak": ^uint64(0), "CPUUsageNSec": ^uint64(0), "TasksCurrent": ^uint64(0), "Runs": []dbusapi.RunRow{},
}

func runRows(runs []session.Account) []dbusapi.RunRow {
	rows := make([]dbusapi.RunRow, 0, len(runs))
	for _, r := range runs {
		rows = append(rows, dbusapi.RunRow{
			ID: r.ID, Start: usec(r.Began), End: usec(r.Ended), Result: r.Result, Code: int32(r.Code), Status: int32(r.Status), Reason: r.Reason,
		})
	}
	return rows
}

// managerProperties returns all properties of the Manager.
func (s *Server) managerProperties(all []*supervisor.Snapshot, shuttingDown bool, problems []supervisor.Problem) properties {
	p := properties{
		"Problems":       problemRows(problems),
		"Version":        s.info.Version,
		"Slice":          s.info.Slice,
		"StateDirectory": s.info.StateDir,
		"ShuttingDown":   shuttingDown,
		"Lingering":      logind.Lingers(),
		"Notifications":  false,
	}
	maps.Copy(p, counted(all))
	return p
}

func problemRows(problems []supervisor.Problem) []dbusapi.Problem {
	rows := make([]dbusapi.Problem, 0, len(problems))
	for _, p := range problems {
		rows = append(rows, dbusapi.Problem{Session: p.Session, Text: p.Text})
	}
	return rows
}

// attention is a row of the Manager's Attention.
type attention struct {
	ID, Reason string
	Path       dbus.ObjectPath
}

// counted returns the Manager's properties that follow from its sessions.
func counted(all []*supervisor.Snapshot) properties {
	c := supervisor.CountOf(all)
	wants := []attention{}
	for _, n := range all {
		if n.Attention != "" {
			wants = append(wants, attention{n.ID, n.Attention, dbusapi.SessionPath(n.ID)})
		}
	}
	slices.SortFunc(wants, func(a, b attention) int { return strings.Compare(a.ID, b.ID) })
	return properties{
		"NSessions": c.Sessions, "NRunning": c.Running, "NWaiting": c.Waiting, "NFailed": c.Failed, "NStale": c.Stale,
		"NSuspended": c.Suspended, "Attention": wants,
	}
}

func (o *object) properties(ctx context.Context, iface string) (properties, error) {
	s := o.server
	if iface == dbusapi.ManagerInterface && o.path == dbusapi.ManagerPath {
		all, err := s.sup.Sessions()
		if err != nil {
			return nil, err
		}
		shuttingDown, err := s.sup.ShuttingDown()
		if err != nil {
			return nil, err
		}
		problems, err := s.sup.Problems()
		if err != nil {
			return nil, err
		}
		return s.managerProperties(all, shuttingDown, problems), nil
	}
	if iface != dbusapi.SessionInterface || o.session == "" {
		if _, known := o.interfaces[iface]; known || iface == peerInterface {
			return properties{}, nil
		}
		return nil, answer(dbusapi.UnknownInterface, "no such interface: "+iface)
	}
	snap, err := s.sup.Session(o.session)
	if err != nil {
		return nil, err
	}
	p := sessionProperties(snap)
	maps.Copy(p, measured)
	runs, err := s.sup.Runs(o.session)
	if err != nil {
		return nil, err
	}
	p["Runs"] = runRows(runs)
	usage, err := s.sup.Usage(ctx, o.session)
	if err != nil {
		return nil, err
	}
	for name, n := range usage {
		p[name] = n
	}
	return p, nil
}

func getProperty(ctx context.Context, o *object, msg *dbus.Message) ([]any, error) {
	iface, name := msg.Body[0].(string), msg.Body[1].(string)
	p, err := o.properties(ctx, iface)
	if err != nil {
		return nil, err
	}
	v, ok := p[name]
	if !ok {
		return nil, answer(dbusapi.UnknownProperty, "no such property: "+name)
	}
	return []any{dbus.MakeVariant(v)}, nil
}

func getAllProperties(ctx context.Context, o *object, msg *dbus.Message) ([]any, error) {
	p, err := o.properties(ctx, msg.Body[0].(string))
	if err != nil {
		return nil, err
	}
	return []any{p.variants()}, nil
}

func setProperty(ctx context.Context, o *object, msg *dbus.Message) ([]any, error) {
	iface, name := msg.Body[0].(string), msg.Body[1].(string)
	p, err := o.properties(ctx, iface)
	if err != nil {
		return nil, err
	}
	if _, ok := p[name]; !ok {
		return nil, answer(dbusapi.UnknownProperty, "no such property: "+name)
	}
	if name == "Notifications" {
		return nil, answer(dbusapi.NotSupported, "this version sends no notifications")
	}
	return nil, answer(dbusapi.PropertyReadOnly, "property "+name+" cannot be set")
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

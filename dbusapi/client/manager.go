package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/config"
)

// Manager contains the properties of the daemon.
type Manager = dbusapi.Manager

// Spec describes the session that CreateSession creates. Zero fields are not sent, so the daemon's
// defaults apply.
type Spec struct {
	ID               string
	Description      string
	Command          []string
	Arguments        []string // appended to the agent's own command
	ConversationID   string   // the agent's id of a conversation to continue
	ForkedFrom       string   // id of the session whose conversation is copied
	WorkingDirectory string
	Environment      []string // NAME=VALUE, for every run; the daemon stores it
	Prompt           string
	Labels           map[string]string
	NoStart          bool
	OnLogin          string // ignore, resume or start
	Exclusive        bool
	Sandbox          string  // name of a sandbox profile, "none" for none, "" for that of the agent
	Worktree         *string // branch of a new git worktree, "" for a generated branch, nil for no worktree
	Ports            *uint32 // number of TCP ports to reserve, nil for the default
	NoSetup          bool    // do not set the worktree up
	UnitProperties   []dbusapi.UnitProperty
}

// variants returns the spec with the caller's environment as the dictionary that CreateSession
// takes.
func (c *Client) variants(s Spec) map[string]dbus.Variant {
	m := map[string]dbus.Variant{}
	for key, value := range map[string]any{
		"Id": s.ID, "Description": s.Description, "WorkingDirectory": s.WorkingDirectory, "Prompt": s.Prompt,
		"OnLogin": s.OnLogin, "ConversationId": s.ConversationID, "ForkedFrom": s.ForkedFrom, "Command": s.Command,
		"Arguments":   s.Arguments,
		"Environment": s.Environment, "Labels": s.Labels, "Exclusive": s.Exclusive, "UnitProperties": s.UnitProperties,
		"Sandbox": s.Sandbox,
		"Now":     c.Now,
	} {
		if !reflect.ValueOf(value).IsZero() {
			m[key] = dbus.MakeVariant(value)
		}
	}
	if s.Worktree != nil {
		m["Worktree"] = dbus.MakeVariant(*s.Worktree)
	}
	if s.Ports != nil {
		m["Ports"] = dbus.MakeVariant(*s.Ports)
	}
	if s.NoSetup {
		m["Setup"] = dbus.MakeVariant(false)
	}
	if s.NoStart {
		m["Start"] = dbus.MakeVariant(false)
	} else if c.Environment != nil {
		m[callerEnvironment] = dbus.MakeVariant(c.Environment)
	}
	return m
}

// CreateSession creates a session and returns its id once it is running or queued (with NoStart:
// once it is created).
func (c *Client) CreateSession(ctx context.Context, agent string, spec Spec) (id string, err error) {
	if c.hosts != nil {
		on, err := c.only(ctx)
		if err != nil {
			return "", err
		}
		_, spec.ForkedFrom = SplitID(spec.ForkedFrom)
		id, err := on.CreateSession(ctx, agent, spec)
		if err == nil && !config.ValidName(id) {
			err = fmt.Errorf("the host has returned an invalid id %q", id)
		}
		return c.hosts.all[0].idOn(id), err
	}
	var path dbus.ObjectPath
	timeout := slowTimeout
	if spec.Worktree != nil {
		timeout = gitTimeout
	}
	err = c.manager(ctx, "CreateSession", timeout, []any{agent, c.variants(spec)}, &id, &path)
	return id, err
}

// ListSessions returns a row for each session, including archived sessions.
func (c *Client) ListSessions(ctx context.Context) ([]dbusapi.SessionRow, error) {
	if c.hosts != nil {
		return list(ctx, c, rowIDs, (*Client).ListSessions)
	}
	var rows []dbusapi.SessionRow
	err := c.manager(ctx, "ListSessions", callTimeout, nil, &rows)
	return rows, err
}

// ListSessionsEx returns the rows of a table of sessions, in the order of their creation, with
// one call.
func (c *Client) ListSessionsEx(ctx context.Context) ([]dbusapi.SessionRowEx, error) {
	if c.hosts != nil {
		return gather(ctx, c, func(ctx context.Context, bus *Client, h *host) ([]dbusapi.SessionRowEx, error) {
			rows, err := bus.ListSessionsEx(ctx)
			for _, row := range rows {
				h.qualify(row.More)
			}
			return withHost(rows, h, rowExIDs), err
		})
	}
	call := c.do(ctx, dbusapi.ManagerPath, dbusapi.ManagerInterface+".ListSessionsEx", callTimeout, c.flags())
	if call.Err != nil {
		return nil, call.Err
	}
	return decodeRowsEx(call.Body)
}

// decodeRowsEx converts the rows from the form in which godbus decoded them. dbus.Store would copy
// them once more, which doubles the time with a thousand sessions. It ignores additional fields at
// the end of a row, which a newer daemon may send.
func decodeRowsEx(body []any) ([]dbusapi.SessionRowEx, error) {
	reply, ok := []([]any)(nil), false
	if len(body) == 1 {
		reply, ok = body[0].([][]any)
	}
	if !ok {
		return nil, errors.New("unexpected reply of ListSessionsEx")
	}
	rows := make([]dbusapi.SessionRowEx, len(reply))
	for i, fields := range reply {
		r := &rows[i]
		f := fieldReader{fields: fields}
		for _, text := range []*string{
			&r.ID, &r.Agent, &r.State, &r.Activity, &r.Attention, &r.Reason, &r.Workspace, &r.Description, &r.Unit,
		} {
			readField(&f, text)
		}
		readField(&f, &r.StateChange)
		readField(&f, &r.ActiveSince)
		readField(&f, &r.Leftovers)
		readField(&f, &r.OnLogin)
		readField(&f, &r.Path)
		readField(&f, &r.More)
		if f.failed {
			return nil, fmt.Errorf("unexpected reply of ListSessionsEx in row %d", i)
		}
	}
	return rows, nil
}

// fieldReader reads the fields of a D-Bus structure in order.
type fieldReader struct {
	fields []any
	failed bool
}

func readField[T any](f *fieldReader, target *T) {
	if len(f.fields) == 0 {
		f.failed = true
		return
	}
	value, ok := f.fields[0].(T)
	if !ok {
		f.failed = true
	}
	*target, f.fields = value, f.fields[1:]
}

// ListStrays returns the processes of sessions that are outside of their scopes.
func (c *Client) ListStrays(ctx context.Context) ([]dbusapi.Stray, error) {
	if c.hosts != nil {
		return list(ctx, c, strayIDs, (*Client).ListStrays)
	}
	var rows []dbusapi.Stray
	err := c.manager(ctx, "ListStrays", callTimeout, nil, &rows)
	return rows, err
}

// ListAgents returns a row for each agent definition.
func (c *Client) ListAgents(ctx context.Context) ([]dbusapi.AgentRow, error) {
	var rows []dbusapi.AgentRow
	err := c.manager(ctx, "ListAgents", callTimeout, nil, &rows)
	return rows, err
}

// SessionByPID returns the id of the session that contains the process with this pid; 0 is the
// calling process.
func (c *Client) SessionByPID(ctx context.Context, pid uint32) (string, error) {
	var path dbus.ObjectPath
	err := c.manager(ctx, "GetSessionByPID", callTimeout, []any{pid}, &path)
	id, _ := dbusapi.SessionID(path)
	return id, err
}

// StartSession starts a fresh run and returns once the agent is running, or the session is queued.
func (c *Client) StartSession(ctx context.Context, id string) error {
	return c.begin(ctx, id, word.Start, gitTimeout)
}

// ResumeSession starts a run that continues the previous one, and returns once the agent is
// running.
func (c *Client) ResumeSession(ctx context.Context, id string) error {
	return c.begin(ctx, id, word.Resume, slowTimeout)
}

// RestartSession stops the session, then starts it, and returns once the agent is running.
func (c *Client) RestartSession(ctx context.Context, id string) error {
	return c.begin(ctx, id, word.Restart, gitTimeout)
}

// begin starts a run and waits until it is running. how is start, resume or restart. Without
// options, as on another machine, it calls the method that every version has.
func (c *Client) begin(ctx context.Context, id, how string, timeout time.Duration) error {
	on, id, err := c.route(ctx, id)
	if err != nil {
		return err
	}
	if options := on.runOptions(); len(options) > 0 {
		return on.manager(ctx, "BeginSession", timeout, []any{id, how, options})
	}
	methods := map[string]string{word.Start: "StartSession", word.Resume: "ResumeSession", word.Restart: "RestartSession"}
	return on.manager(ctx, methods[how], timeout, []any{id})
}

// PostBegin starts a run like StartSession, ResumeSession or RestartSession, without waiting until
// it is running. how is start, resume or restart.
func (c *Client) PostBegin(ctx context.Context, how, id string) error {
	on, id, err := c.route(ctx, id)
	if err != nil {
		return err
	}
	return on.Post(ctx, "BeginSession", id, how, on.runOptions())
}

// runOptions returns the options of BeginSession.
func (c *Client) runOptions() map[string]dbus.Variant {
	options := c.beginOptions()
	if c.Now {
		options["Now"] = dbus.MakeVariant(true)
	}
	return options
}

// beginOptions returns the options of a method that may begin a run: the caller's environment, if
// there is one.
func (c *Client) beginOptions() map[string]dbus.Variant {
	options := map[string]dbus.Variant{}
	if c.Environment != nil {
		options[callerEnvironment] = dbus.MakeVariant(c.Environment)
	}
	return options
}

const callerEnvironment = "CallerEnvironment"

// SuspendSession stops the session so that it can be resumed.
func (c *Client) SuspendSession(ctx context.Context, id string) error {
	return c.managerOf(ctx, id, "SuspendSession", slowTimeout, nil)
}

// StopSession stops the session. Its processes are killed after grace; 0 selects the configured
// default. It returns once the scope is empty.
func (c *Client) StopSession(ctx context.Context, id string, grace time.Duration) error {
	return c.managerOf(ctx, id, "StopSession", slowTimeout+grace, []any{uint64(max(grace, 0) / time.Microsecond)})
}

// KillSession sends a signal to the agent, to all processes of the session, or to its leftover
// processes.
func (c *Client) KillSession(ctx context.Context, id, processes string, signal int32) error {
	return c.managerOf(ctx, id, "KillSession", callTimeout, []any{processes, signal})
}

// FreezeSession pauses every process of the session until ThawSession.
func (c *Client) FreezeSession(ctx context.Context, id string) error {
	return c.managerOf(ctx, id, "FreezeSession", callTimeout, nil)
}

// ThawSession continues a frozen session.
func (c *Client) ThawSession(ctx context.Context, id string) error {
	return c.managerOf(ctx, id, "ThawSession", callTimeout, nil)
}

// ArchiveSession hides an ended session and keeps its record indefinitely.
func (c *Client) ArchiveSession(ctx context.Context, id string) error {
	return c.managerOf(ctx, id, "ArchiveSession", callTimeout, nil)
}

// RemoveSession removes the session with its record and log. With force, a running session is
// stopped first.
func (c *Client) RemoveSession(ctx context.Context, id string, force bool) error {
	return c.managerOf(ctx, id, "RemoveSession", slowTimeout, []any{removeFlags(force, false)})
}

// RemoveWorktree removes the session like RemoveSession, and also its git worktree. With force, the
// worktree is removed even if it contains work that exists nowhere else.
func (c *Client) RemoveWorktree(ctx context.Context, id string, force bool) error {
	return c.managerOf(ctx, id, "RemoveSession", gitTimeout, []any{removeFlags(force, true)})
}

func removeFlags(force, worktree bool) (flags uint64) {
	if force {
		flags |= dbusapi.RemoveForce
	}
	if worktree {
		flags |= dbusapi.RemoveWorktree
	}
	if force && worktree {
		flags |= dbusapi.RemoveDiscard
	}
	return flags
}

// PostRemove removes the session like RemoveSession, or like RemoveWorktree if worktree is set,
// without waiting until it is removed.
func (c *Client) PostRemove(ctx context.Context, id string, force, worktree bool) error {
	return c.Post(ctx, "RemoveSession", id, removeFlags(force, worktree))
}

// PostCreate creates a session like CreateSession, without waiting until it is running. If the
// daemon refuses to start it, the session is removed again.
func (c *Client) PostCreate(ctx context.Context, agent string, spec Spec) (id string, err error) {
	start := !spec.NoStart
	spec.NoStart = true
	if id, err = c.CreateSession(ctx, agent, spec); err != nil || !start {
		return id, err
	}
	if err := c.PostBegin(ctx, word.Start, id); err != nil {
		flags := removeFlags(true, spec.Worktree != nil)
		return "", errors.Join(err, c.managerOf(ctx, id, "RemoveSession", slowTimeout, []any{flags}))
	}
	return id, nil
}

// SendInput types text into the session. flags are the Input constants of package dbusapi.
func (c *Client) SendInput(ctx context.Context, id, text string, flags uint64) error {
	on, id, err := c.route(ctx, id)
	if err != nil {
		return err
	}
	if options := on.beginOptions(); len(options) > 0 {
		return on.manager(ctx, "SendInputEx", slowTimeout, []any{id, text, flags, options})
	}
	return on.manager(ctx, "SendInput", slowTimeout, []any{id, text, flags})
}

// Report is a status report of an agent or of its hooks. Empty fields are not sent.
type Report struct {
	Activity       string // working, waiting or idle
	Reason         string // why the agent is waiting, as in AttentionRequested
	Message        string // the agent's question, for the user only
	ConversationID string // the agent's own id of its conversation, for resuming
	// Until is when the usage limit resets that is the reason limit; zero if that is unknown.
	Until time.Time
	// ExpectedSession is the session to which the reporting process belongs according to its
	// environment. The daemon drops a report from any other place.
	ExpectedSession string
}

// ReportActivity sends a status report for the session that contains the calling process. The
// process must not exit before ReportActivity returns: the daemon finds the session by the control
// group of the process. It does not start the daemon: without one, there is nobody to report to,
// and hooks must return quickly.
func (c *Client) ReportActivity(ctx context.Context, r Report) error {
	details := map[string]dbus.Variant{}
	for name, value := range map[string]string{
		"Reason":          r.Reason,
		"Message":         r.Message,
		"ConversationId":  r.ConversationID,
		"ExpectedSession": r.ExpectedSession,
	} {
		if value != "" {
			details[name] = dbus.MakeVariant(value)
		}
	}
	if !r.Until.IsZero() {
		details["Until"] = dbus.MakeVariant(uint64(r.Until.UnixMicro()))
	}
	const method = dbusapi.ManagerInterface + ".ReportActivity"
	err := c.do(ctx, dbusapi.ManagerPath, method, callTimeout, dbus.FlagNoAutoStart, r.Activity, details).Err
	if dbusapi.ShortErrorName(err) == dbusapi.InvalidArgs && !r.Until.IsZero() { // an older daemon does not know Until
		r.Until = time.Time{}
		return c.ReportActivity(ctx, r)
	}
	return err
}

// Clean removes the sessions whose retention time has passed, and returns their ids.
func (c *Client) Clean(ctx context.Context) ([]string, error) {
	var ids []string
	err := c.manager(ctx, "Clean", callTimeout, nil, &ids)
	return ids, err
}

// Reload makes the daemon reload its configuration.
func (c *Client) Reload(ctx context.Context) error {
	return c.manager(ctx, "Reload", callTimeout, nil)
}

// ManagerProperties returns all properties of the daemon, by name.
func (c *Client) ManagerProperties(ctx context.Context) (Properties, error) {
	on, err := c.only(ctx)
	if err != nil {
		return nil, err
	}
	var p Properties
	err = on.call(ctx, dbusapi.ManagerPath, getAll, callTimeout, []any{dbusapi.ManagerInterface}, &p)
	return p, err
}

// Manager returns the properties of the daemon.
func (c *Client) Manager(ctx context.Context) (Manager, error) {
	if c.hosts != nil {
		return c.managerOfAll(ctx)
	}
	var m Manager
	properties, err := c.ManagerProperties(ctx)
	if err == nil {
		err = properties.Decode(&m)
	}
	return m, err
}

// Sessions returns all sessions, sorted by id, with one call. The counters of their control groups
// may be unknown.
func (c *Client) Sessions(ctx context.Context) ([]Session, error) {
	if c.hosts != nil {
		return list(ctx, c, sessionIDs, (*Client).Sessions)
	}
	// The reply is used in the form in which godbus decoded it: dbus.Store would copy it once more,
	// which doubles the time with a thousand sessions.
	const method = "org.freedesktop.DBus.ObjectManager.GetManagedObjects"
	call := c.do(ctx, dbusapi.ManagerPath, method, callTimeout, c.flags())
	if call.Err != nil {
		return nil, call.Err
	}
	if len(call.Body) == 0 {
		return nil, errors.New("empty reply of GetManagedObjects")
	}
	objects, ok := call.Body[0].(map[dbus.ObjectPath]map[string]map[string]dbus.Variant)
	if !ok {
		return nil, errors.New("unexpected reply of GetManagedObjects")
	}
	sessions := make([]Session, 0, len(objects))
	for _, interfaces := range objects {
		properties, ok := interfaces[dbusapi.SessionInterface]
		if !ok {
			continue
		}
		s := dbusapi.NewSession()
		if err := Properties(properties).Decode(&s); err != nil {
			return nil, err
		}
		sessions = append(sessions, s)
	}
	slices.SortFunc(sessions, func(a, b Session) int { return strings.Compare(a.Id, b.Id) })
	NumberQueue(sessions)
	return sessions, nil
}

// NumberQueue sets the QueuePosition of each session of all that exist. It follows from their
// QueuedTimestamp: no signal announces it. Each host has a queue of its own.
func NumberQueue(all []Session) {
	var queued []*Session
	for i := range all {
		if all[i].QueuedTimestamp != 0 {
			queued = append(queued, &all[i])
		}
	}
	slices.SortFunc(queued, func(a, b *Session) int { return cmp.Compare(a.QueuedTimestamp, b.QueuedTimestamp) })
	last := map[string]uint32{}
	for _, s := range queued {
		host, _ := SplitID(s.Id)
		last[host]++
		s.QueuePosition = last[host]
	}
}

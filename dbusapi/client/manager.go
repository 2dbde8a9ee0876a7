package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
)

// Manager has the properties of the daemon, with the contract's names and types.
type Manager struct {
	Version        string
	Slice          string
	StateDirectory string
	NSessions      uint32
	NRunning       uint32
	NWaiting       uint32
	NTurnEnded     uint32
	NFailed        uint32
	NStale         uint32
	NSuspended     uint32
	Attention      []Attention
	Problems       []dbusapi.Problem
	ShuttingDown   bool
	Lingering      bool
	Notifications  bool
}

// Attention is one entry of the Manager's Attention property: a session that wants a person, and
// that nobody has acknowledged.
type Attention struct {
	Id     string //nolint:revive // the contract's name
	Reason string
	Path   dbus.ObjectPath
}

// Spec says what CreateSession creates. Fields that are zero are not sent: the daemon decides.
type Spec struct {
	ID               string
	Description      string
	Command          []string
	Arguments        []string // follow those of the agent's own command
	ConversationID   string   // the agent's id of one to go on with
	WorkingDirectory string
	Environment      []string // NAME=VALUE, for every run; the daemon keeps it
	Prompt           string
	Labels           map[string]string
	NoStart          bool
	OnLogin          string // ignore, resume or start
	Exclusive        bool
	Worktree         *string // branch of a git worktree to make, "" for one of its own; nil for none
	UnitProperties   []dbusapi.UnitProperty
}

// variants is the spec as CreateSession takes it.
func (s Spec) variants() map[string]dbus.Variant {
	m := map[string]dbus.Variant{}
	text := func(key, value string) {
		if value != "" {
			m[key] = dbus.MakeVariant(value)
		}
	}
	text("Id", s.ID)
	text("Description", s.Description)
	text("WorkingDirectory", s.WorkingDirectory)
	text("Prompt", s.Prompt)
	text("OnLogin", s.OnLogin)
	text("ConversationId", s.ConversationID)
	if s.Worktree != nil {
		m["Worktree"] = dbus.MakeVariant(*s.Worktree)
	}
	if s.Command != nil {
		m["Command"] = dbus.MakeVariant(s.Command)
	}
	if len(s.Arguments) > 0 {
		m["Arguments"] = dbus.MakeVariant(s.Arguments)
	}
	if s.Environment != nil {
		m["Environment"] = dbus.MakeVariant(s.Environment)
	}
	if s.Labels != nil {
		m["Labels"] = dbus.MakeVariant(s.Labels)
	}
	if s.NoStart {
		m["Start"] = dbus.MakeVariant(false)
	}
	if s.Exclusive {
		m["Exclusive"] = dbus.MakeVariant(true)
	}
	if s.UnitProperties != nil {
		m["UnitProperties"] = dbus.MakeVariant(s.UnitProperties)
	}
	return m
}

// variants is a spec with the environment of whoever this client works for.
func (c *Client) variants(spec Spec) map[string]dbus.Variant {
	m := spec.variants()
	if c.Environment != nil && !spec.NoStart {
		m[callerEnvironment] = dbus.MakeVariant(c.Environment)
	}
	return m
}

// CreateSession creates a session and returns its id, once it runs (or exists, with NoStart).
func (c *Client) CreateSession(ctx context.Context, agent string, spec Spec) (id string, err error) {
	var path dbus.ObjectPath
	timeout := slowTimeout
	if spec.Worktree != nil {
		timeout = gitTimeout
	}
	given := c.variants(spec)
	err = c.manager(ctx, "CreateSession", timeout, []any{agent, given}, &id, &path)
	if dbusapi.ShortErrorName(err) == dbusapi.InvalidArgs && strings.Contains(err.Error(), callerEnvironment) { // the daemon is older than the key
		given["Environment"] = dbus.MakeVariant(slices.Concat(c.Environment, spec.Environment))
		delete(given, callerEnvironment)
		err = c.manager(ctx, "CreateSession", timeout, []any{agent, given}, &id, &path)
	}
	return id, err
}

// ListSessions returns a row for every session, archived ones too.
func (c *Client) ListSessions(ctx context.Context) ([]dbusapi.SessionRow, error) {
	var rows []dbusapi.SessionRow
	err := c.manager(ctx, "ListSessions", callTimeout, nil, &rows)
	return rows, err
}

// ListSessionsEx returns what a table of sessions shows, in the order of their ids, from one flat
// answer. Errors: UnknownMethod of a daemon that is older than the method.
func (c *Client) ListSessionsEx(ctx context.Context) ([]dbusapi.SessionRowEx, error) {
	call := c.do(ctx, dbusapi.ManagerPath, dbusapi.ManagerInterface+".ListSessionsEx", callTimeout, c.flags())
	if call.Err != nil {
		return nil, call.Err
	}
	rows, err := rowsEx(call.Body)
	slices.SortFunc(rows, func(a, b dbusapi.SessionRowEx) int { return strings.Compare(a.ID, b.ID) })
	return rows, err
}

// rowsEx takes the rows as godbus decoded them: with a thousand sessions, copying them by Store
// would take as long again. A field that a newer daemon has behind those that are known is left
// alone.
func rowsEx(body []any) ([]dbusapi.SessionRowEx, error) {
	answer, ok := []([]any)(nil), false
	if len(body) == 1 {
		answer, ok = body[0].([][]any)
	}
	if !ok {
		return nil, errors.New("unexpected answer of ListSessionsEx")
	}
	rows := make([]dbusapi.SessionRowEx, len(answer))
	for i, fields := range answer {
		r := &rows[i]
		f := fieldReader{fields: fields}
		for _, text := range []*string{&r.ID, &r.Agent, &r.State, &r.Activity, &r.Attention, &r.Reason, &r.Workspace, &r.Description, &r.Unit} {
			read(&f, text)
		}
		read(&f, &r.StateChange)
		read(&f, &r.ActiveSince)
		read(&f, &r.Leftovers)
		read(&f, &r.OnLogin)
		read(&f, &r.Path)
		read(&f, &r.More)
		if f.failed {
			return nil, fmt.Errorf("unexpected answer of ListSessionsEx in row %d", i)
		}
	}
	return rows, nil
}

// fieldReader reads the fields of a structure one after the other.
type fieldReader struct {
	fields []any
	failed bool
}

func read[T any](f *fieldReader, target *T) {
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

// ListStrays returns the processes of sessions that are outside of their scopes; none where the
// daemon is too old to look for them.
func (c *Client) ListStrays(ctx context.Context) ([]dbusapi.Stray, error) {
	var rows []dbusapi.Stray
	err := c.manager(ctx, "ListStrays", callTimeout, nil, &rows)
	if dbusapi.ShortErrorName(err) == dbusapi.UnknownMethod {
		return nil, nil
	}
	return rows, err
}

// ListAgents returns a row for every agent definition.
func (c *Client) ListAgents(ctx context.Context) ([]dbusapi.AgentRow, error) {
	var rows []dbusapi.AgentRow
	err := c.manager(ctx, "ListAgents", callTimeout, nil, &rows)
	return rows, err
}

// SessionByPID returns the id of the session that the process with this pid belongs to; 0 is the
// caller.
func (c *Client) SessionByPID(ctx context.Context, pid uint32) (string, error) {
	var path dbus.ObjectPath
	err := c.manager(ctx, "GetSessionByPID", callTimeout, []any{pid}, &path)
	id, _ := dbusapi.SessionID(path)
	return id, err
}

// StartSession starts a fresh run and returns once it runs.
func (c *Client) StartSession(ctx context.Context, id string) error {
	return c.begin(ctx, "start", "StartSession", id, slowTimeout)
}

// ResumeSession starts a run that goes on where the last one ended, and returns once it runs.
func (c *Client) ResumeSession(ctx context.Context, id string) error {
	return c.begin(ctx, "resume", "ResumeSession", id, slowTimeout)
}

// RestartSession stops the session, then starts it, and returns once it runs.
func (c *Client) RestartSession(ctx context.Context, id string) error {
	return c.begin(ctx, "restart", "RestartSession", id, 2*slowTimeout)
}

// begin begins a run, with the caller's environment if there is one and the daemon is not older
// than that.
func (c *Client) begin(ctx context.Context, how, method, id string, timeout time.Duration) error {
	if c.Environment != nil {
		err := c.manager(ctx, "BeginSession", timeout, []any{id, how, c.options()})
		if dbusapi.ShortErrorName(err) != "UnknownMethod" {
			return err
		}
	}
	return c.manager(ctx, method, timeout, []any{id})
}

func (c *Client) options() map[string]dbus.Variant {
	return map[string]dbus.Variant{callerEnvironment: dbus.MakeVariant(c.Environment)}
}

const callerEnvironment = "CallerEnvironment"

// PostBegin is Post for what StartSession, ResumeSession or RestartSession does, how being start,
// resume or restart.
func (c *Client) PostBegin(ctx context.Context, how, id string) error {
	options := map[string]dbus.Variant{}
	if c.Environment != nil {
		options = c.options()
	}
	return c.Post(ctx, "BeginSession", id, how, options)
}

// SuspendSession ends the session politely, to be resumed.
func (c *Client) SuspendSession(ctx context.Context, id string) error {
	return c.manager(ctx, "SuspendSession", slowTimeout, []any{id})
}

// StopSession ends the session politely, by force after grace (0: the configured time), and returns
// once nothing of it is left.
func (c *Client) StopSession(ctx context.Context, id string, grace time.Duration) error {
	return c.manager(ctx, "StopSession", slowTimeout+grace, []any{id, uint64(max(grace, 0) / time.Microsecond)})
}

// KillSession sends a signal to the agent, to all processes of the session, or to its leftovers.
func (c *Client) KillSession(ctx context.Context, id, whom string, signal int32) error {
	return c.manager(ctx, "KillSession", callTimeout, []any{id, whom, signal})
}

// FreezeSession holds every process of the session; ThawSession lets them go on.
func (c *Client) FreezeSession(ctx context.Context, id string) error {
	return c.manager(ctx, "FreezeSession", callTimeout, []any{id})
}

// ThawSession is the opposite of FreezeSession.
func (c *Client) ThawSession(ctx context.Context, id string) error {
	return c.manager(ctx, "ThawSession", callTimeout, []any{id})
}

// ArchiveSession keeps the record of a session that has ended, out of sight.
func (c *Client) ArchiveSession(ctx context.Context, id string) error {
	return c.manager(ctx, "ArchiveSession", callTimeout, []any{id})
}

// RemoveSession forgets the session with its log; with force also one that has not ended, which is
// stopped first.
func (c *Client) RemoveSession(ctx context.Context, id string, force bool) error {
	return c.manager(ctx, "RemoveSession", slowTimeout, []any{id, removeFlags(force, false)})
}

// RemoveWorktree is RemoveSession, and removes the session's git worktree, too: with force,
// whatever is in it that is nowhere else.
func (c *Client) RemoveWorktree(ctx context.Context, id string, force bool) error {
	return c.manager(ctx, "RemoveSession", gitTimeout, []any{id, removeFlags(force, true)})
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

// PostRemove is Post for what RemoveSession does, or RemoveWorktree if worktree is set.
func (c *Client) PostRemove(ctx context.Context, id string, force, worktree bool) error {
	return c.Post(ctx, "RemoveSession", id, removeFlags(force, worktree))
}

// PostCreate is CreateSession for who does not wait until the session runs. Where it is refused to
// begin, nothing of it is left.
func (c *Client) PostCreate(ctx context.Context, agent string, spec Spec) (id string, err error) {
	begins := !spec.NoStart
	spec.NoStart = true
	if id, err = c.CreateSession(ctx, agent, spec); err != nil || !begins {
		return id, err
	}
	if err := c.PostBegin(ctx, "start", id); err != nil {
		return "", errors.Join(err, c.manager(ctx, "RemoveSession", slowTimeout, []any{id, removeFlags(true, spec.Worktree != nil)}))
	}
	return id, nil
}

// SendInput types text into the session; flags are dbusapi's Input constants.
func (c *Client) SendInput(ctx context.Context, id, text string, flags uint64) error {
	return c.manager(ctx, "SendInput", slowTimeout, []any{id, text, flags})
}

// Report is what an agent says of itself, or its hooks for it. What is "" is not said.
type Report struct {
	Activity        string // working, waiting or idle
	Reason          string // why it waits, as in AttentionRequested
	Message         string // what it asks, for the user alone
	ConversationID  string // its own id of its conversation, to be resumed by
	ExpectedSession string // the session that who reports believes to be of, by its environment: from any other one it does not count
}

// ReportActivity reports for the session that the caller is a process of. It does not start the
// daemon: without one nobody is there to be told, and who reports has no time. The caller has to
// live until it returns, for the daemon finds the session from the caller's control group.
func (c *Client) ReportActivity(ctx context.Context, r Report) error {
	details := map[string]dbus.Variant{}
	for name, value := range map[string]string{"Reason": r.Reason, "Message": r.Message, "ConversationId": r.ConversationID, "ExpectedSession": r.ExpectedSession} {
		if value != "" {
			details[name] = dbus.MakeVariant(value)
		}
	}
	const method = dbusapi.ManagerInterface + ".ReportActivity"
	return c.do(ctx, dbusapi.ManagerPath, method, callTimeout, dbus.FlagNoAutoStart, r.Activity, details).Err
}

// Clean removes what has outlived its retention time and returns the ids.
func (c *Client) Clean(ctx context.Context) ([]string, error) {
	var ids []string
	err := c.manager(ctx, "Clean", callTimeout, nil, &ids)
	return ids, err
}

// Reload makes the daemon read its configuration again.
func (c *Client) Reload(ctx context.Context) error {
	return c.manager(ctx, "Reload", callTimeout, nil)
}

// ManagerProperties returns all properties of the daemon, by name.
func (c *Client) ManagerProperties(ctx context.Context) (Properties, error) {
	return c.getAll(ctx, dbusapi.ManagerPath, dbusapi.ManagerInterface)
}

// Manager returns the properties of the daemon.
func (c *Client) Manager(ctx context.Context) (Manager, error) {
	var m Manager
	properties, err := c.ManagerProperties(ctx)
	if err == nil {
		err = properties.Decode(&m)
	}
	return m, err
}

// Sessions returns every session, in the order of their ids, from one call. The counters of their
// control groups may not be among what comes.
func (c *Client) Sessions(ctx context.Context) ([]Session, error) {
	// The answer is taken as godbus decoded it: with a thousand sessions, copying it by Store would
	// take as long again.
	const method = "org.freedesktop.DBus.ObjectManager.GetManagedObjects"
	call := c.do(ctx, dbusapi.ManagerPath, method, callTimeout, c.flags())
	if call.Err != nil {
		return nil, call.Err
	}
	if len(call.Body) == 0 {
		return nil, errors.New("empty answer of GetManagedObjects")
	}
	objects, ok := call.Body[0].(map[dbus.ObjectPath]map[string]map[string]dbus.Variant)
	if !ok {
		return nil, errors.New("unexpected answer of GetManagedObjects")
	}
	sessions := make([]Session, 0, len(objects))
	for _, interfaces := range objects {
		properties, ok := interfaces[dbusapi.SessionInterface]
		if !ok {
			continue
		}
		s := newSession()
		if err := Properties(properties).Decode(&s); err != nil {
			return nil, err
		}
		sessions = append(sessions, s)
	}
	slices.SortFunc(sessions, func(a, b Session) int { return strings.Compare(a.Id, b.Id) })
	return sessions, nil
}

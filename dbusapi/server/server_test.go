package server

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/introspect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/fdpoll"
	"github.com/corrald/corral/internal/journal"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/testbed"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/environments"
	"github.com/corrald/corral/supervisor/session"
)

// fakeSystem implements each part of a supervisor.System that the tests use. Every start succeeds
// immediately, and no process ever ends.
type fakeSystem struct {
	supervisor.Systemd
	supervisor.Processes
	supervisor.ControlGroups
	supervisor.Terminals
}

func (f fakeSystem) system() supervisor.System {
	return supervisor.System{Executor: f, Systemd: f, Processes: f, ControlGroups: f, Terminals: f, Environments: f}
}

func (fakeSystem) Unwatch(context.Context, ...string) error { return nil }

func (fakeSystem) Execute(_ context.Context, t supervisor.Task, report func(session.Event)) error {
	switch t.Effect.(type) {
	case session.StartScope:
		report(session.ScopeStarted{Run: t.Plan.Spec.RunID, InvocationID: "inv", ControlGroup: "/" + t.Plan.Unit})
		report(session.AgentStarted{
			Run: t.Plan.Spec.RunID, SendsTyped: true, Agent: session.Process{PID: os.Getpid()}, At: time.Now(),
		})
	case session.AnticipateStart, session.ContinueShim, session.SignalAgent, session.HangUp, session.SignalAll,
		session.KillScope, session.SendSignal, session.Thaw, session.CleanUp:
	default:
		panic(fmt.Sprintf("unexpected effect %T", t.Effect))
	}
	return nil
}

func (fakeSystem) SetContinueTimer(context.Context, string, time.Time) error { return nil }
func (fakeSystem) Abandon(context.Context, []string) ([]string, error)       { return nil, nil }
func (fakeSystem) PulledIn(context.Context) ([]string, error)                { return nil, nil }
func (fakeSystem) IsStopping(context.Context) bool                           { return false }
func (fakeSystem) Scopes(context.Context) ([]supervisor.Scope, error)        { return nil, nil }

func (fakeSystem) Reap(int) {}

func (fakeSystem) OpenPidfd(session.Process) (int, bool) { return -1, false }

func (fakeSystem) StaysPopulated(string) bool      { return true }
func (fakeSystem) IsFrozen(string) bool            { return false }
func (fakeSystem) EventsFile(string) string        { return "/none" }
func (fakeSystem) Usage(string) (proc.Usage, bool) { return proc.Usage{Tasks: 3}, true }

func (fakeSystem) AttachCommand(context.Context, supervisor.Target) ([]string, error) {
	return nil, errors.New("no tmux")
}

func (fakeSystem) Compose(context.Context, environments.Sources, string, string) ([]environment.Variable, error) {
	return nil, nil
}

func (fakeSystem) FindProgram(context.Context, string, string, environments.Sources) error {
	return nil
}

// records implements supervisor.Records. It stores nothing, and blocks the event loop if a test
// requests that.
type records struct {
	dir    string
	pauses chan pause // buffered: makes the next Save wait
}

// pause blocks a Save, and thereby the event loop: Save closes reached and then waits until release
// is closed.
type pause struct{ reached, release chan struct{} }

func (r records) SessionDir(id string) string { return filepath.Join(r.dir, id) }
func (r records) Create(id string) error      { return os.MkdirAll(r.SessionDir(id), 0o700) }
func (r records) Remove(id string) error      { return os.RemoveAll(r.SessionDir(id)) }
func (records) SyncExit(string) error         { return nil }

func (records) KeepExit(string, exitstatus.Status) error { return nil }

func (r records) Save(*session.Session, string) error {
	select {
	case p := <-r.pauses:
		close(p.reached)
		<-p.release
	default:
	}
	return nil
}

// served is a server on the private bus, and a client that records the messages that it receives,
// in order.
type served struct {
	*Server
	sup     *supervisor.Supervisor
	client  *dbus.Conn
	reports chan error
	pauses  chan pause

	mu   sync.Mutex
	wire []string
}

func serve(t *testing.T) *served {
	t.Helper()
	s := &served{reports: make(chan error, 10), pauses: make(chan pause, 1)}
	address := os.Getenv("DBUS_SESSION_BUS_ADDRESS")
	s.Server = New(Info{
		Version:  "1.2.3",
		Slice:    "app-corral.slice",
		StateDir: "/state",
		Reload:   func() error { panic("nobody expects it") },
		Log:      journal.New(new(slog.LevelVar)),
	}, func(err error) { s.reports <- err })
	require.NoError(t, s.Connect(t.Context(), address))
	descriptors, err := fdpoll.New()
	require.NoError(t, err)
	dir := testbed.Dir(t)
	s.sup = supervisor.New(supervisor.Options{
		Config: config.Default(),
		Agents: map[string]config.Agent{
			"command": {Name: "command"},
			"claude":  {Name: "claude", Command: []string{"claude"}, ResumeCommand: []string{"claude", "-r"}},
		},
		Records:    records{dir, s.pauses},
		System:     fakeSystem{}.system(),
		Publisher:  s.Server,
		Poller:     descriptors,
		Log:        slog.New(slog.DiscardHandler),
		BootID:     "boot",
		RuntimeDir: filepath.Join(dir, "run"),
		Home:       dir,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	require.NoError(t, s.Serve(s.sup))
	go func() { defer close(ended); assert.NoError(t, s.sup.Run(ctx)) }()
	s.client, err = dbus.Connect(address,
		dbus.WithIncomingInterceptor(s.record), dbus.WithSignalHandler(dbus.NewSequentialSignalHandler()))
	require.NoError(t, err)
	t.Cleanup(func() {
		cancel()
		<-ended
		_, _ = s.client.Close(), s.Close()
	})
	return s
}

// record is called with each message by the goroutine that reads from the client's connection.
func (s *served) record(msg *dbus.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch path, _ := msg.Headers[dbus.FieldPath].Value().(dbus.ObjectPath); msg.Type {
	case dbus.TypeSignal:
		line := member(msg)
		if iface, _ := msg.Body[0].(string); line == "PropertiesChanged" {
			names := sortedNames(msg.Body[1].(map[string]dbus.Variant))
			line = fmt.Sprintf("PropertiesChanged %s %v", iface[strings.LastIndexByte(iface, '.')+1:], names)
		}
		if strings.HasPrefix(string(path), string(dbusapi.ManagerPath)) {
			s.wire = append(s.wire, line)
		}
	case dbus.TypeMethodReply:
		s.wire = append(s.wire, "reply")
	}
}

func sortedNames[T any](m map[string]T) []string {
	names := []string{}
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (s *served) takeRecorded() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	wire := s.wire
	s.wire = nil
	return wire
}

// call calls a method of the contract by its full name.
func (s *served) call(path dbus.ObjectPath, method string, args ...any) *dbus.Call {
	ctx, cancel := context.WithTimeout(context.Background(), testbed.Timeout)
	defer cancel()
	return s.client.Object(dbusapi.BusName, path).CallWithContext(ctx, method, 0, args...)
}

func (s *served) manager(method string, args ...any) *dbus.Call {
	return s.call(dbusapi.ManagerPath, dbusapi.ManagerInterface+"."+method, args...)
}

func (s *served) create(t *testing.T, id string, start bool) dbus.ObjectPath {
	t.Helper()
	require.NoError(t, s.manager("CreateSession", "command", map[string]dbus.Variant{
		"Id": dbus.MakeVariant(id), "Command": dbus.MakeVariant([]string{"true"}), "Start": dbus.MakeVariant(start),
	}).Err)
	return dbusapi.SessionPath(id)
}

func errorName(err error) string {
	var e dbus.Error
	errors.As(err, &e)
	return e.Name
}

// interfaceIn returns an interface from an interface definition.
func interfaceIn(t *testing.T, text, name string) introspect.Interface {
	t.Helper()
	var node introspect.Node
	require.NoError(t, xml.Unmarshal([]byte(text), &node))
	for _, i := range node.Interfaces {
		if i.Name == name {
			return i
		}
	}
	t.Fatalf("no interface %s", name)
	return introspect.Interface{}
}

func TestServer_ImplementsTheContract(t *testing.T) {
	s := serve(t)
	session := s.create(t, "fix-auth", false)
	for _, row := range []struct {
		path             dbus.ObjectPath
		name, definition string
	}{
		{dbusapi.ManagerPath, dbusapi.ManagerInterface, dbusapi.ManagerXML},
		{session, dbusapi.SessionInterface, dbusapi.SessionXML},
	} {
		var text string
		require.NoError(t, s.call(row.path, introspectableInterface+".Introspect").Store(&text))
		assert.Equal(t, interfaceIn(t, row.definition, row.name), interfaceIn(t, text, row.name),
			"every member, argument and annotation")
		assert.NotContains(t, text, "<!--")

		t.Run(row.name+" properties", func(t *testing.T) {
			reply := s.call(row.path, propertiesInterface+".GetAll", row.name)
			require.NoError(t, reply.Err)
			all := reply.Body[0].(map[string]dbus.Variant) // without Store, which would convert the types
			types := map[string]string{}
			for name, v := range all {
				types[name] = v.Signature().String()
				one := s.call(row.path, propertiesInterface+".Get", row.name, name)
				require.NoError(t, one.Err)
				assert.Equal(t, types[name], one.Body[0].(dbus.Variant).Signature().String())
			}
			want := map[string]string{}
			for _, p := range interfaceIn(t, row.definition, row.name).Properties {
				want[p.Name] = p.Type
			}
			assert.Equal(t, want, types)
		})
		t.Run(row.name+" methods", func(t *testing.T) {
			for _, m := range interfaceIn(t, row.definition, row.name).Methods {
				err := s.call(row.path, row.name+"."+m.Name, unwanted{}).Err
				assert.Equal(t, "org.freedesktop.DBus.Error.InvalidArgs", errorName(err),
					"%s exists and takes no such argument", m.Name)
			}
		})
	}
}

// unwanted is an argument that no method takes.
type unwanted struct{ A, B, C byte }

// TestHandlers_AreMethodsOfTheContract: a handler with a misspelled name would never be called, and
// the method would return NotSupported.
func TestHandlers_AreMethodsOfTheContract(t *testing.T) {
	known := build(nil, standardXML, propertiesXML, objectManagerXML, managerXML, sessionXML, logControlXML)
	for iface, handlers := range standardHandlers {
		for name := range handlers {
			assert.Contains(t, known[iface], name, iface)
		}
	}
	for path, interfaces := range map[string]map[string]methods{
		"manager": managerInterfaces, "session": sessionInterfaces,
		"log control": logControlInterfaces, "folder": folderInterfaces,
	} {
		for iface, methods := range interfaces {
			assert.Len(t, methods, len(known[iface]), "%s %s", path, iface)
			for name, m := range methods {
				assert.NotNil(t, m.call, name)
			}
		}
	}
}

func TestServer_AnswersMissingMethodsWithNotSupported(t *testing.T) {
	s := serve(t)
	for _, m := range interfaceIn(t, dbusapi.ManagerXML, dbusapi.ManagerInterface).Methods {
		if managerHandlers[m.Name] != nil {
			continue
		}
		var args []any
		for _, a := range m.Args {
			if a.Direction == "in" {
				values := map[string]any{"s": "x", "t": uint64(0), "i": int32(0), "a{sv}": map[string]dbus.Variant{}}
				args = append(args, values[a.Type])
			}
		}
		err := s.manager(m.Name, args...).Err
		assert.Equal(t, "org.freedesktop.DBus.Error.NotSupported", errorName(err), "%s: %v", m.Name, err)
		assert.ErrorContains(t, err, m.Name)
	}
}

func TestIntrospect_ListsEveryObject(t *testing.T) {
	s := serve(t)
	s.create(t, "fix-auth", false)
	s.create(t, "3d", false)
	var walk func(path dbus.ObjectPath) []dbus.ObjectPath
	walk = func(path dbus.ObjectPath) []dbus.ObjectPath {
		var text string
		require.NoError(t, s.call(path, introspectableInterface+".Introspect").Store(&text), path)
		var node introspect.Node
		require.NoError(t, xml.Unmarshal([]byte(text), &node))
		found := []dbus.ObjectPath{path}
		for _, child := range node.Children {
			found = append(found, walk(dbus.ObjectPath(strings.TrimSuffix(string(path), "/")+"/"+child.Name))...)
		}
		return found
	}
	assert.Equal(t, []dbus.ObjectPath{
		"/", "/io", "/io/github", "/io/github/corrald", dbusapi.ManagerPath, dbusapi.SessionsPath,
		dbusapi.SessionPath("fix-auth"), dbusapi.SessionPath("3d"), "/org", "/org/freedesktop", logControlPath,
	}, walk("/"))
}

func TestServer_ReturnsSpecificErrors(t *testing.T) {
	s := serve(t)
	path := s.create(t, "shop", false)
	const (
		standard = "org.freedesktop.DBus.Error."
		own      = "io.github.corrald.Corral1.Error."

		ofManager    = dbusapi.ManagerInterface + "."
		ofSession    = dbusapi.SessionInterface + "."
		ofProperties = propertiesInterface + "."
	)
	manager, other := dbusapi.ManagerPath, dbusapi.SessionPath("other")
	noSpec := map[string]dbus.Variant{}
	shopSpec := map[string]dbus.Variant{"Id": dbus.MakeVariant("shop")}
	state := []any{dbusapi.SessionInterface, "State", dbus.MakeVariant("running")}
	long := strings.Repeat("x", 1025)
	for _, row := range []struct {
		name   string
		path   dbus.ObjectPath
		method string
		args   []any
		want   string
		text   string
	}{
		{"unknown object", "/nowhere", introspectableInterface + ".Introspect", nil, standard + "UnknownObject", "/nowhere"},
		{"object of an unknown session", other, ofSession + "Stop", []any{uint64(0)}, standard + "UnknownObject", "other"},
		{"unknown interface", path, "a.b.Stop", nil, standard + "UnknownInterface", "a.b"},
		{
			"the Manager's interface on a session", path, ofManager + "ListSessions", nil,
			standard + "UnknownInterface", "Manager",
		},
		{"unknown method", path, ofSession + "Levitate", nil, standard + "UnknownMethod", "Levitate"},
		{"wrong arguments", path, ofSession + "Stop", []any{"soon"}, standard + "InvalidArgs", `type "s": expected "t"`},
		{
			"unknown property", path, ofProperties + "Get", []any{dbusapi.SessionInterface, "Mood"},
			standard + "UnknownProperty", "Mood",
		},
		{
			"properties of an unknown interface", path, ofProperties + "GetAll", []any{"a.b"},
			standard + "UnknownInterface", "a.b",
		},
		{"a read-only property", path, ofProperties + "Set", state, standard + "PropertyReadOnly", "State"},
		{"unknown session", manager, ofManager + "StopSession", []any{"other", uint64(0)}, own + "NoSuchSession", `"other"`},
		{"unknown agent", manager, ofManager + "CreateSession", []any{"hal", noSpec}, own + "NoSuchAgent", `"hal"`},
		{
			"the session exists", manager, ofManager + "CreateSession", []any{"claude", shopSpec},
			own + "SessionExists", `"shop"`,
		},
		{"an unknown flag", path, ofSession + "Remove", []any{uint64(8)}, standard + "InvalidArgs", "flags"},
		{"a timeout of years", path, ofSession + "Stop", []any{^uint64(0)}, standard + "InvalidArgs", "timeout_usec"},
		{"an invalid signal", path, ofSession + "Kill", []any{"agent", int32(99)}, standard + "InvalidArgs", "99"},
		{"no process to signal", path, ofSession + "Kill", []any{"agent", int32(9)}, own + "InvalidState", "never started"},
		{"unknown processes to signal", path, ofSession + "Kill", []any{"mum", int32(9)}, standard + "InvalidArgs", `"mum"`},
		{"no log yet", path, ofSession + "OpenLog", nil, own + "InvalidState", "no log"},
		{
			"a caller outside of any session", manager, ofManager + "GetSessionByPID", []any{uint32(0)},
			own + "NoSessionForPID", "in no session",
		},
		{
			"a description that is too long", path, ofSession + "SetDescription", []any{long},
			standard + "LimitsExceeded", "Description",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := s.call(row.path, row.method, row.args...).Err
			assert.Equal(t, row.want, errorName(err), "%v", err)
			assert.ErrorContains(t, err, row.text)
		})
	}
}

func TestPanic_IsAnsweredWithAnError(t *testing.T) {
	s := serve(t)
	err := s.manager("Reload").Err
	assert.Equal(t, "io.github.corrald.Corral1.Error.Internal", errorName(err))
	assert.NotContains(t, err.Error(), "nobody expects it", "only the journal has the text")
	report := testbed.Receive(t, s.reports, "report")
	require.ErrorContains(t, report, "panic in Reload: nobody expects it")
	require.ErrorContains(t, report, "server_test.go", "with the stack")
	require.NoError(t, s.manager("ListSessions").Err)
}

// TestSignals_PrecedeTheReply: when a client receives the reply to its call, it has already
// received the changes that the call made.
func TestSignals_PrecedeTheReply(t *testing.T) {
	s := serve(t)
	require.NoError(t, s.client.AddMatchSignal(dbus.WithMatchSender(dbusapi.BusName)))
	s.takeRecorded()
	path := s.create(t, "shop", false)
	assert.Equal(t, []string{
		"InterfacesAdded", "PropertiesChanged Manager [NSessions]", "SessionNew", "reply",
	}, s.takeRecorded())
	require.NoError(t, s.call(path, dbusapi.SessionInterface+".SetDescription", "a shop").Err)
	assert.Equal(t, []string{"PropertiesChanged Session [Description]", "reply"}, s.takeRecorded())
	require.NoError(t, s.call(path, dbusapi.SessionInterface+".SetDescription", "a shop").Err)
	assert.Equal(t, []string{"reply"}, s.takeRecorded(), "nothing has changed")
	require.NoError(t, s.call(path, dbusapi.SessionInterface+".Start").Err)
	recorded := s.takeRecorded()
	n := len(recorded)
	assert.Equal(t, []string{"PropertiesChanged Manager [NRunning]", "SessionStateChanged", "reply"}, recorded[n-3:])
	assert.Contains(t, recorded[n-4], "PropertiesChanged Session [AgentAlive")
	require.NoError(t, s.createWithOnLogin(t, "gone").Err)
	s.takeRecorded()
	require.NoError(t, s.manager("RemoveSession", "gone", uint64(0)).Err)
	assert.Equal(t, []string{
		"InterfacesRemoved", "PropertiesChanged Manager [NSessions]", "SessionRemoved", "reply",
	}, s.takeRecorded())
}

func (s *served) createWithOnLogin(t *testing.T, id string) *dbus.Call {
	t.Helper()
	return s.call(s.create(t, id, false), dbusapi.SessionInterface+".SetOnLogin", "resume")
}

// TestCalls_OfOneSessionStartInOrder: they do, although godbus handles each call on its own
// goroutine.
func TestCalls_OfOneSessionStartInOrder(t *testing.T) {
	s := serve(t)
	path := s.create(t, "shop", false)
	const n = 300
	done := make(chan *dbus.Call, 2*n)
	for i := range n {
		text := fmt.Sprint(i)
		object := s.client.Object(dbusapi.BusName, path)
		object.Go(dbusapi.SessionInterface+".SetDescription", 0, done, text)
		object.Go(dbusapi.SessionInterface+".SetDescription", 0, done, i) // refused; it does not delay the next call
	}
	for range 2 * n {
		testbed.Receive(t, done, "reply")
	}
	var last dbus.Variant
	require.NoError(t, s.call(path, propertiesInterface+".Get", dbusapi.SessionInterface, "Description").Store(&last))
	assert.Equal(t, fmt.Sprint(n-1), last.Value())
	left := 0
	s.tickets.Range(func(any, any) bool { left++; return true })
	assert.Zero(t, left, "no ticket is left over")
}

// TestIntrospect_WhileSessionsAreCreatedAndRemoved: this crashes a program that uses godbus's
// export table with an object for each session.
func TestIntrospect_WhileSessionsAreCreatedAndRemoved(t *testing.T) {
	s := serve(t)
	stop := make(chan struct{})
	var walkers sync.WaitGroup
	for range 4 {
		walkers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = s.call(dbusapi.SessionsPath, introspectableInterface+".Introspect").Err
					_ = s.call(dbusapi.ManagerPath, objectManagerInterface+".GetManagedObjects").Err
				}
			}
		})
	}
	for i := range 50 {
		id := fmt.Sprint("s", i)
		s.create(t, id, false)
		require.NoError(t, s.manager("RemoveSession", id, uint64(0)).Err)
	}
	close(stop)
	walkers.Wait()
	require.NoError(t, s.manager("ListSessions").Err)
}

func TestConnect_RefusesASecondDaemon(t *testing.T) {
	s := serve(t)
	second := New(Info{}, func(error) {})
	address := os.Getenv("DBUS_SESSION_BUS_ADDRESS")
	err := second.Connect(t.Context(), address)
	require.ErrorIs(t, err, ErrNameTaken)
	require.ErrorContains(t, err, fmt.Sprintf("as process %d", os.Getpid()))

	_, err = s.conn.ReleaseName(dbusapi.BusName)
	require.NoError(t, err)
	require.NoError(t, second.Connect(t.Context(), address))
	_, err = s.conn.RequestName(dbusapi.BusName, dbus.NameFlagDoNotQueue) // between Connect and Serve of the second
	require.NoError(t, err)
	require.ErrorIs(t, second.Serve(s.sup), ErrNameTaken)
	_ = second.Close()
	testbed.Receive(t, forwardClose(second.Done()), "end of the connection")
}

// forwardClose sends true to the returned channel once from is closed.
func forwardClose(from <-chan struct{}) <-chan bool {
	to := make(chan bool)
	go func() { <-from; to <- true }()
	return to
}

// TestReply_ThatCannotBeEncodedIsAnError: the caller receives an error instead of waiting until its
// time-out.
func TestReply_ThatCannotBeEncodedIsAnError(t *testing.T) {
	s := serve(t)
	_, err := s.sup.Create(t.Context(), "command", supervisor.Spec{ID: "shop", Command: []string{"true"}, NoStart: true})
	require.NoError(t, err)
	require.NoError(t, s.sup.Describe(t.Context(), "shop", "not UTF-8: \xff")) // no client can send this
	_, err = s.client.Object(dbusapi.BusName, dbusapi.SessionPath("shop")).
		GetProperty(dbusapi.SessionInterface + ".Description")
	require.ErrorContains(t, err, "cannot be encoded")
	require.NoError(t, s.manager("ListSessionsEx").Err, "the bytes are replaced, so that all sessions are listed")
}

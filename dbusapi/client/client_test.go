package client

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }

// fakeDaemon owns the daemon's bus name in these tests and answers the calls to it.
type fakeDaemon struct {
	conn     *dbus.Conn
	sessions map[dbus.ObjectPath]map[string]map[string]dbus.Variant
	rows     atomic.Pointer[[]dbusapi.SessionRowEx]
}

func newDaemon(t testing.TB, ids ...string) *fakeDaemon {
	t.Helper()
	d := &fakeDaemon{conn: testbed.Bus(t), sessions: map[dbus.ObjectPath]map[string]map[string]dbus.Variant{}}
	for _, id := range ids {
		d.sessions[dbusapi.SessionPath(id)] = map[string]map[string]dbus.Variant{
			dbusapi.SessionInterface: sessionProperties(id),
		}
	}
	require.NoError(t, d.conn.ExportMethodTable(map[string]any{
		"GetManagedObjects": func() (map[dbus.ObjectPath]map[string]map[string]dbus.Variant, *dbus.Error) {
			return d.sessions, nil
		},
	}, dbusapi.ManagerPath, "org.freedesktop.DBus.ObjectManager"))
	require.NoError(t, d.conn.ExportMethodTable(map[string]any{
		"StopSession": func(id string, usec uint64) *dbus.Error {
			text := fmt.Sprintf("there is no session %q (%d)", id, usec)
			return dbus.NewError(dbusapi.ErrorName(dbusapi.NoSuchSession), []any{text})
		},
		"CreateSession": func(agent string, spec map[string]dbus.Variant) (string, dbus.ObjectPath, *dbus.Error) {
			return fmt.Sprint(agent, " ", len(spec), " ", spec["Command"].Value(), " ", spec["UnitProperties"].Value()), "/", nil
		},
		"ListSessionsEx": func() ([]dbusapi.SessionRowEx, *dbus.Error) { return *d.rows.Load(), nil },
		"ListSessions": func() ([]dbusapi.SessionRow, *dbus.Error) {
			return []dbusapi.SessionRow{{ID: "shop", State: "running", Path: dbusapi.SessionPath("shop")}}, nil
		},
	}, dbusapi.ManagerPath, dbusapi.ManagerInterface))
	d.ownName(t)
	return d
}

func (d *fakeDaemon) ownName(t testing.TB) {
	t.Helper()
	reply, err := d.conn.RequestName(dbusapi.BusName, dbus.NameFlagDoNotQueue)
	require.NoError(t, err)
	require.Equal(t, dbus.RequestNameReplyPrimaryOwner, reply)
}

// sessionProperties returns a value for every field of Session, and one unknown property.
func sessionProperties(id string) map[string]dbus.Variant {
	properties := map[string]dbus.Variant{}
	s := reflect.ValueOf(Session{Command: []string{"sh", "", "-c"}, Labels: map[string]string{"a": "b"}})
	for i := range s.NumField() {
		properties[s.Type().Field(i).Name] = dbus.MakeVariant(s.Field(i).Interface())
	}
	properties["Id"] = dbus.MakeVariant(id)
	properties["State"] = dbus.MakeVariant("running")
	properties["WorkingDirectory"] = dbus.MakeVariant("/home/anna/src/" + id)
	properties["ANewerDaemonsProperty"] = dbus.MakeVariant(1.5)
	return properties
}

func connectClient(t testing.TB) *Client {
	t.Helper()
	c, err := Connect(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestSession_HasTheContractsProperties(t *testing.T) {
	for _, c := range []struct {
		contract string
		fields   reflect.Type
	}{{dbusapi.ManagerXML, reflect.TypeFor[Manager]()}, {dbusapi.SessionXML, reflect.TypeFor[Session]()}} {
		var node struct {
			Properties []struct {
				Name string `xml:"name,attr"`
				Type string `xml:"type,attr"`
			} `xml:"interface>property"`
		}
		require.NoError(t, xml.Unmarshal([]byte(c.contract), &node))
		require.Equal(t, len(node.Properties), c.fields.NumField())
		for _, property := range node.Properties {
			field, ok := c.fields.FieldByName(property.Name)
			require.True(t, ok, property.Name)
			assert.Equal(t, property.Type, dbus.SignatureOfType(field.Type).String(), property.Name)
		}
	}
}

func TestIsUnreachable_WithoutDaemon(t *testing.T) {
	_, err := connectClient(t).ListSessions(context.Background())
	require.Error(t, err)
	assert.True(t, IsUnreachable(err), err)
}

func TestConnect_WithoutBusStartsNothing(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", testbed.Dir(t))
	for _, address := range []string{"", "autolaunch:", "disabled:"} {
		t.Setenv("DBUS_SESSION_BUS_ADDRESS", address)
		_, err := Connect(context.Background())
		var connect *ConnectError
		require.ErrorAs(t, err, &connect)
		assert.True(t, IsUnreachable(err))
	}
}

func TestConnect_FindsTheBusInTheRuntimeDirectory(t *testing.T) {
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "disabled:")
	require.FileExists(t, os.Getenv("XDG_RUNTIME_DIR")+"/bus")
	connectClient(t)
}

func TestClient_ReturnsTheDaemonsErrors(t *testing.T) {
	newDaemon(t)
	err := connectClient(t).StopSession(context.Background(), "shop", 2*time.Second)
	require.Equal(t, dbusapi.NoSuchSession, dbusapi.ShortErrorName(err))
	require.EqualError(t, err, `there is no session "shop" (2000000)`)
	assert.False(t, IsUnreachable(err))
}

// The daemon stores what is sent as Environment, so the caller's environment must not be among it.
func TestCreateSession_SendsTheEnvironmentOnlyAsTheCallers(t *testing.T) {
	d := newDaemon(t)
	var mu sync.Mutex // the race detector does not see that the reply on the bus is an order
	var sent []string
	invalid := dbus.NewError(dbusapi.ErrorName(dbusapi.InvalidArgs), []any{"refused"})
	require.NoError(t, d.conn.ExportMethodTable(map[string]any{
		"CreateSession": func(_ string, spec map[string]dbus.Variant) (string, dbus.ObjectPath, *dbus.Error) {
			mu.Lock()
			defer mu.Unlock()
			sent = slices.AppendSeq(sent, maps.Keys(spec))
			return "", "/", invalid
		},
	}, dbusapi.ManagerPath, dbusapi.ManagerInterface))
	c := connectClient(t)
	c.Environment = []string{"PATH=/bin"}
	_, err := c.CreateSession(context.Background(), "claude", Spec{})
	require.Equal(t, dbusapi.InvalidArgs, dbusapi.ShortErrorName(err))
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, []string{"CallerEnvironment"}, sent)
}

func TestSpec_SendsOnlyFieldsThatAreSet(t *testing.T) {
	newDaemon(t)
	c := connectClient(t)
	got, err := c.CreateSession(context.Background(), "command", Spec{
		ID:             "x",
		Command:        []string{"a", ""},
		UnitProperties: []dbusapi.UnitProperty{{Name: "TasksMax", Value: dbus.MakeVariant(uint64(64))}},
	})
	require.NoError(t, err)
	assert.Equal(t, "command 3 [a ] [[TasksMax @t 64]]", got)
	got, err = c.CreateSession(context.Background(), "claude", Spec{NoStart: true})
	require.NoError(t, err)
	assert.Equal(t, "claude 1 <nil> <nil>", got)
}

func TestSessions_ReadsAllInOneCall(t *testing.T) {
	newDaemon(t, "shop", "api", "fix-auth")
	sessions, err := connectClient(t).Sessions(context.Background())
	require.NoError(t, err)
	require.Len(t, sessions, 3)
	assert.Equal(t, "api", sessions[0].Id)
	assert.Equal(t, "fix-auth", sessions[1].Id)
	assert.Equal(t, []string{"sh", "", "-c"}, sessions[2].Command)
	assert.Equal(t, map[string]string{"a": "b"}, sessions[2].Labels)
	assert.Equal(t, "/home/anna/src/shop", sessions[2].WorkingDirectory)
}

func TestListSessionsEx_ReturnsRowsInTheirOrder(t *testing.T) {
	d := newDaemon(t)
	sent := []dbusapi.SessionRowEx{
		{
			ID: "shop", Agent: "claude", State: "running", Activity: "idle", Attention: "a", Reason: "r",
			Workspace: "/w", Description: "d", Unit: "u", StateChange: 1, ActiveSince: 2, Leftovers: 3,
			OnLogin: "resume", Path: "/p", More: map[string]dbus.Variant{"Frozen": dbus.MakeVariant(true)},
		},
		{ID: "api", Path: "/q", More: map[string]dbus.Variant{}},
	}
	d.rows.Store(&sent)
	rows, err := connectClient(t).ListSessionsEx(t.Context())
	require.NoError(t, err)
	assert.Equal(t, sent, rows)
}

func TestListSessionsEx_ReadsRowsOfANewerDaemon(t *testing.T) {
	row := []any{
		"shop", "", "running", "", "", "", "", "", "", uint64(1), uint64(2), uint32(3), "ignore",
		dbus.ObjectPath("/p"), map[string]dbus.Variant{},
	}
	rows, err := decodeRowsEx([]any{[][]any{append(slices.Clone(row), "a field of tomorrow")}})
	require.NoError(t, err)
	assert.Equal(t, uint32(3), rows[0].Leftovers)
	for _, body := range [][]any{nil, {"text"}, {[][]any{row[:14]}}, {[][]any{append([]any{7}, row[1:]...)}}} {
		_, err := decodeRowsEx(body)
		assert.Error(t, err)
	}
}

func TestDecode_NamesThePropertyOfAWrongType(t *testing.T) {
	err := Properties{"NRuns": dbus.MakeVariant("three")}.Decode(new(Session))
	assert.ErrorContains(t, err, `"NRuns"`)
}

const changedSignal = "org.freedesktop.DBus.Properties.PropertiesChanged"

func TestWatch_ReturnsEventsInOrder(t *testing.T) {
	d := newDaemon(t)
	c := connectClient(t)
	ctx, cancel := context.WithCancel(context.Background())
	events, err := c.Watch(ctx, "shop")
	require.NoError(t, err)

	changed := map[string]dbus.Variant{
		"State": dbus.MakeVariant("failed"), "ExecMainStatus": dbus.MakeVariant(int32(3)),
	}
	emit := func(path dbus.ObjectPath, name string, body ...any) {
		t.Helper()
		require.NoError(t, d.conn.Emit(path, name, body...))
	}
	shop, details := dbusapi.SessionPath("shop"), map[string]dbus.Variant{"Result": dbus.MakeVariant("exit-code")}
	emit(dbusapi.SessionPath("api"), changedSignal, dbusapi.SessionInterface, changed, []string{}) // not watched
	emit(shop, changedSignal, "some.other.Interface", changed, []string{})
	emit(shop, changedSignal, "malformed")
	emit(shop, changedSignal, dbusapi.SessionInterface, changed, []string{"AttentionMessage"})
	emit(dbusapi.ManagerPath, dbusapi.ManagerInterface+".SessionStateChanged", "shop", shop, "running", "failed", details)
	emit(dbusapi.ManagerPath, dbusapi.ManagerInterface+".SessionRemoved", "shop", shop)

	first := testbed.Receive(t, events, "change").(SessionChanged)
	assert.Equal(t, "shop", first.ID)
	assert.Equal(t, []string{"AttentionMessage"}, first.Invalidated)
	s := Session{NRuns: 2}
	require.NoError(t, first.Properties.Decode(&s))
	assert.Equal(t, Session{State: "failed", ExecMainStatus: 3, NRuns: 2}, s)
	second := testbed.Receive(t, events, "state change").(StateChanged)
	assert.Equal(t, "running failed", second.Old+" "+second.New)
	assert.Equal(t, SessionRemoved{"shop"}, testbed.Receive(t, events, "removal"))

	cancel()
	for range events {
	}
}

func TestWatch_OfAllSessionsIncludesTheDaemon(t *testing.T) {
	d := newDaemon(t)
	events, err := connectClient(t).Watch(t.Context())
	require.NoError(t, err)
	off := map[string]dbus.Variant{"Lingering": dbus.MakeVariant(false)}
	shop := dbusapi.SessionPath("shop")
	require.NoError(t, d.conn.Emit(dbusapi.ManagerPath, changedSignal, dbusapi.SessionInterface, off, []string{}))
	require.NoError(t, d.conn.Emit(dbusapi.ManagerPath, changedSignal, dbusapi.ManagerInterface, off, []string{}))
	require.NoError(t, d.conn.Emit(shop, changedSignal, dbusapi.SessionInterface, off, []string{}))
	change := testbed.Receive(t, events, "change of the daemon").(ManagerChanged)
	m := Manager{Version: "1", Lingering: true}
	require.NoError(t, change.Properties.Decode(&m))
	assert.Equal(t, Manager{Version: "1"}, m)
	assert.Equal(t, "shop", testbed.Receive(t, events, "change of a session").(SessionChanged).ID)
}

// TestWatch_IgnoresForgedOwnerChanges: another connection can send neither the daemon's signals nor
// the bus driver's report that the daemon's name has a new owner.
func TestWatch_IgnoresForgedOwnerChanges(t *testing.T) {
	d := newDaemon(t)
	c := connectClient(t)
	events, err := c.Watch(t.Context())
	require.NoError(t, err)
	otherConn, shop := testbed.Bus(t), dbusapi.SessionPath("shop")
	off := map[string]dbus.Variant{"Lingering": dbus.MakeVariant(false)}
	send := func(path dbus.ObjectPath, name string, body ...any) {
		testbed.SendSignal(t, otherConn, c.conn.Names()[0], path, name, body...)
	}
	forge := func() {
		send(dbusapi.ManagerPath, dbusapi.ManagerInterface+".SessionRemoved", "shop", shop)
		send(dbusapi.ManagerPath, changedSignal, dbusapi.ManagerInterface, off, []string{})
	}
	forge()
	for _, owner := range []string{"", otherConn.Names()[0]} {
		send("/org/freedesktop/DBus", "org.freedesktop.DBus.NameOwnerChanged", dbusapi.BusName, "", owner)
	}
	forge()
	last := dbusapi.SessionPath("last")
	require.NoError(t, d.conn.Emit(dbusapi.ManagerPath, dbusapi.ManagerInterface+".SessionNew", "last", last))
	assert.Equal(t, SessionNew{"last"}, testbed.Receive(t, events, "signal of the daemon"))
}

func TestWatch_ReportsThatTheDaemonStopsAndStarts(t *testing.T) {
	d := newDaemon(t)
	events, err := connectClient(t).Watch(t.Context())
	require.NoError(t, err)
	_, err = d.conn.ReleaseName(dbusapi.BusName)
	require.NoError(t, err)
	assert.Equal(t, DaemonGone{}, testbed.Receive(t, events, "departure"))
	d.ownName(t)
	assert.Equal(t, DaemonBack{}, testbed.Receive(t, events, "return"))
}

func TestWatch_IgnoresSignalsOfOtherConnections(t *testing.T) {
	d := newDaemon(t)
	c := connectClient(t)
	events, err := c.Watch(t.Context())
	require.NoError(t, err)
	peer := testbed.Bus(t)
	signal := func(conn *dbus.Conn, id string) {
		t.Helper()
		message := &dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath:        dbus.MakeVariant(dbusapi.ManagerPath),
			dbus.FieldInterface:   dbus.MakeVariant(dbusapi.ManagerInterface),
			dbus.FieldMember:      dbus.MakeVariant("SessionNew"),
			dbus.FieldDestination: dbus.MakeVariant(c.conn.Names()[0]),
			dbus.FieldSignature:   dbus.MakeVariant(dbus.ParseSignatureMust("so")),
		}, Body: []any{id, dbusapi.SessionPath(id)}}
		require.NoError(t, conn.Send(message, nil).Err)
	}
	signal(peer, "forged")
	// The reply shows that the bus has delivered the forged signal.
	require.NoError(t, peer.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err)
	signal(d.conn, "true")
	assert.Equal(t, SessionNew{"true"}, testbed.Receive(t, events, "signal"))
}

func TestWatch_ClosesEventsWhenTheBusIsLost(t *testing.T) {
	newDaemon(t)
	c := connectClient(t)
	events, err := c.Watch(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.Close())
	for range events {
	}
	_, err = c.ListSessions(context.Background())
	assert.True(t, IsUnreachable(err), err)
}

func TestIsUnreachable_AfterATimeout(t *testing.T) {
	assert.True(t, IsUnreachable(fmt.Errorf("cannot call: %w", context.DeadlineExceeded)))
	assert.False(t, IsUnreachable(errors.New("refused")))
}

func BenchmarkListSessionsEx(b *testing.B) {
	d := newDaemon(b)
	var sent []dbusapi.SessionRowEx
	for i := range 1000 {
		id := fmt.Sprintf("session-%d", i)
		sent = append(sent, dbusapi.SessionRowEx{ID: id, Workspace: "/home/anna/src/shop", Path: "/p"})
	}
	d.rows.Store(&sent)
	c := connectClient(b)
	for b.Loop() {
		if rows, err := c.ListSessionsEx(context.Background()); err != nil || len(rows) != 1000 {
			b.Fatal(len(rows), err)
		}
	}
}

func BenchmarkSessions(b *testing.B) {
	var ids []string
	for i := range 1000 {
		ids = append(ids, fmt.Sprintf("session-%d", i))
	}
	newDaemon(b, ids...)
	c := connectClient(b)
	for b.Loop() {
		sessions, err := c.Sessions(context.Background())
		if err != nil || len(sessions) != 1000 {
			b.Fatal(len(sessions), err)
		}
	}
}

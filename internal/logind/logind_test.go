package logind

import (
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }

// mock is a login manager on the test bed's bus.
type mock struct {
	bus             *dbus.Conn
	shutdown, sleep atomic.Bool
	blocked         atomic.Pointer[chan struct{}] // replies wait until it is closed
	queries         atomic.Int32
}

func newMock(t *testing.T) *mock {
	t.Helper()
	m := &mock{bus: testbed.Bus(t)}
	properties := map[string]*atomic.Bool{"PreparingForShutdown": &m.shutdown, "PreparingForSleep": &m.sleep}
	get := func(_, property string) (dbus.Variant, *dbus.Error) {
		m.queries.Add(1)
		if blocked := m.blocked.Load(); blocked != nil {
			<-*blocked
		}
		return dbus.MakeVariant(properties[property].Load()), nil
	}
	table := map[string]any{"Get": get}
	require.NoError(t, m.bus.ExportMethodTable(table, path, "org.freedesktop.DBus.Properties"))
	reply, err := m.bus.RequestName(name, dbus.NameFlagDoNotQueue)
	require.NoError(t, err)
	require.Equal(t, dbus.RequestNameReplyPrimaryOwner, reply)
	return m
}

func (m *mock) emit(t *testing.T, member string, on bool) {
	t.Helper()
	require.NoError(t, m.bus.Emit(path, manager+"."+member, on))
}

func connectTo(t *testing.T) *Manager {
	t.Helper()
	m, err := Connect(t.Context(), os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// TestPreparingForShutdown_IsReadFromTheProperty: the value of the login manager's property is
// reported, not the value in its signal.
func TestPreparingForShutdown_IsReadFromTheProperty(t *testing.T) {
	l := newMock(t)
	m := connectTo(t)
	assert.False(t, testbed.Receive(t, m.PreparingForShutdown(), "the initial value"))
	l.emit(t, "PrepareForShutdown", true)
	assert.False(t, testbed.Receive(t, m.PreparingForShutdown(), "a value"))
	l.shutdown.Store(true)
	l.emit(t, "PrepareForShutdown", false)
	assert.True(t, testbed.Receive(t, m.PreparingForShutdown(), "a value"))
	l.emit(t, "PrepareForSleep", true)
	assert.False(t, testbed.Receive(t, m.PreparingForSleep(), "a value"))
	l.sleep.Store(true)
	l.emit(t, "PrepareForSleep", true)
	assert.True(t, testbed.Receive(t, m.PreparingForSleep(), "a value"))
	assert.Empty(t, m.PreparingForShutdown())
}

// TestPreparingForShutdown_IgnoresForgedSignals: another connection can send the same signals, and
// can imitate the bus's report that it owns the name.
func TestPreparingForShutdown_IgnoresForgedSignals(t *testing.T) {
	l := newMock(t)
	m := connectTo(t)
	testbed.Receive(t, m.PreparingForShutdown(), "the initial value")
	before := l.queries.Load()
	other, to := testbed.Bus(t), m.conn.Names()[0]
	l.shutdown.Store(true)
	l.sleep.Store(true)
	for range 2 {
		testbed.SendSignal(t, other, to, path, manager+".PrepareForShutdown", true)
		testbed.SendSignal(t, other, to, path, manager+".PrepareForSleep", true)
		testbed.SendSignal(t, other, to, "/org/freedesktop/DBus", bus.Name+".NameOwnerChanged",
			name, "", other.Names()[0])
	}
	l.emit(t, "PrepareForSleep", true)
	assert.True(t, testbed.Receive(t, m.PreparingForSleep(), "a value"))
	assert.Empty(t, m.PreparingForShutdown())
	assert.Equal(t, before+1, l.queries.Load(), "forged signals cause no query")
}

// TestPreparingForShutdown_WaitsForAHangingLoginManager: a late reply is still reported, a new
// login manager that replaces the hanging one is queried, and Close waits for neither.
func TestPreparingForShutdown_WaitsForAHangingLoginManager(t *testing.T) {
	l := newMock(t)
	m := connectTo(t)
	testbed.Receive(t, m.PreparingForShutdown(), "the initial value")
	before, release := l.queries.Load(), make(chan struct{})
	l.blocked.Store(&release)
	for range 100 {
		l.emit(t, "PrepareForShutdown", true)
		l.emit(t, "PrepareForSleep", true)
	}
	testbed.Poll(t, "the property is queried", func() bool { return l.queries.Load() > before })
	l.shutdown.Store(true)
	l.blocked.Store(nil)
	close(release)
	assert.True(t, testbed.Receive(t, m.PreparingForShutdown(), "a value"))
	assert.False(t, testbed.Receive(t, m.PreparingForSleep(), "a value"))

	l.blocked.Store(new(chan struct{})) // never closed
	l.emit(t, "PrepareForShutdown", true)
	testbed.Poll(t, "the property is queried", func() bool { return l.queries.Load() > before+2 })
	require.NoError(t, l.bus.Close())
	l = newMock(t)
	for testbed.Receive(t, m.PreparingForShutdown(), "the reply of the new login manager") { // after earlier replies
		continue
	}
	l.blocked.Store(new(chan struct{}))
	l.emit(t, "PrepareForShutdown", true)
	testbed.Poll(t, "the property is queried", func() bool { return l.queries.Load() > 1 })
	require.NoError(t, m.Close())
	for range m.PreparingForShutdown() { // it is closed although there is no reply
	}
}

// TestConnect_SurvivesMaliciousMessages: every local user can send messages to the connection.
func TestConnect_SurvivesMaliciousMessages(t *testing.T) {
	address := os.Getenv("DBUS_SESSION_BUS_ADDRESS")
	m, err := Connect(t.Context(), address)
	require.NoError(t, err)
	defer func() { _ = m.Close() }()
	other, err := dbus.Connect(address)
	require.NoError(t, err)
	defer func() { _ = other.Close() }()
	call := func(args ...any) string {
		var refusal dbus.Error
		require.ErrorAs(t, other.Object(m.conn.Names()[0], "/a").Call("a.b.C", 0, args...).Err, &refusal)
		return refusal.Name
	}
	self := dbus.UnixFD(os.Stdin.Fd())
	assert.Equal(t, "org.freedesktop.DBus.Error.InvalidArgs", call([]dbus.UnixFD{self, self}))
	assert.Equal(t, "org.freedesktop.DBus.Error.LimitsExceeded", call(strings.Repeat("x", 30<<20)))
	assert.True(t, m.conn.Connected())
	testbed.Poll(t, "the connection still works", func() bool {
		return m.conn.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err == nil
	})
}

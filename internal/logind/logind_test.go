package logind

import (
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }

// mock stands in for the login manager, on the test bed's bus.
type mock struct {
	bus         *dbus.Conn
	down, sleep atomic.Bool
	held        atomic.Pointer[chan struct{}] // what an answer waits for
	looks       atomic.Int32
}

func newMock(t *testing.T) *mock {
	t.Helper()
	m := &mock{bus: testbed.Bus(t)}
	require.NoError(t, m.bus.ExportMethodTable(map[string]any{"Get": func(_, property string) (dbus.Variant, *dbus.Error) {
		m.looks.Add(1)
		if held := m.held.Load(); held != nil {
			<-*held
		}
		return dbus.MakeVariant(map[string]*atomic.Bool{"PreparingForShutdown": &m.down, "PreparingForSleep": &m.sleep}[property].Load()), nil
	}}, path, "org.freedesktop.DBus.Properties"))
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

// TestPreparingForShutdown_IsReadFromTheProperty: what counts is what the login manager answers
// when it is asked, and not what a signal says.
func TestPreparingForShutdown_IsReadFromTheProperty(t *testing.T) {
	l := newMock(t)
	m := connectTo(t)
	assert.False(t, testbed.Receive(t, m.PreparingForShutdown(), "what holds at the beginning"))
	l.emit(t, "PrepareForShutdown", true)
	assert.False(t, testbed.Receive(t, m.PreparingForShutdown(), "an answer"))
	l.down.Store(true)
	l.emit(t, "PrepareForShutdown", false)
	assert.True(t, testbed.Receive(t, m.PreparingForShutdown(), "an answer"))
	l.emit(t, "PrepareForSleep", true)
	assert.False(t, testbed.Receive(t, m.PreparingForSleep(), "an answer"))
	l.sleep.Store(true)
	l.emit(t, "PrepareForSleep", true)
	assert.True(t, testbed.Receive(t, m.PreparingForSleep(), "an answer"))
	assert.Empty(t, m.PreparingForShutdown())
}

// TestPreparingForShutdown_IgnoresForgedSignals: another connection can send the same signals, and
// can say that it owns the name.
func TestPreparingForShutdown_IgnoresForgedSignals(t *testing.T) {
	l := newMock(t)
	m := connectTo(t)
	testbed.Receive(t, m.PreparingForShutdown(), "what holds at the beginning")
	looks := l.looks.Load()
	stranger, to := testbed.Bus(t), m.conn.Names()[0]
	l.down.Store(true)
	l.sleep.Store(true)
	for range 2 {
		testbed.SendSignal(t, stranger, to, path, manager+".PrepareForShutdown", true)
		testbed.SendSignal(t, stranger, to, path, manager+".PrepareForSleep", true)
		testbed.SendSignal(t, stranger, to, "/org/freedesktop/DBus", busName+".NameOwnerChanged", name, "", stranger.Names()[0])
	}
	l.emit(t, "PrepareForSleep", true)
	assert.True(t, testbed.Receive(t, m.PreparingForSleep(), "an answer"))
	assert.Empty(t, m.PreparingForShutdown())
	assert.Equal(t, looks+1, l.looks.Load(), "it was not even asked")
}

// TestPreparingForShutdown_WaitsForAHangingLoginManager: what it says late still holds, another one
// that takes its place is asked, and Close waits for neither.
func TestPreparingForShutdown_WaitsForAHangingLoginManager(t *testing.T) {
	l := newMock(t)
	m := connectTo(t)
	testbed.Receive(t, m.PreparingForShutdown(), "what holds at the beginning")
	looks, release := l.looks.Load(), make(chan struct{})
	l.held.Store(&release)
	for range 100 {
		l.emit(t, "PrepareForShutdown", true)
		l.emit(t, "PrepareForSleep", true)
	}
	testbed.Poll(t, "it is asked", func() bool { return l.looks.Load() > looks })
	l.down.Store(true)
	l.held.Store(nil)
	close(release)
	assert.True(t, testbed.Receive(t, m.PreparingForShutdown(), "an answer"))
	assert.False(t, testbed.Receive(t, m.PreparingForSleep(), "an answer"))

	l.held.Store(new(chan struct{})) // nil: for ever
	l.emit(t, "PrepareForShutdown", true)
	testbed.Poll(t, "it is asked", func() bool { return l.looks.Load() > looks+2 })
	require.NoError(t, l.bus.Close())
	l = newMock(t)
	for testbed.Receive(t, m.PreparingForShutdown(), "the answer of the next login manager") { // answers may be left from before
		continue
	}
	l.held.Store(new(chan struct{}))
	l.emit(t, "PrepareForShutdown", true)
	testbed.Poll(t, "it is asked", func() bool { return l.looks.Load() > 1 })
	require.NoError(t, m.Close())
	for range m.PreparingForShutdown() { // is closed, although there is no answer
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
	testbed.Poll(t, "it calls", func() bool { return m.conn.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err == nil })
}

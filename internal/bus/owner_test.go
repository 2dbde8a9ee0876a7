package bus_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/testbed"
)

// ownedName is the well-known name of these tests.
const ownedName = "io.github.corrald.TestOwner"

func ownName(t *testing.T, conn *dbus.Conn) {
	t.Helper()
	reply, err := conn.RequestName(ownedName, dbus.NameFlagDoNotQueue)
	require.NoError(t, err)
	require.Equal(t, dbus.RequestNameReplyPrimaryOwner, reply)
}

// send sends a signal to one connection only.
func send(t *testing.T, from, to *dbus.Conn, name string, body ...any) {
	t.Helper()
	testbed.SendSignal(t, from, to.Names()[0], "/a", name, body...)
}

// TestOwner_IgnoresForgedSignals: while the name gets an owner, changes its owner and is released,
// a signal is accepted only if its sender owned the name when it was sent. Signals of other
// connections are ignored, even if they imitate the bus's report of a new owner.
func TestOwner_IgnoresForgedSignals(t *testing.T) {
	listener, err := bus.Dial(t.Context(), os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	signals := make(chan *dbus.Signal, 64)
	listener.Signal(signals)
	first, second, forger := testbed.Bus(t), testbed.Bus(t), testbed.Bus(t)
	ownName(t, first)
	send(t, first, listener, "a.b.C", "before WatchOwner")
	owner, err := bus.WatchOwner(t.Context(), listener, ownedName)
	require.NoError(t, err)
	assert.Equal(t, first.Names()[0], owner.UniqueName())

	emit := func(from *dbus.Conn, who, when string) { send(t, from, listener, "a.b.C", who+" "+when) }
	emitFromAll := func(when string) {
		emit(first, "first", when)
		emit(second, "second", when)
		emit(forger, "forger", when)
		for _, now := range []string{forger.Names()[0], ""} {
			send(t, forger, listener, "org.freedesktop.DBus.NameOwnerChanged", ownedName, owner.UniqueName(), now)
		}
	}
	emitFromAll("owned by first")
	_, err = first.ReleaseName(ownedName)
	require.NoError(t, err)
	emitFromAll("without an owner")
	ownName(t, second)
	emitFromAll("owned by second")
	require.NoError(t, second.Close())
	testbed.Poll(t, "the name is free", func() bool {
		var owned bool
		err := forger.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, ownedName).Store(&owned)
		return err == nil && !owned
	})
	ownName(t, first)
	emit(first, "first", "again")
	emit(forger, "forger", "finally")
	emit(first, "first", "finally")

	var accepted, owners []string
	for len(accepted) == 0 || accepted[len(accepted)-1] != "first finally" {
		signal := testbed.Receive(t, signals, "a signal")
		if owner.Update(signal) {
			owners = append(owners, owner.UniqueName())
		} else if owner.Sent(signal) {
			accepted = append(accepted, fmt.Sprint(signal.Body...))
		}
	}
	assert.Equal(t, []string{
		"before WatchOwner", "first owned by first", "second owned by second", "first again", "first finally",
	}, accepted)
	assert.Equal(t, []string{"", second.Names()[0], "", first.Names()[0]}, owners)
}

// TestWatchOwner_StartsNoService: a name without an owner is not an error, and a service that could
// be activated is not started.
func TestWatchOwner_StartsNoService(t *testing.T) {
	listener, err := bus.Dial(t.Context(), os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	signals := make(chan *dbus.Signal, 64)
	listener.Signal(signals)
	owner, err := bus.WatchOwner(t.Context(), listener, ownedName)
	require.NoError(t, err)
	assert.Empty(t, owner.UniqueName())
	assert.False(t, owner.Sent(&dbus.Signal{Name: "a.b.C"}), "a signal without a sender, while there is no owner")
	assert.False(t, owner.Update(&dbus.Signal{
		Name: "org.freedesktop.DBus.NameOwnerChanged", Body: []any{ownedName, "", ":1.1"},
	}))

	later := testbed.Bus(t)
	ownName(t, later)
	testbed.Poll(t, "the new owner", func() bool { return owner.Update(testbed.Receive(t, signals, "a signal")) })
	assert.Equal(t, later.Names()[0], owner.UniqueName())

	require.NoError(t, listener.Close())
	_, err = bus.WatchOwner(t.Context(), listener, ownedName)
	require.Error(t, err, "the connection is closed")
}

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

// send sends a signal to one connection alone.
func send(t *testing.T, from, to *dbus.Conn, name string, body ...any) {
	t.Helper()
	testbed.SendSignal(t, from, to.Names()[0], "/a", name, body...)
}

// TestOwner_IgnoresForgedSignals: as the name comes, changes hands, and goes, a signal counts if
// its sender owned the name when it was sent. What others send, the very signal by which the bus
// reports an owner included, does not.
func TestOwner_IgnoresForgedSignals(t *testing.T) {
	listener, err := bus.Dial(t.Context(), os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	signals := make(chan *dbus.Signal, 64)
	listener.Signal(signals)
	first, second, stranger := testbed.Bus(t), testbed.Bus(t), testbed.Bus(t)
	ownName(t, first)
	send(t, first, listener, "a.b.C", "before the question")
	owner, err := bus.WatchOwner(t.Context(), listener, ownedName)
	require.NoError(t, err)
	assert.Equal(t, first.Names()[0], owner.UniqueName())

	emit := func(from *dbus.Conn, who, when string) { send(t, from, listener, "a.b.C", who+" "+when) }
	everybody := func(when string) {
		emit(first, "first", when)
		emit(second, "second", when)
		emit(stranger, "stranger", when)
		for _, now := range []string{stranger.Names()[0], ""} {
			send(t, stranger, listener, "org.freedesktop.DBus.NameOwnerChanged", ownedName, owner.UniqueName(), now)
		}
	}
	everybody("owned by first")
	_, err = first.ReleaseName(ownedName)
	require.NoError(t, err)
	everybody("owned by nobody")
	ownName(t, second)
	everybody("owned by second")
	require.NoError(t, second.Close())
	testbed.Poll(t, "the name is free", func() bool {
		var owned bool
		return stranger.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, ownedName).Store(&owned) == nil && !owned
	})
	ownName(t, first)
	emit(first, "first", "again")
	emit(stranger, "stranger", "at last")
	emit(first, "first", "at last")

	var believed, owners []string
	for len(believed) == 0 || believed[len(believed)-1] != "first at last" {
		signal := testbed.Receive(t, signals, "a signal")
		if owner.Update(signal) {
			owners = append(owners, owner.UniqueName())
		} else if owner.Sent(signal) {
			believed = append(believed, fmt.Sprint(signal.Body...))
		}
	}
	assert.Equal(t, []string{"before the question", "first owned by first", "second owned by second", "first again", "first at last"}, believed)
	assert.Equal(t, []string{"", second.Names()[0], "", first.Names()[0]}, owners)
}

// TestWatchOwner_StartsNoService: a name without an owner is no error, and a service that could be
// started for it is not.
func TestWatchOwner_StartsNoService(t *testing.T) {
	listener, err := bus.Dial(t.Context(), os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	signals := make(chan *dbus.Signal, 64)
	listener.Signal(signals)
	owner, err := bus.WatchOwner(t.Context(), listener, ownedName)
	require.NoError(t, err)
	assert.Empty(t, owner.UniqueName())
	assert.False(t, owner.Sent(&dbus.Signal{Name: "a.b.C"}), "a signal without a sender is not that of a name without an owner")
	assert.False(t, owner.Update(&dbus.Signal{Name: "org.freedesktop.DBus.NameOwnerChanged", Body: []any{ownedName, "", ":1.1"}}))

	later := testbed.Bus(t)
	ownName(t, later)
	testbed.Poll(t, "the new owner", func() bool { return owner.Update(testbed.Receive(t, signals, "a signal")) })
	assert.Equal(t, later.Names()[0], owner.UniqueName())

	require.NoError(t, listener.Close())
	_, err = bus.WatchOwner(t.Context(), listener, ownedName)
	require.Error(t, err, "a bus that is lost is an error")
}

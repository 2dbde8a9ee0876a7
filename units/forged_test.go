package units

import (
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/testbed"
)

// TestSignals_FromOtherSendersAreIgnored: any connection can send a message that looks like a
// signal of systemd. Such messages do not become events, do not end a start job, and are not
// recorded as the reason for an end.
func TestSignals_FromOtherSendersAreIgnored(t *testing.T) {
	m := connect(t)
	const name, starting = "app-corral-forged.scope", "app-corral-starting.scope"
	pid, started := start(t, m, name)
	var w *watch
	require.NoError(t, m.runOnLoop(t.Context(), func(ws *watches) { w = m.addWatch(ws, starting) }))

	other := testbed.Bus(t)
	send := func(path dbus.ObjectPath, name string, body ...any) {
		t.Helper()
		testbed.SendSignal(t, other, m.conn.Names()[0], path, name, body...)
	}
	forged := func() {
		for _, result := range []string{"timeout", "oom-kill"} {
			changed := map[string]dbus.Variant{
				"ActiveState": dbus.MakeVariant("deactivating"), "Result": dbus.MakeVariant(result),
			}
			send(unitPath(name), bus.Properties+".PropertiesChanged", bus.SystemdUnit, changed, []string{})
		}
		send(unitPath(name), scopeIface+".RequestStop")
		send(bus.SystemdPath, bus.SystemdManager+".JobRemoved", uint32(1), dbus.ObjectPath("/x"), starting, "failed")
		send(bus.SystemdPath, bus.SystemdManager+".UnitRemoved", name, unitPath(name))
		send(bus.SystemdPath, bus.SystemdManager+".Reloading", false)
	}
	forged()
	send("/org/freedesktop/DBus", "org.freedesktop.DBus.NameOwnerChanged", bus.SystemdName, "", other.Names()[0])
	forged()

	kill(t, pid)
	assert.Equal(t, Ended{name, "success", started.InvocationID}, testbed.Receive(t, m.Events(), "the end of the scope"))
	require.NoError(t,
		m.runOnLoop(t.Context(), func(*watches) { assert.Empty(t, w.startResult, "the end of a start job") }))
}

// TestSignals_AreAcceptedAfterReexec: a reexecuted systemd has a new unique name, and its signals
// are accepted from that name.
func TestSignals_AreAcceptedAfterReexec(t *testing.T) {
	m := connect(t)
	const name = "app-corral-again.scope"
	_, _ = start(t, m, name)
	for range 3 {
		testbed.Systemctl(t, "daemon-reexec")
		for testbed.Receive(t, m.Events(), "Resync") != (Resync{}) {
			continue
		}
	}
	testbed.Systemctl(t, "stop", "--no-block", name)
	assert.Equal(t, StopRequested{Name: name}, next(t, m))
}

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// TestAThousandCallsAtOnce of one client: each is answered as it should be, and those about one session are done in order.
func TestAThousandCallsAtOnce(t *testing.T) {
	d := startDaemon(t)
	const sessions, calls = 10, 1000
	id := func(n int) string { return fmt.Sprint("s", n%sessions) }
	for n := range sessions {
		d.create(t, id(n), spec{"Command": []string{"true"}, "Start": false})
	}
	mark := d.heard.mark()
	all := make([]*dbus.Call, calls)
	for n := range all {
		method, args := "SetDescription", []any{fmt.Sprint(n)}
		path, iface := dbusapi.SessionPath(id(n)), dbusapi.SessionInterface
		if n%4 == 3 {
			path, iface, method, args = dbusapi.ManagerPath, dbusapi.ManagerInterface, "GetSession", []any{id(n)}
		}
		all[n] = d.bus.Object(dbusapi.BusName, path).Go(iface+"."+method, 0, make(chan *dbus.Call, 1), args...)
	}
	for n, call := range all {
		require.NoError(t, testbed.Receive(t, call.Done, "answer").Err, n)
		if n%4 == 3 {
			assert.Equal(t, []any{dbusapi.SessionPath(id(n))}, call.Body, "the answer to call %d", n)
		}
	}
	last := map[dbus.ObjectPath]int{}
	for _, signal := range d.heard.after(mark) {
		if signal.Name != propertiesChanged || signal.Path == dbusapi.ManagerPath {
			continue
		}
		changed, _ := signal.Body[1].(map[string]dbus.Variant)
		text, _ := changed["Description"].Value().(string)
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, n, last[signal.Path])
		last[signal.Path] = n
	}
	for n := calls - 2*sessions; n < calls; n++ {
		if n%4 != 3 {
			assert.GreaterOrEqual(t, last[dbusapi.SessionPath(id(n))], n, "the last one counts")
		}
	}
}

// resident is how much memory the daemon has, in KiB.
func (d *corrald) resident(t *testing.T) int {
	t.Helper()
	_, after, found := strings.Cut(readFile(t, fmt.Sprintf("/proc/%d/status", d.process.Process.Pid)), "VmRSS:")
	require.True(t, found)
	n, err := strconv.Atoi(strings.Fields(after)[0])
	require.NoError(t, err)
	return n
}

// TestFloodOfCalls: a client that asks for everything as fast as it can, and reads no answer, is served; so are the others, and what it asks for does not
// pile up here.
func TestFloodOfCalls(t *testing.T) {
	d := startDaemon(t)
	for n := range 5 {
		d.create(t, fmt.Sprint("s", n), spec{"Command": []string{"true"}, "Start": false})
	}
	before := d.resident(t)
	flood, err := dbus.Connect(os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = flood.Close() })
	for range 5000 {
		flood.Object(dbusapi.BusName, dbusapi.ManagerPath).Go("org.freedesktop.DBus.ObjectManager.GetManagedObjects", 0, nil)
	}
	s := d.run(t, "served", "exec sleep 1000")
	s.become("running")
	s.must("Stop", uint64(0))
	s.become("stopped")
	// Its last call is answered after all that were before it.
	testbed.Poll(t, "the flood is over", func() bool {
		return flood.Object(dbusapi.BusName, dbusapi.ManagerPath).Call(dbusapi.ManagerInterface+".ListSessions", 0).Err == nil
	})
	assert.Less(t, d.resident(t)-before, 1<<20, "KiB: each of the calls that a client may have under way takes its part, the more so under the race detector")
}

// TestClientThatDisappears in the middle of its calls: they are done, and nobody else is the worse for it.
func TestClientThatDisappears(t *testing.T) {
	d := startDaemon(t)
	s := d.patient(t, "shop")
	for range 20 {
		gone, err := dbus.Connect(os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
		require.NoError(t, err)
		gone.Object(dbusapi.BusName, dbusapi.ManagerPath).Go("org.freedesktop.DBus.ObjectManager.GetManagedObjects", 0, nil)
		call := gone.Object(dbusapi.BusName, dbusapi.SessionPath("shop")).Go(dbusapi.SessionInterface+".Restart", 0, make(chan *dbus.Call, 1))
		require.NoError(t, gone.Close())
		<-call.Done
		s.wait("there", func(f facts) bool { return f.text("State") != "" })
	}
	s.wait("running or at rest", func(f facts) bool { return f.text("State") == "running" || f.text("State") == "stopped" })
	other := d.run(t, "other", "exec sleep 1000")
	other.become("running")
	s.must("Stop", uint64(0))
	s.become("stopped")
}

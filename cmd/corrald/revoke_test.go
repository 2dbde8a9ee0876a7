package main

import (
	"slices"
	"syscall"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/testbed"
)

// TestCreateSession_IsRevokedWhenItsCallerDisconnects makes calls that start a run while the daemon
// is stopped, and disconnects before it continues. No run starts, except that of a call that asked
// for no reply.
func TestCreateSession_IsRevokedWhenItsCallerDisconnects(t *testing.T) {
	d := startDaemon(t)
	for _, id := range []string{"begun", "started"} {
		d.create(t, id, spec{"Command": []string{"sleep", "1000"}, "Start": false})
	}
	ended := d.run(t, "suspended", "exec sleep 1000")
	ended.must("Suspend")
	require.NoError(t, d.process.Process.Signal(syscall.SIGSTOP))
	testbed.Poll(t, "the daemon is stopped", func() bool {
		st, err := proc.Stat(d.process.Process.Pid)
		return err == nil && st.State == 'T'
	})

	caller := testbed.Bus(t)
	ask := func(flags dbus.Flags, method string, args ...any) {
		t.Helper()
		manager := caller.Object(dbusapi.BusName, dbusapi.ManagerPath)
		call := manager.Go(dbusapi.ManagerInterface+"."+method, flags, make(chan *dbus.Call, 1), args...)
		require.NoError(t, call.Err)
	}
	create := func(id string) []any {
		return []any{"command", spec{"Id": id, "Command": []string{"sleep", "1000"}, "WorkingDirectory": d.dir}.variants()}
	}
	ask(0, "CreateSession", create("created")...)
	ask(0, "StartSession", "started")
	ask(0, "BeginSession", "begun", "start", map[string]dbus.Variant{})
	ask(0, "ResumeAll")
	ask(dbus.FlagNoReplyExpected, "CreateSession", create("unattended")...)
	require.NoError(t, caller.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err, "the bus has received all calls")
	require.NoError(t, caller.Close())
	testbed.Poll(t, "the caller is gone from the bus", func() bool {
		var owned bool
		require.NoError(t, d.bus.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, caller.Names()[0]).Store(&owned))
		return !owned
	})
	require.NoError(t, d.process.Process.Signal(syscall.SIGCONT))

	testbed.Poll(t, "the session of the call without a reply exists", func() bool {
		return slices.Contains(d.ids(t), "unattended")
	})
	d.session(t, "unattended").waitState("running")
	require.Equal(t, 0, d.kill(syscall.SIGTERM), "all calls are handled before the daemon exits")
	d.launch()
	assert.ElementsMatch(t, []string{"begun", "started", "suspended", "unattended"}, d.ids(t))
	for id, state := range map[string]string{
		"begun": "created", "started": "created", "suspended": "suspended", "unattended": "running",
	} {
		assert.Equal(t, state, d.session(t, id).properties().text("State"), id)
	}
}

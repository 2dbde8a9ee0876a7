package main

import (
	"os"
	"syscall"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// connections returns the unique names of all connections of the daemon to the bus.
func (d *corrald) connections(t *testing.T, bus *dbus.Conn) (unique []string) {
	t.Helper()
	var names []string
	require.NoError(t, bus.BusObject().Call("org.freedesktop.DBus.ListNames", 0).Store(&names))
	for _, name := range names {
		var pid uint32
		err := bus.BusObject().Call("org.freedesktop.DBus.GetConnectionUnixProcessID", 0, name).Store(&pid)
		if err == nil && name[0] == ':' && int(pid) == d.process.Process.Pid {
			unique = append(unique, name)
		}
	}
	return unique
}

const (
	systemd1      = "org.freedesktop.systemd1"
	notifications = "org.freedesktop.Notifications"
)

// TestSignals_ForgedHaveNoEffect sends the daemon, from another connection, each signal that it
// subscribes to, as any program of the same user can.
func TestSignals_ForgedHaveNoEffect(t *testing.T) {
	l := newLoginManager(t)
	server := testbed.StartNotificationServer(t, "actions")
	d := startDaemon(t)
	require.Equal(t, 0, d.kill(syscall.SIGTERM))
	d.env = append(d.env, "DBUS_SYSTEM_BUS_ADDRESS="+os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	d.launch()
	agent := d.politeSession(t, "agent")
	testbed.Receive(t, l.requests, "a request for a lock")
	testbed.Poll(t, "a lock", func() bool { return l.isLockedBy(d) })
	failed := d.run(t, "failed", "exit 3")
	notice := nextNotification(t, server)

	forger := testbed.Bus(t)
	unit := "app_2dcorral_2dcommand_2dagent_2escope"
	unitPath := dbus.ObjectPath("/org/freedesktop/systemd1/unit/" + unit)
	stopping := func(result string) []any {
		changed := map[string]dbus.Variant{"ActiveState": dbus.MakeVariant("deactivating"),
			"Result": dbus.MakeVariant(result)}
		return []any{systemd1 + ".Scope", changed, []string{}}
	}
	const loginPath, managerPath = dbus.ObjectPath("/org/freedesktop/login1"), dbus.ObjectPath("/org/freedesktop/systemd1")
	signals := []struct {
		what string
		path dbus.ObjectPath
		name string
		body []any
	}{
		{"the machine goes down", loginPath, login1 + ".Manager.PrepareForShutdown", []any{true}},
		{"the machine sleeps", loginPath, login1 + ".Manager.PrepareForSleep", []any{true}},
		{"the scope is to be stopped", unitPath, systemd1 + ".Scope.RequestStop", nil},
		{"the scope's time is up", unitPath, propertiesChanged, stopping("timeout")},
		{"the scope has no memory", unitPath, propertiesChanged, stopping("oom-kill")},
		{"a job has ended", managerPath, systemd1 + ".Manager.JobRemoved",
			[]any{uint32(1), managerPath + "/job/1", agent.unit(), "failed"}},
		{"the scope is gone", managerPath, systemd1 + ".Manager.UnitRemoved", []any{agent.unit(), unitPath}},
		{"systemd was reloaded", managerPath, systemd1 + ".Manager.Reloading", []any{false}},
		{"a button was pressed", "/org/freedesktop/Notifications", notifications + ".ActionInvoked",
			[]any{notice.ID, "restart"}},
		{"a notification was closed", "/org/freedesktop/Notifications", notifications + ".NotificationClosed",
			[]any{notice.ID, uint32(2)}},
	}
	signals = append(signals, signals[2])
	signals[len(signals)-1].what = "what no program should break on"
	signals[len(signals)-1].body = []any{[]dbus.UnixFD{dbus.UnixFD(os.Stdin.Fd())}}
	for _, owned := range []string{login1, systemd1, notifications, dbusapi.BusName} {
		signals = append(signals, signals[0])
		signals[len(signals)-1].what = owned + " has a new owner"
		signals[len(signals)-1].path = "/org/freedesktop/DBus"
		signals[len(signals)-1].name = "org.freedesktop.DBus.NameOwnerChanged"
		signals[len(signals)-1].body = []any{owned, "", forger.Names()[0]}
	}
	signals = append(signals, signals[:10]...) // and all of them once more: the forged owners were not believed either
	runs := 1
	for _, s := range signals {
		t.Run(s.what, func(t *testing.T) {
			before, mark := agent.properties(), d.signals.mark()
			connections := d.connections(t, forger)
			for _, to := range connections {
				testbed.SendSignal(t, forger, to, s.path, s.name, s.body...)
			}
			// Genuine messages of systemd, the login manager and the notification server follow: once the
			// daemon has handled these, it has handled the forged ones, too.
			next := d.run(t, "next", "exec sleep 1000")
			next.must("Stop", uint64(0))
			next.must("Remove", uint64(0))
			reads := l.reads.Load()
			l.announceShutdown(t, false)
			testbed.Poll(t, "the daemon reads the login manager's properties", func() bool { return l.reads.Load() > reads })
			if s.path == "/org/freedesktop/Notifications" {
				server.Emit(t, "ActionInvoked", notice.ID, "restart")
				notice = nextNotification(t, server)
				runs++
			}

			after := agent.properties()
			assert.Equal(t, outcome{"running", "", 0, 0, "", "active"}, outcomeOf(after))
			for _, property := range []string{"MainPID", "NRuns", "StateChangeTimestamp", "ControlGroup"} {
				assert.Equal(t, before[property], after[property], property)
			}
			assert.NoFileExists(t, d.dir+"/agent", "the agent got no signal")
			assert.False(t, d.isShuttingDown(t))
			assert.Equal(t, connections, d.connections(t, forger), "no connection was lost")
			assert.True(t, l.isLockedBy(d), "the lock is held")
			assert.Empty(t, l.requests, "no lock was taken again")
			for _, signal := range d.signals.after(mark) {
				id, state, changed := changedState(signal)
				assert.False(t, changed && id == "agent", "the session became %s", state)
			}
		})
	}
	assert.Equal(t, runs, failed.properties().number("NRuns"), "only the server's signals restarted it")
}

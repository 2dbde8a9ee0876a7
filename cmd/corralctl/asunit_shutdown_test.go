package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/testbed"
)

// exitingDaemon plays a daemon between the end of its event loop and that of its connection, when
// it answers that it is shutting down: the real one is in that state for a few microseconds only.
type exitingDaemon struct {
	t       *testing.T
	conn    *dbus.Conn
	session client.Session
	asked   chan struct{} // gets a value when a request for the Manager's properties was refused
}

// newExitingDaemon takes the daemon's bus name, and exports one session.
func newExitingDaemon(t *testing.T, s client.Session) *exitingDaemon {
	t.Helper()
	d := &exitingDaemon{t: t, conn: testbed.Bus(t), session: s, asked: make(chan struct{}, 100)}
	export := func(path dbus.ObjectPath, getAll func(string) (map[string]dbus.Variant, *dbus.Error)) {
		methods := map[string]any{"GetAll": getAll}
		require.NoError(t, d.conn.ExportMethodTable(methods, path, "org.freedesktop.DBus.Properties"))
	}
	export(dbusapi.SessionPath(s.Id), func(string) (map[string]dbus.Variant, *dbus.Error) {
		properties := map[string]dbus.Variant{}
		fields := reflect.ValueOf(d.session)
		for i := range fields.NumField() {
			properties[fields.Type().Field(i).Name] = dbus.MakeVariant(fields.Field(i).Interface())
		}
		return properties, nil
	})
	export(dbusapi.ManagerPath, func(string) (map[string]dbus.Variant, *dbus.Error) {
		d.asked <- struct{}{}
		return nil, dbus.NewError(dbusapi.ErrorName(dbusapi.ShuttingDown), []any{"corrald is shutting down"})
	})
	d.takeName()
	return d
}

func (d *exitingDaemon) takeName() {
	d.t.Helper()
	reply, err := d.conn.RequestName(dbusapi.BusName, dbus.NameFlagDoNotQueue)
	require.NoError(d.t, err)
	require.Equal(d.t, dbus.RequestNameReplyPrimaryOwner, reply)
}

// The error of a daemon that is shutting down does not end as-unit: the next daemon will report the
// state of the session.
func TestAsUnit_ToleratesADaemonThatIsShuttingDown(t *testing.T) {
	d := newExitingDaemon(t, client.Session{
		Id: "long", State: "running", Activity: "working", AgentAlive: true, StateChangeTimestampMonotonic: 1,
	})
	path := filepath.Join(testbed.Dir(t), "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	defer func() { _ = systemd.Close() }()
	require.NoError(t, systemd.SetReadDeadline(time.Now().Add(time.Minute)))
	await := func(line string) {
		t.Helper()
		for buffer := make([]byte, 1000); ; {
			n, err := systemd.Read(buffer)
			require.NoError(t, err, line)
			if string(buffer[:n]) == line {
				return
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	unit := exec.CommandContext(ctx, testbed.Programs(t).Corralctl, "as-unit", "long")
	unit.Env = append(os.Environ(), "NOTIFY_SOCKET="+path)
	var printed strings.Builder
	unit.Stdout, unit.Stderr = &printed, &printed
	require.NoError(t, unit.Start())
	await("STATUS=running, working")

	require.NoError(t, d.conn.Emit(dbusapi.SessionPath("long"), "org.freedesktop.DBus.Properties.PropertiesChanged",
		dbusapi.SessionInterface, map[string]dbus.Variant{
			"State":                         dbus.MakeVariant("suspended"),
			"AgentAlive":                    dbus.MakeVariant(false),
			"StateChangeTimestampMonotonic": dbus.MakeVariant(uint64(2)),
		}, []string{}))
	testbed.Receive(t, d.asked, "the query whether the machine is shutting down")
	_, err = d.conn.ReleaseName(dbusapi.BusName)
	require.NoError(t, err)
	await("STATUS=state unknown (corrald is not running)")
	d.session.State, d.session.AgentAlive = "completed", false
	d.takeName()
	require.NoError(t, unit.Wait(), &printed)
	assert.Empty(t, printed.String())
}

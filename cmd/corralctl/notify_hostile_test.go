package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/plaintext"
	"github.com/corrald/corral/internal/testbed"
)

// TestNotify_LimitsAHostileHost: a machine with ids that cannot be, texts of a megabyte and many
// signals cannot make corralctl use more than a limited amount of memory, or show anything but
// text.
func TestNotify_LimitsAHostileHost(t *testing.T) {
	dir := testbed.Dir(t)
	host, err := dbus.Connect(startBus(t, dir))
	require.NoError(t, err)
	t.Cleanup(func() { _ = host.Close() })
	long := strings.Repeat("\x1b[31m<b>\u202e\u0007 ", 100_000)
	rows := []dbusapi.SessionRowEx{}
	for i := range 1000 {
		rows = append(rows, dbusapi.SessionRowEx{ID: fmt.Sprint("s", i), Attention: "question", Path: "/",
			More: map[string]dbus.Variant{}})
	}
	rows[0].ID, rows[1].ID = "evil\x1b[31m", "../../evil"
	list := func() ([]dbusapi.SessionRowEx, *dbus.Error) { return rows, nil }
	require.NoError(t, host.ExportMethodTable(map[string]any{"ListSessionsEx": list}, dbusapi.ManagerPath,
		dbusapi.ManagerInterface))
	flood := sync.OnceFunc(func() {
		for i := range 100 {
			_ = host.Emit(dbusapi.SessionPath(fmt.Sprint("flood", i)), "org.freedesktop.DBus.Properties.PropertiesChanged",
				dbusapi.SessionInterface, map[string]dbus.Variant{"Attention": dbus.MakeVariant(long)}, []string{})
		}
	})
	read := func(msg dbus.Message, _ string) (map[string]dbus.Variant, *dbus.Error) {
		path, _ := msg.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
		id, _ := dbusapi.SessionID(path)
		flood()
		s := map[string]dbus.Variant{"Id": dbus.MakeVariant(id), "Notification": dbus.MakeVariant("shown")}
		if id == "s7" {
			for _, name := range []string{"Attention", "AttentionMessage", "Reason", "WorkingDirectory", "State", "Agent"} {
				s[name] = dbus.MakeVariant(long)
			}
			s["AttentionTimestamp"], s["Notification"] = dbus.MakeVariant(^uint64(0)), dbus.MakeVariant("pending")
			s["AttentionUntil"] = s["AttentionTimestamp"]
		}
		return s, nil
	}
	require.NoError(t, host.ExportSubtreeMethodTable(map[string]any{"GetAll": read}, dbusapi.SessionsPath,
		"org.freedesktop.DBus.Properties"))
	_, err = host.RequestName(dbusapi.BusName, dbus.NameFlagDoNotQueue)
	require.NoError(t, err)
	l := newLaptop(t, dir)
	n := l.next()
	assert.Regexp(t, `^gpu: s7: `, n.Title)
	for _, text := range []string{n.Title, strings.ReplaceAll(n.Body, "\n", "")} {
		assert.LessOrEqual(t, utf8.RuneCountInString(text), 3*maxRemoteText)
		assert.NotContains(t, strings.Map(func(r rune) rune {
			if plaintext.IsUnsafe(r) {
				return '\x1b'
			}
			return r
		}, text), "\x1b")
	}
	status, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(l.notifier.Process.Pid), "status"))
	require.NoError(t, err)
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	var kB int
	_, err = fmt.Sscan(peak, &kB)
	require.NoError(t, err)
	t.Logf("peak memory: %d kB", kB)
	assert.Less(t, kB, 256<<10, "MemoryMax= of the unit")
}

// TestHostFollower_KeepsALimitedNumberOfIDs: signals about sessions are remembered as their ids.
func TestHostFollower_KeepsALimitedNumberOfIDs(t *testing.T) {
	f := &hostFollower{changed: map[string]bool{}}
	for i := range 2 * maxRemoteSessions {
		f.handle(client.SessionRemoved{ID: fmt.Sprint("s", i)})
	}
	assert.Len(t, f.changed, maxRemoteSessions)
}

package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// TestCalls_ThousandAtOnceKeepOrder sends a thousand calls from one client: each gets the right
// reply, and those for one session are executed in order.
func TestCalls_ThousandAtOnceKeepOrder(t *testing.T) {
	d := startDaemon(t)
	const sessions, calls = 10, 1000
	id := func(n int) string { return fmt.Sprint("s", n%sessions) }
	for n := range sessions {
		d.create(t, id(n), spec{"Command": []string{"true"}, "Start": false})
	}
	mark := d.signals.mark()
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
	for _, signal := range d.signals.after(mark) {
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
	want := map[string]string{}
	for n := range calls {
		if n%4 != 3 {
			want[id(n)] = fmt.Sprint(n)
		}
	}
	for n := range sessions {
		assert.Equal(t, want[id(n)], d.session(t, id(n)).properties().text("Description"),
			"the last call is the one that stays in effect")
	}
}

// memoryKiB returns a line of the daemon's /proc/PID/status, in KiB.
func (d *corrald) memoryKiB(t *testing.T, line string) int {
	t.Helper()
	_, after, found := strings.Cut(readFile(t, fmt.Sprintf("/proc/%d/status", d.process.Process.Pid)), line+":")
	require.True(t, found)
	n, err := strconv.Atoi(strings.Fields(after)[0])
	require.NoError(t, err)
	return n
}

// slowReader is a client that makes calls and reads no reply until the test wants it to.
type slowReader struct {
	net.Conn
	serial uint32
}

func newSlowReader(t *testing.T) *slowReader {
	t.Helper()
	path, _, _ := strings.Cut(strings.TrimPrefix(os.Getenv("DBUS_SESSION_BUS_ADDRESS"), "unix:path="), ",")
	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "\x00AUTH EXTERNAL %x\r\n", strconv.Itoa(os.Getuid()))
	require.NoError(t, err)
	var line [256]byte
	n, err := conn.Read(line[:])
	require.NoError(t, err)
	require.Contains(t, string(line[:n]), "OK ")
	_, err = io.WriteString(conn, "BEGIN\r\n")
	require.NoError(t, err)
	c := &slowReader{conn, 0}
	c.send(t, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello")
	return c
}

// send calls a method, with arguments if there are any.
func (c *slowReader) send(t *testing.T, name string, path dbus.ObjectPath, iface, member string, args ...any) {
	t.Helper()
	msg := dbus.Message{Type: dbus.TypeMethodCall, Body: args, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldDestination: dbus.MakeVariant(name), dbus.FieldPath: dbus.MakeVariant(path),
		dbus.FieldInterface: dbus.MakeVariant(iface), dbus.FieldMember: dbus.MakeVariant(member),
	}}
	if len(args) > 0 {
		msg.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(args...))
	}
	var b bytes.Buffer
	require.NoError(t, msg.EncodeTo(&b, binary.LittleEndian))
	c.serial++
	binary.LittleEndian.PutUint32(b.Bytes()[8:], c.serial) // the library offers no other way to number a message
	_, err := c.Write(b.Bytes())
	require.NoError(t, err)
}

// readReplies reads until all calls are answered, and returns how many of them were refused.
func (c *slowReader) readReplies(t *testing.T) (refused int) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(4*patience)))
	reader := bufio.NewReader(c)
	for answered := uint32(0); answered < c.serial; {
		head, err := reader.Peek(16) // 1: type; 4, 12: lengths of body and header; signals are skipped
		require.NoError(t, err, "%d of %d calls are answered", answered, c.serial)
		kind, body, header := dbus.Type(head[1]), binary.LittleEndian.Uint32(head[4:]), binary.LittleEndian.Uint32(head[12:])
		length := int64(16+(header+7)/8*8) + int64(body)
		if kind == dbus.TypeError {
			refused++
			msg, err := dbus.DecodeMessage(reader)
			require.NoError(t, err)
			require.Equal(t, dbusapi.ErrorName(dbusapi.LimitsExceeded), msg.Headers[dbus.FieldErrorName].Value())
		} else {
			_, err = io.CopyN(io.Discard, reader, length) // decoding all of that would take longer than making it
			require.NoError(t, err)
		}
		if kind == dbus.TypeMethodReply || kind == dbus.TypeError {
			answered++
		}
	}
	return refused
}

// TestFlood_OfCalls checks a client that calls as fast as it can and reads no reply: other clients
// do not wait for it, and neither its calls nor the replies accumulate in the daemon.
func TestFlood_OfCalls(t *testing.T) {
	d := startProgram(t, testbed.CorraldWithoutRace(t))
	d.crowd(t, "s", 100, false)
	before := d.memoryKiB(t, "VmRSS")
	flood := newSlowReader(t)
	const many = 3000
	for range many {
		flood.send(t, dbusapi.BusName, dbusapi.ManagerPath, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects")
		flood.send(t, dbusapi.BusName, dbusapi.SessionPath("s-1"), "org.freedesktop.DBus.Properties", "GetAll",
			dbusapi.SessionInterface)
	}
	s := d.run(t, "served", "exec sleep 1000")
	s.waitState("running")
	s.must("Stop", uint64(0))
	s.waitState("stopped")
	refused := flood.readReplies(t)
	assert.Positive(t, refused)
	peak := d.memoryKiB(t, "VmHWM") - before
	t.Logf("%d of %d calls were refused; the daemon took %d KiB more", refused, 2*many, peak)
	assert.Less(t, peak, 24<<10, "KiB: the limit for a client's pending calls")
}

// TestClient_DisconnectsDuringCalls checks a client that disconnects before its calls are answered:
// they are executed, and no other client is affected.
func TestClient_DisconnectsDuringCalls(t *testing.T) {
	d := startDaemon(t)
	s := d.savingSession(t, "shop")
	for range 20 {
		gone, err := dbus.Connect(os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
		require.NoError(t, err)
		gone.Object(dbusapi.BusName, dbusapi.ManagerPath).Go("org.freedesktop.DBus.ObjectManager.GetManagedObjects", 0, nil)
		call := gone.Object(dbusapi.BusName, dbusapi.SessionPath("shop")).
			Go(dbusapi.SessionInterface+".Restart", 0, make(chan *dbus.Call, 1))
		require.NoError(t, gone.Close())
		<-call.Done
		s.wait("in some state", func(p properties) bool { return p.text("State") != "" })
	}
	s.wait("running or at rest", func(p properties) bool {
		return p.text("State") == "running" || p.text("State") == "stopped"
	})
	other := d.run(t, "other", "exec sleep 1000")
	other.waitState("running")
	s.must("Stop", uint64(0))
	s.waitState("stopped")
}

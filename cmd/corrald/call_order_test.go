package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

const pipelined = 200

// TestCalls_OfOneClientAreExecutedInOrder checks that calls sent without waiting for replies are
// executed, for each session, in the order in which they were sent. A call that is refused in
// between does not prevent the later ones.
func TestCalls_OfOneClientAreExecutedInOrder(t *testing.T) {
	d := startDaemon(t)
	s := d.create(t, "patient",
		spec{"Command": []string{"sh", "-c", `while read -r line; do echo "$line" >>"$0"; done`, d.dir + "/lines"}})
	object := d.bus.Object(dbusapi.BusName, dbusapi.SessionPath("patient"))
	mark := d.signals.mark()
	done := make(chan *dbus.Call, 4*pipelined)
	var want strings.Builder
	for n := range pipelined {
		object.Go(dbusapi.SessionInterface+".SetDescription", 0, done, fmt.Sprint(n))
		object.Go(dbusapi.SessionInterface+".SendInput", 0, done, fmt.Sprint(n), dbusapi.InputEnter)
		fmt.Fprintln(&want, n)
		if n%20 == 0 {
			object.Go(dbusapi.SessionInterface+".Explode", 0, nil)
			object.Go("org.example.Paint.Brush", 0, nil)
			object.Go(dbusapi.SessionInterface+".SetDescription", 0, nil, n)
			d.bus.Object(dbusapi.BusName, dbusapi.SessionPath("nobody")).Go(dbusapi.SessionInterface+".Start", 0, nil)
		}
	}
	for range 2 * pipelined {
		require.NoError(t, testbed.Receive(t, done, "answer").Err)
	}
	assert.Equal(t, fmt.Sprint(pipelined-1), s.properties().text("Description"))
	last := -1
	for _, signal := range d.signals.after(mark) {
		if id, _ := dbusapi.SessionID(signal.Path); id != "patient" || signal.Name != propertiesChanged {
			continue
		}
		changed, _ := signal.Body[1].(map[string]dbus.Variant)
		if text, ok := changed["Description"].Value().(string); ok {
			var n int
			_, err := fmt.Sscan(text, &n)
			require.NoError(t, err)
			assert.Greater(t, n, last)
			last = n
		}
	}
	assert.Equal(t, pipelined-1, last)
	testbed.WaitFile(t, d.dir+"/lines", func(content []byte) bool { return string(content) == want.String() })
	assertRefused(t, d.manager("StartSession", []any{"nobody"}), dbusapi.NoSuchSession, "nobody")
}

// TestCapture_OfAHungTmuxBlocksNothing checks that a tmux server that does not answer delays only
// the calls that read its screen.
func TestCapture_OfAHungTmuxBlocksNothing(t *testing.T) {
	d := startDaemon(t)
	s := d.run(t, "stuck", "exec sleep 1000")
	s.waitState("running")
	kill(t, s.process(tmuxName), syscall.SIGSTOP)
	object := d.bus.Object(dbusapi.BusName, dbusapi.SessionPath("stuck"))
	captured, done := make(chan *dbus.Call, 2), make(chan *dbus.Call, 1)
	object.Go(dbusapi.SessionInterface+".Capture", 0, captured, uint32(10), uint64(0))
	object.Go(dbusapi.SessionInterface+".Capture", 0, captured, uint32(10), uint64(0))
	object.Go(dbusapi.SessionInterface+".SetDescription", 0, done, "set in the meantime")
	require.NoError(t, testbed.Receive(t, done, "answer").Err)
	assert.Empty(t, captured)
	s.must("Stop", uint64(time.Second.Microseconds()))
	s.waitOutcome(outcome{"stopped", "success", 2, 15, "", "active"})
}

// TestClient_ThatNeverReadsBlocksNothing checks that a client that subscribes to signals without
// reading them does not delay others.
func TestClient_ThatNeverReadsBlocksNothing(t *testing.T) {
	d := startDaemon(t)
	subscribeWithoutReading(t)
	s := d.create(t, "busy", spec{"Command": []string{"sleep", "1000"}, "Start": false})
	text := strings.Repeat("x", 1000)
	for n := range 2000 {
		require.NoError(t, s.do("SetDescription", fmt.Sprint(text, n)), "session busy, change %d", n)
	}
	s.must("Start")
	s.waitOutcome(outcome{"running", "", 0, 0, "", "active"})
}

// subscribeWithoutReading connects to the bus, subscribes to all signals of corrald, and reads
// nothing afterwards.
func subscribeWithoutReading(t *testing.T) {
	t.Helper()
	conn, err := net.Dial("unix", os.Getenv("XDG_RUNTIME_DIR")+"/bus")
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "\x00AUTH EXTERNAL %x\r\n", fmt.Sprint(os.Getuid()))
	require.NoError(t, err)
	answer := make([]byte, 256)
	n, err := conn.Read(answer)
	require.NoError(t, err)
	require.Contains(t, string(answer[:n]), "OK ")
	_, err = fmt.Fprint(conn, "BEGIN\r\n")
	require.NoError(t, err)
	for i, call := range []struct {
		member string
		body   []any
	}{{"Hello", nil}, {"AddMatch", []any{"type='signal',sender='" + dbusapi.BusName + "'"}}} {
		message := &dbus.Message{Type: dbus.TypeMethodCall, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath:        dbus.MakeVariant(dbus.ObjectPath("/org/freedesktop/DBus")),
			dbus.FieldInterface:   dbus.MakeVariant("org.freedesktop.DBus"),
			dbus.FieldMember:      dbus.MakeVariant(call.member),
			dbus.FieldDestination: dbus.MakeVariant("org.freedesktop.DBus"),
		}, Body: call.body}
		if call.body != nil {
			message.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(call.body...))
		}
		var encoded bytes.Buffer
		require.NoError(t, message.EncodeTo(&encoded, binary.LittleEndian))
		// the serial number, which the library assigns only when it sends a message itself
		encoded.Bytes()[8] = byte(i + 1)
		_, err = conn.Write(encoded.Bytes())
		require.NoError(t, err)
	}
}

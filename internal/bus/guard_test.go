package bus_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/testbed"
)

// dialGuarded returns a guarded connection that replies to every delivered call, and another
// connection that can call it.
func dialGuarded(t *testing.T) (*bus.Guarded, *dbus.Conn) {
	t.Helper()
	address := os.Getenv("DBUS_SESSION_BUS_ADDRESS")
	var conn atomic.Pointer[bus.Guarded]
	c, err := bus.DialGuarded(t.Context(), address, func(msg *dbus.Message, _ int) {
		path, _ := msg.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
		switch {
		case msg.Type != dbus.TypeMethodCall || path != "/echo" && path != "/descriptor":
			return
		case path == "/descriptor":
			defer func() { msg.Type = 0 }() // otherwise godbus would also send a reply
			msg.Body = []any{dbus.UnixFD(os.Stdin.Fd())}
			msg.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.ParseSignatureMust("h"))
		}
		headers := map[dbus.HeaderField]dbus.Variant{
			dbus.FieldReplySerial: dbus.MakeVariant(msg.Serial()),
			dbus.FieldDestination: msg.Headers[dbus.FieldSender],
		}
		if signature, ok := msg.Headers[dbus.FieldSignature]; ok {
			headers[dbus.FieldSignature] = signature
		}
		assert.NoError(t, conn.Load().WriteMessage(&dbus.Message{
			Type: dbus.TypeMethodReply, Flags: dbus.FlagNoReplyExpected, Body: msg.Body, Headers: headers,
		}))
	})
	require.NoError(t, err)
	conn.Store(c)
	t.Cleanup(func() { _ = c.Close() })
	caller, err := dbus.Connect(address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = caller.Close() })
	return c, caller
}

func countDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

func nested(value any, times int) dbus.Variant {
	v := dbus.MakeVariant(value)
	for range times {
		v = dbus.MakeVariant(v)
	}
	return v
}

// TestGuarded_SurvivesEveryMessage: calls that godbus cannot decode are refused, and all others are
// delivered unchanged.
func TestGuarded_SurvivesEveryMessage(t *testing.T) {
	conn, caller := dialGuarded(t)
	self := dbus.UnixFD(os.Stdin.Fd())
	before := countDescriptors(t)
	for name, row := range map[string]struct {
		args []any
		text string // of the error, "" if the call is delivered
	}{
		"no arguments": {nil, ""},
		"strings":      {[]any{"a", dbus.ObjectPath("/a"), dbus.ParseSignatureMust("a{sv}")}, ""},
		"numbers": {
			[]any{byte(1), true, int16(2), uint16(3), int32(4), uint32(5), int64(6), uint64(7), 8.5}, "",
		},
		"containers":                {[]any{[]string{"a"}, map[string]dbus.Variant{"a": dbus.MakeVariant([]byte{1})}}, ""},
		"a string of a megabyte":    {[]any{string(bytes.Repeat([]byte("x"), 1<<20))}, ""},
		"nested variants":           {[]any{nested("deep", 60)}, ""},
		"a descriptor":              {[]any{self}, "no method takes file descriptors"},
		"a descriptor in a variant": {[]any{dbus.MakeVariant(self)}, "no method takes file descriptors"},
		"descriptors in an array":   {[]any{[]dbus.UnixFD{self, self}}, "no method takes file descriptors"},
		"descriptors in a dictionary": {
			[]any{map[string]dbus.UnixFD{"a": self}}, "no method takes file descriptors",
		},
		"an empty dictionary almost at the maximum depth": {
			[]any{nested(map[string]string{}, 62)}, "cannot be read",
		},
		"an empty array at the maximum depth": {[]any{nested([]string{}, 63)}, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 3 {
				call := caller.Object(conn.Names()[0], "/echo").Call("a.b.Echo", 0, row.args...)
				if row.text == "" {
					require.NoError(t, call.Err)
					assert.Len(t, call.Body, len(row.args))
					continue
				}
				var refusal dbus.Error
				require.ErrorAs(t, call.Err, &refusal)
				assert.Equal(t, "org.freedesktop.DBus.Error.InvalidArgs", refusal.Name)
				require.ErrorContains(t, call.Err, row.text)
			}
		})
	}
	require.NoError(t, caller.Emit("/a", "a.b.Broadcast", []dbus.UnixFD{self}))
	object := caller.Object(conn.Names()[0], "/echo")
	require.NoError(t, object.Call("a.b.Echo", dbus.FlagNoReplyExpected, []dbus.UnixFD{self}).Err)
	require.NoError(t, object.Call("a.b.Echo", 0).Err, "the connection still works")
	assert.Equal(t, before, countDescriptors(t), "every descriptor is closed")
}

// TestGuarded_RefusesTooLongCalls: calls and signals that exceed the limit are discarded, and the
// connection still works. A call just below the limit is delivered.
func TestGuarded_RefusesTooLongCalls(t *testing.T) {
	conn, caller := dialGuarded(t)
	before := countDescriptors(t)
	echo := func(args ...any) error {
		return caller.Object(conn.Names()[0], "/echo").Call("a.b.Echo", 0, args...).Err
	}
	text := strings.Repeat("x", bus.MaxMessage+1)
	for name, args := range map[string][]any{
		"text": {text}, "containers": {map[string]dbus.Variant{"a": dbus.MakeVariant([]string{text})}},
	} {
		var refusal dbus.Error
		require.ErrorAs(t, echo(args...), &refusal, name)
		assert.Equal(t, "org.freedesktop.DBus.Error.LimitsExceeded", refusal.Name, name)
		require.ErrorContains(t, refusal, "8388608 at most", name)
	}
	object := caller.Object(conn.Names()[0], "/echo")
	require.NoError(t, object.Call("a.b.Echo", dbus.FlagNoReplyExpected, text).Err)
	require.NoError(t, caller.Emit("/a", "a.b.Broadcast", text))
	require.NoError(t, echo(text[:bus.MaxMessage-1024]))
	assert.Equal(t, before, countDescriptors(t))
}

// TestGuarded_AcceptsLongRepliesAndDescriptors: replies may have any size and may contain file
// descriptors.
func TestGuarded_AcceptsLongRepliesAndDescriptors(t *testing.T) {
	conn, _ := dialGuarded(t)
	other, caller := dialGuarded(t)
	before := countDescriptors(t)
	for range 300 { // more than one message may contain
		var fd dbus.UnixFD
		require.NoError(t, other.Object(conn.Names()[0], "/descriptor").Call("a.b.C", 0).Store(&fd))
		var is, want unix.Stat_t
		require.NoError(t, unix.Fstat(int(fd), &is))
		require.NoError(t, unix.Fstat(int(os.Stdin.Fd()), &want))
		assert.Equal(t, want.Rdev, is.Rdev)
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		require.NoError(t, err)
		assert.Equal(t, unix.FD_CLOEXEC, flags)
		require.NoError(t, unix.Close(int(fd)))
	}
	assert.Equal(t, before, countDescriptors(t))
	require.NoError(t, caller.ExportAll(long{}, "/long", "a.b"))
	var text string
	require.NoError(t, other.Object(caller.Names()[0], "/long").Call("a.b.Text", 0).Store(&text))
	assert.Len(t, text, bus.MaxMessage+1)
}

// long returns a text that is longer than a call may be.
type long struct{}

func (long) Text() (string, *dbus.Error) { return strings.Repeat("x", bus.MaxMessage+1), nil }

// TestWriteMessage_SendsDescriptors: the receiver of a message can use the file descriptors in it.
func TestWriteMessage_SendsDescriptors(t *testing.T) {
	conn, caller := dialGuarded(t)
	received := make(chan *dbus.Signal, 1)
	caller.Signal(received)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = read.Close() }()
	msg := &dbus.Message{
		Type:  dbus.TypeSignal,
		Flags: dbus.FlagNoReplyExpected,
		Body:  []any{dbus.UnixFD(write.Fd()), "more"},
		Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath:        dbus.MakeVariant(dbus.ObjectPath("/a")),
			dbus.FieldInterface:   dbus.MakeVariant("a.b"),
			dbus.FieldMember:      dbus.MakeVariant("C"),
			dbus.FieldDestination: dbus.MakeVariant(caller.Names()[0]),
			dbus.FieldSignature:   dbus.MakeVariant(dbus.ParseSignatureMust("hs")),
		},
	}
	require.NoError(t, conn.WriteMessage(msg))
	for signal := range received {
		if signal.Name != "a.b.C" {
			continue
		}
		other := os.NewFile(uintptr(signal.Body[0].(dbus.UnixFD)), "write")
		require.NoError(t, write.Close())
		_, err := other.WriteString("hello")
		require.NoError(t, err)
		require.NoError(t, other.Close())
		break
	}
	got, err := io.ReadAll(read)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(got))
}

// TestGuarded_RefusesDescriptorsOverPlainConnections: a caller whose connection cannot receive file
// descriptors, for example over ssh, receives an error instead of waiting for a reply that the bus
// does not deliver.
func TestGuarded_RefusesDescriptorsOverPlainConnections(t *testing.T) {
	conn, caller := dialGuarded(t)
	var fd dbus.UnixFD
	require.NoError(t, caller.Object(conn.Names()[0], "/descriptor").Call("a.b.C", 0).Store(&fd))
	require.NoError(t, unix.Close(int(fd)))

	socket, err := net.Dial("unix", filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "bus"))
	require.NoError(t, err)
	plain, err := dbus.NewConn(struct{ io.ReadWriteCloser }{socket})
	require.NoError(t, err)
	defer func() { _ = plain.Close() }()
	require.NoError(t, plain.Auth(nil))
	require.NoError(t, plain.Hello())
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Timeout)
	defer cancel()
	for range 100 {
		var refusal dbus.Error
		require.ErrorAs(t, plain.Object(conn.Names()[0], "/descriptor").CallWithContext(ctx, "a.b.C", 0).Err, &refusal)
		assert.Equal(t, "org.freedesktop.DBus.Error.NotSupported", refusal.Name)
	}
	require.NoError(t, plain.Object(conn.Names()[0], "/echo").CallWithContext(ctx, "a.b.C", 0).Err)
}

func TestDialGuarded_ReturnsErrors(t *testing.T) {
	for address, text := range map[string]string{
		"unix:path=/nowhere/at/all": "no such file",
		"tcp:host=localhost,port=1": "no unix:path=",
		"":                          "no unix:path=",
		"unix:path=%zz":             "invalid",
	} {
		_, err := bus.DialGuarded(t.Context(), address, nil)
		require.ErrorContains(t, err, "cannot connect to the bus")
		require.ErrorContains(t, err, text)
	}
	conn, _ := dialGuarded(t)
	require.NoError(t, conn.Close())
	testbed.Poll(t, "the end of the connection", func() bool { return !conn.Connected() })
	assert.Error(t, conn.WriteMessage(&dbus.Message{
		Type:    dbus.TypeMethodReply,
		Headers: map[dbus.HeaderField]dbus.Variant{dbus.FieldReplySerial: dbus.MakeVariant(uint32(1))},
	}))
}

func TestWriteMessage_SendsNothingOnError(t *testing.T) {
	conn, caller := dialGuarded(t)
	require.Error(t, conn.WriteMessage(&dbus.Message{Type: dbus.TypeMethodReply}))
	require.NoError(t, caller.Object(conn.Names()[0], "/echo").Call("a.b.Echo", 0).Err)
}

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

// guarded returns a guarded connection that answers every call that gets through to it, and another
// one to call it with.
func guarded(t *testing.T) (*bus.Guarded, *dbus.Conn) {
	t.Helper()
	address := os.Getenv("DBUS_SESSION_BUS_ADDRESS")
	var conn atomic.Pointer[bus.Guarded]
	c, err := bus.DialGuarded(t.Context(), address, func(msg *dbus.Message, _ int) {
		path, _ := msg.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
		switch {
		case msg.Type != dbus.TypeMethodCall || path != "/echo" && path != "/descriptor":
			return
		case path == "/descriptor":
			defer func() { msg.Type = 0 }() // godbus is not to answer, too
			msg.Body, msg.Headers[dbus.FieldSignature] = []any{dbus.UnixFD(os.Stdin.Fd())}, dbus.MakeVariant(dbus.ParseSignatureMust("h"))
		}
		answer := &dbus.Message{Type: dbus.TypeMethodReply, Flags: dbus.FlagNoReplyExpected, Body: msg.Body, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldReplySerial: dbus.MakeVariant(msg.Serial()), dbus.FieldDestination: msg.Headers[dbus.FieldSender],
		}}
		if signature, ok := msg.Headers[dbus.FieldSignature]; ok {
			answer.Headers[dbus.FieldSignature] = signature
		}
		assert.NoError(t, conn.Load().WriteMessage(answer))
	})
	require.NoError(t, err)
	conn.Store(c)
	t.Cleanup(func() { _ = c.Close() })
	caller, err := dbus.Connect(address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = caller.Close() })
	return c, caller
}

func descriptors(t *testing.T) int {
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

// TestGuarded_SurvivesEveryMessage: those that godbus cannot read are refused, all others get
// through as they are.
func TestGuarded_SurvivesEveryMessage(t *testing.T) {
	conn, caller := guarded(t)
	self := dbus.UnixFD(os.Stdin.Fd())
	before := descriptors(t)
	for name, row := range map[string]struct {
		args []any
		says string // "" if it gets through
	}{
		"nothing":                          {nil, ""},
		"texts":                            {[]any{"a", dbus.ObjectPath("/a"), dbus.ParseSignatureMust("a{sv}")}, ""},
		"numbers":                          {[]any{byte(1), true, int16(2), uint16(3), int32(4), uint32(5), int64(6), uint64(7), 8.5}, ""},
		"containers":                       {[]any{[]string{"a"}, map[string]dbus.Variant{"a": dbus.MakeVariant([]byte{1})}}, ""},
		"a text of a megabyte":             {[]any{string(bytes.Repeat([]byte("x"), 1<<20))}, ""},
		"variants in one another":          {[]any{nested("deep", 60)}, ""},
		"a descriptor":                     {[]any{self}, "no method takes file descriptors"},
		"a descriptor in a variant":        {[]any{dbus.MakeVariant(self)}, "no method takes file descriptors"},
		"descriptors in an array":          {[]any{[]dbus.UnixFD{self, self}}, "no method takes file descriptors"},
		"descriptors in a dictionary":      {[]any{map[string]dbus.UnixFD{"a": self}}, "no method takes file descriptors"},
		"an empty dictionary, very deep":   {[]any{nested(map[string]string{}, 62)}, "cannot be read"},
		"an empty list at the very bottom": {[]any{nested([]string{}, 63)}, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 3 {
				call := caller.Object(conn.Names()[0], "/echo").Call("a.b.Echo", 0, row.args...)
				if row.says == "" {
					require.NoError(t, call.Err)
					assert.Len(t, call.Body, len(row.args))
					continue
				}
				var refusal dbus.Error
				require.ErrorAs(t, call.Err, &refusal)
				assert.Equal(t, "org.freedesktop.DBus.Error.InvalidArgs", refusal.Name)
				require.ErrorContains(t, call.Err, row.says)
			}
		})
	}
	require.NoError(t, caller.Emit("/a", "a.b.Broadcast", []dbus.UnixFD{self}))
	require.NoError(t, caller.Object(conn.Names()[0], "/echo").Call("a.b.Echo", dbus.FlagNoReplyExpected, []dbus.UnixFD{self}).Err)
	require.NoError(t, caller.Object(conn.Names()[0], "/echo").Call("a.b.Echo", 0).Err, "it goes on")
	assert.Equal(t, before, descriptors(t), "none is left open")
}

// TestGuarded_RefusesTooLongCalls, whoever sends them and with what, and goes on. What is just
// short enough gets through.
func TestGuarded_RefusesTooLongCalls(t *testing.T) {
	conn, caller := guarded(t)
	before := descriptors(t)
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
	require.NoError(t, caller.Object(conn.Names()[0], "/echo").Call("a.b.Echo", dbus.FlagNoReplyExpected, text).Err)
	require.NoError(t, caller.Emit("/a", "a.b.Broadcast", text))
	require.NoError(t, echo(text[:bus.MaxMessage-1024]))
	assert.Equal(t, before, descriptors(t))
}

// TestGuarded_AcceptsLongAnswersAndDescriptors of any size, and with the descriptors that come with
// them.
func TestGuarded_AcceptsLongAnswersAndDescriptors(t *testing.T) {
	conn, _ := guarded(t)
	other, caller := guarded(t)
	before := descriptors(t)
	for range 300 { // more than one message may have
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
	assert.Equal(t, before, descriptors(t))
	require.NoError(t, caller.ExportAll(long{}, "/long", "a.b"))
	var text string
	require.NoError(t, other.Object(caller.Names()[0], "/long").Call("a.b.Text", 0).Store(&text))
	assert.Len(t, text, bus.MaxMessage+1)
}

// long answers with a text that is longer than a call may be.
type long struct{}

func (long) Text() (string, *dbus.Error) { return strings.Repeat("x", bus.MaxMessage+1), nil }

// TestWriteMessage_SendsDescriptors: those of an answer arrive.
func TestWriteMessage_SendsDescriptors(t *testing.T) {
	conn, caller := guarded(t)
	received := make(chan *dbus.Signal, 1)
	caller.Signal(received)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = read.Close() }()
	msg := &dbus.Message{Type: dbus.TypeSignal, Flags: dbus.FlagNoReplyExpected, Body: []any{dbus.UnixFD(write.Fd()), "more"}, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath("/a")), dbus.FieldInterface: dbus.MakeVariant("a.b"), dbus.FieldMember: dbus.MakeVariant("C"),
		dbus.FieldDestination: dbus.MakeVariant(caller.Names()[0]), dbus.FieldSignature: dbus.MakeVariant(dbus.ParseSignatureMust("hs")),
	}}
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

// TestGuarded_RefusesDescriptorsOverPlainConnections, as over ssh, instead of waiting for an answer
// that the bus does not pass on.
func TestGuarded_RefusesDescriptorsOverPlainConnections(t *testing.T) {
	conn, caller := guarded(t)
	var fd dbus.UnixFD
	require.NoError(t, caller.Object(conn.Names()[0], "/descriptor").Call("a.b.C", 0).Store(&fd))
	require.NoError(t, unix.Close(int(fd)))

	socket, err := net.Dial("unix", filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "bus"))
	require.NoError(t, err)
	without, err := dbus.NewConn(struct{ io.ReadWriteCloser }{socket})
	require.NoError(t, err)
	defer func() { _ = without.Close() }()
	require.NoError(t, without.Auth(nil))
	require.NoError(t, without.Hello())
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Timeout)
	defer cancel()
	for range 100 {
		var refusal dbus.Error
		require.ErrorAs(t, without.Object(conn.Names()[0], "/descriptor").CallWithContext(ctx, "a.b.C", 0).Err, &refusal)
		assert.Equal(t, "org.freedesktop.DBus.Error.NotSupported", refusal.Name)
	}
	require.NoError(t, without.Object(conn.Names()[0], "/echo").CallWithContext(ctx, "a.b.C", 0).Err)
}

func TestDialGuarded_ReturnsErrors(t *testing.T) {
	for address, says := range map[string]string{
		"unix:path=/nowhere/at/all": "no such file", "tcp:host=localhost,port=1": "no unix:path=", "": "no unix:path=", "unix:path=%zz": "invalid",
	} {
		_, err := bus.DialGuarded(t.Context(), address, nil)
		require.ErrorContains(t, err, "cannot connect to the bus")
		require.ErrorContains(t, err, says)
	}
	conn, _ := guarded(t)
	require.NoError(t, conn.Close())
	testbed.Poll(t, "the end of the connection", func() bool { return !conn.Connected() })
	assert.Error(t, conn.WriteMessage(&dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{dbus.FieldReplySerial: dbus.MakeVariant(uint32(1))}}))
}

func TestWriteMessage_SendsNothingOnError(t *testing.T) {
	conn, caller := guarded(t)
	require.Error(t, conn.WriteMessage(&dbus.Message{Type: dbus.TypeMethodReply}))
	require.NoError(t, caller.Object(conn.Names()[0], "/echo").Call("a.b.Echo", 0).Err)
}

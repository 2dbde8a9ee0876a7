package bus

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// raw makes a call with a body as it is on the wire.
func raw(t testing.TB, signature string, body []byte) []byte {
	t.Helper()
	msg := dbus.Message{Type: dbus.TypeMethodCall, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath("/a/b")), dbus.FieldMember: dbus.MakeVariant("Member"), dbus.FieldSender: dbus.MakeVariant(":1.234"),
		dbus.FieldSignature: dbus.MakeVariant(dbus.ParseSignatureMust(signature)), dbus.FieldInterface: dbus.MakeVariant("a.b"),
	}}
	var b bytes.Buffer
	require.NoError(t, msg.EncodeTo(&b, binary.LittleEndian))
	b.Write(body)
	message := b.Bytes()
	binary.LittleEndian.PutUint32(message[4:], uint32(len(body)))
	return message
}

// TestUnreadable_FindsWhatGodbusCannotDecode: messages that are valid, and that it cannot even
// send.
func TestUnreadable_FindsWhatGodbusCannotDecode(t *testing.T) {
	one := binary.LittleEndian.AppendUint32
	entry := func(key []byte) []byte { return append(one(one(nil, uint32(len(key))), 0), key...) }
	assert.Equal(t, header{":1.234", "a{bs}", 0, true}, parseHeader(raw(t, "a{bs}", nil)))
	assert.Contains(t, unreadable(raw(t, "a{bs}", entry([]byte("\x01\x00\x00\x00\x01\x00\x00\x00x\x00"))), false), "cannot be read")
	assert.Contains(t, unreadable(raw(t, "a{gs}", entry([]byte("\x01s\x00\x00\x01\x00\x00\x00x\x00"))), false), "cannot be read")
	assert.Contains(t, unreadable(raw(t, "as", one(nil, 1000)), false), "cannot be read")
	assert.Empty(t, unreadable(raw(t, "as", one(nil, 0)), false))
	assert.Empty(t, unreadable(raw(t, "u", one(nil, 0)), false))
}

// zeros is a reader of zeros without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestGuard_DiscardsTooLongMessages: they are never in memory, whatever is long in them, and the
// next message is read as if there had been none.
func TestGuard_DiscardsTooLongMessages(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	file := os.NewFile(uintptr(pair[0]), "ours")
	ours, err := net.FileConn(file)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	theirs := os.NewFile(uintptr(pair[1]), "theirs")
	defer func() { _ = theirs.Close() }()
	const long = 100 << 20
	call := raw(t, "s", nil)
	signal, answer, headless, endless := bytes.Clone(call), bytes.Clone(call), bytes.Clone(call), bytes.Clone(call)
	signal[1], answer[1] = byte(dbus.TypeSignal), byte(dbus.TypeError)
	binary.LittleEndian.PutUint32(headless[12:], long) // the length of the header fields
	binary.LittleEndian.PutUint32(endless[4:], 1<<27)
	for _, message := range [][]byte{call, signal} {
		binary.LittleEndian.PutUint32(message[4:], long)
	}
	next := raw(t, "u", []byte{7, 0, 0, 0})
	g := &guard{UnixConn: ours.(*net.UnixConn), in: bufio.NewReader(io.MultiReader(
		bytes.NewReader(call), io.LimitReader(zeros{}, long),
		bytes.NewReader(signal), io.LimitReader(zeros{}, long),
		bytes.NewReader(headless), io.LimitReader(zeros{}, fixedHeader+long-int64(len(headless))),
		bytes.NewReader(answer), bytes.NewReader(next), bytes.NewReader(endless),
	))}
	g.begun.Store(true)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, want := range [][]byte{answer, next} {
		got := make([]byte, len(want))
		_, err = io.ReadFull(g, got)
		require.NoError(t, err)
		assert.Equal(t, want, got)
		assert.Equal(t, len(want), g.length)
	}
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "bytes")
	_, err = g.Read(make([]byte, 1))
	require.ErrorContains(t, err, "too long", "more than any message may have")
	refusal, err := dbus.DecodeMessage(theirs)
	require.NoError(t, err)
	assert.Equal(t, "org.freedesktop.DBus.Error.LimitsExceeded", refusal.Headers[dbus.FieldErrorName].Value())
	assert.Equal(t, ":1.234", refusal.Headers[dbus.FieldDestination].Value())
	assert.Contains(t, refusal.Body[0], "8388608 at most")
	require.NoError(t, ours.Close())
	rest, err := io.ReadAll(theirs)
	require.NoError(t, err)
	assert.Empty(t, rest, "nobody else is answered")
}

// TestDescriptorReader_SeparatesMessages, not even if one does not tell how many it has.
func TestDescriptorReader_SeparatesMessages(t *testing.T) {
	open := func() int {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		return fd
	}
	isOpen := func(fd int) bool {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		return err == nil
	}
	first, second, third := open(), open(), open()
	r := received{next: []int{first, second}}
	r.begin(header{descriptors: 1, whole: true})
	msg := &dbus.Message{Body: []any{"text", dbus.UnixFDIndex(0), dbus.UnixFDIndex(0), dbus.UnixFDIndex(1)}}
	r.into(msg)
	assert.Equal(t, []any{"text", dbus.UnixFD(first), dbus.UnixFDIndex(0), dbus.UnixFDIndex(1)}, msg.Body, "each has one owner")
	r.begin(header{descriptors: 0, whole: true})
	r.into(&dbus.Message{Body: []any{dbus.UnixFDIndex(0)}})
	assert.True(t, isOpen(second), "it is of a message to come")
	r.next = append(r.next, third)
	r.begin(header{})
	assert.False(t, isOpen(second) || isOpen(third))
	assert.True(t, isOpen(first))
	require.NoError(t, unix.Close(first))
}

func TestCloneStrings_CopiesEveryString(t *testing.T) {
	text := "Fluffy"
	keeps := func(s string) {
		assert.NotSame(t, unsafe.StringData(text), unsafe.StringData(s))
		assert.Equal(t, text, s)
	}
	variant := dbus.MakeVariant(text)
	keeps(own(text).(string))
	keeps(string(own(dbus.ObjectPath(text)).(dbus.ObjectPath)))
	keeps(own(variant).(dbus.Variant).Value().(string))
	keeps(own([]string{text}).([]string)[0])
	keeps(own([][]any{{uint32(1), text}}).([][]any)[0][1].(string))
	for k, v := range own(map[string]string{text: text}).(map[string]string) {
		keeps(k)
		keeps(v)
	}
	for k, v := range own(map[string]dbus.Variant{text: variant}).(map[string]dbus.Variant) {
		keeps(k)
		keeps(v.Value().(string))
	}
	assert.Equal(t, []dbus.Signature{dbus.ParseSignatureMust("as")}, own([]dbus.Signature{dbus.ParseSignatureMust("as")}))
	struct1 := dbus.MakeVariantWithSignature([]any{text, uint32(1)}, dbus.ParseSignatureMust("(su)"))
	assert.Equal(t, struct1, own(struct1), "its type stays")
}

// FuzzDecodeMessage: whatever comes is told to be readable or not, and what is readable is read and
// made one's own.
func FuzzDecodeMessage(f *testing.F) {
	f.Add("a{sv}", []byte{0, 0, 0, 0, 0, 0, 0, 0}, 0, byte(0))
	f.Add("s", []byte("\x01\x00\x00\x00a\x00"), 0, byte(0))
	f.Add("v", []byte("\x01s\x00\x00\x01\x00\x00\x00a\x00"), 20, byte(255))
	f.Add("a(sv)", bytes.Repeat([]byte{1}, 64), 12, byte(200))
	f.Fuzz(func(t *testing.T, signature string, body []byte, at int, value byte) {
		if s, err := dbus.ParseSignature(signature); err != nil || s.Empty() {
			return
		}
		message := raw(t, signature, body)
		whole := bytes.Clone(message)
		if at > fixedHeader && at < len(message) { // the bus passes on nothing whose fixed header is damaged
			message[at] = value
		}
		if bytes.Contains(append(message, whole...), []byte("()")) { // no bus passes on an empty struct, of which godbus reads without end
			return
		}
		if unreadable(message, false); unreadable(whole, false) != "" {
			return
		}
		msg, err := dbus.DecodeMessage(bytes.NewReader(whole))
		if err != nil { // a basic type that is damaged, which the bus does not pass on either
			return
		}
		ownMessage(msg)
		again, err := dbus.DecodeMessage(bytes.NewReader(whole))
		require.NoError(t, err)
		if !bytes.ContainsAny([]byte(signature), "dv") { // no number equals NaN
			assert.Equal(t, again.Body, msg.Body)
		}
	})
}

package bus

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// rawCall returns an encoded method call with this body, which is in the wire format.
func rawCall(t testing.TB, signature string, body []byte) []byte {
	t.Helper()
	msg := dbus.Message{Type: dbus.TypeMethodCall, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath:      dbus.MakeVariant(dbus.ObjectPath("/a/b")),
		dbus.FieldMember:    dbus.MakeVariant("Member"),
		dbus.FieldSender:    dbus.MakeVariant(":1.234"),
		dbus.FieldSignature: dbus.MakeVariant(dbus.ParseSignatureMust(signature)),
		dbus.FieldInterface: dbus.MakeVariant("a.b"),
	}}
	var b bytes.Buffer
	require.NoError(t, msg.EncodeTo(&b, binary.LittleEndian))
	b.Write(body)
	message := b.Bytes()
	binary.LittleEndian.PutUint32(message[4:], uint32(len(body)))
	return message
}

// TestUnreadable_FindsWhatGodbusCannotDecode: these messages are valid, but godbus cannot encode
// them either, so the test encodes them itself.
func TestUnreadable_FindsWhatGodbusCannotDecode(t *testing.T) {
	number := binary.LittleEndian.AppendUint32
	dictionary := func(entry string) []byte { return append(number(number(nil, uint32(len(entry))), 0), entry...) }
	reason := func(signature string, body []byte) string { return unreadable(rawCall(t, signature, body), false) }
	assert.Equal(t, header{":1.234", "a{bs}", 0, true}, parseHeader(rawCall(t, "a{bs}", nil)))
	assert.Contains(t, reason("a{bs}", dictionary("\x01\x00\x00\x00\x01\x00\x00\x00x\x00")), "cannot be read")
	assert.Contains(t, reason("a{gs}", dictionary("\x01s\x00\x00\x01\x00\x00\x00x\x00")), "cannot be read")
	assert.Contains(t, reason("as", number(nil, 1000)), "cannot be read")
	assert.Empty(t, reason("as", number(nil, 0)))
	assert.Empty(t, reason("u", number(nil, 0)))
}

// zeros is an endless reader of zero bytes.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestGuard_DiscardsTooLongMessages: such messages are never in memory completely, whichever of
// their parts is too long, and the next message is read correctly.
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
	call := rawCall(t, "s", nil)
	signal, answer, headless, endless := bytes.Clone(call), bytes.Clone(call), bytes.Clone(call), bytes.Clone(call)
	signal[1], answer[1] = byte(dbus.TypeSignal), byte(dbus.TypeError)
	binary.LittleEndian.PutUint32(headless[12:], long) // the length of the header fields
	binary.LittleEndian.PutUint32(endless[4:], 1<<27)
	for _, message := range [][]byte{call, signal} {
		binary.LittleEndian.PutUint32(message[4:], long)
	}
	next := rawCall(t, "u", []byte{7, 0, 0, 0})
	g := &guard{UnixConn: ours.(*net.UnixConn), reader: bufio.NewReader(io.MultiReader(
		bytes.NewReader(call), io.LimitReader(zeros{}, long),
		bytes.NewReader(signal), io.LimitReader(zeros{}, long),
		bytes.NewReader(headless), io.LimitReader(zeros{}, fixedHeader+long-int64(len(headless))),
		bytes.NewReader(answer), bytes.NewReader(next), bytes.NewReader(endless),
	))}
	g.authenticated.Store(true)
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
	require.ErrorContains(t, err, "too long", "the message exceeds the limit of the specification")
	refusal, err := dbus.DecodeMessage(theirs)
	require.NoError(t, err)
	assert.Equal(t, "org.freedesktop.DBus.Error.LimitsExceeded", refusal.Headers[dbus.FieldErrorName].Value())
	assert.Equal(t, ":1.234", refusal.Headers[dbus.FieldDestination].Value())
	assert.Contains(t, refusal.Body[0], "8388608 at most")
	require.NoError(t, ours.Close())
	rest, err := io.ReadAll(theirs)
	require.NoError(t, err)
	assert.Empty(t, rest, "the other messages have no reply")
}

// TestDescriptorReader_SeparatesMessages: no descriptor is assigned to the wrong message, not even
// after a message whose number of descriptors is not known.
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
	r := descriptorReader{pending: []int{first, second}}
	r.startMessage(header{descriptors: 1, complete: true})
	msg := &dbus.Message{Body: []any{"text", dbus.UnixFDIndex(0), dbus.UnixFDIndex(0), dbus.UnixFDIndex(1)}}
	r.deliver(msg)
	assert.Equal(t, []any{"text", dbus.UnixFD(first), dbus.UnixFDIndex(0), dbus.UnixFDIndex(1)}, msg.Body,
		"each descriptor is delivered once")
	r.startMessage(header{descriptors: 0, complete: true})
	r.deliver(&dbus.Message{Body: []any{dbus.UnixFDIndex(0)}})
	assert.True(t, isOpen(second), "it belongs to a later message")
	r.pending = append(r.pending, third)
	r.startMessage(header{})
	assert.False(t, isOpen(second) || isOpen(third))
	assert.True(t, isOpen(first))
	require.NoError(t, unix.Close(first))
}

func TestCloneStrings_CopiesEveryString(t *testing.T) {
	text := "Fluffy"
	requireCopy := func(s string) {
		assert.NotSame(t, unsafe.StringData(text), unsafe.StringData(s))
		assert.Equal(t, text, s)
	}
	variant := dbus.MakeVariant(text)
	requireCopy(cloneValue(text).(string))
	requireCopy(string(cloneValue(dbus.ObjectPath(text)).(dbus.ObjectPath)))
	requireCopy(cloneValue(variant).(dbus.Variant).Value().(string))
	requireCopy(cloneValue([]string{text}).([]string)[0])
	requireCopy(cloneValue([][]any{{uint32(1), text}}).([][]any)[0][1].(string))
	for k, v := range cloneValue(map[string]string{text: text}).(map[string]string) {
		requireCopy(k)
		requireCopy(v)
	}
	for k, v := range cloneValue(map[string]dbus.Variant{text: variant}).(map[string]dbus.Variant) {
		requireCopy(k)
		requireCopy(v.Value().(string))
	}
	signatures := []dbus.Signature{dbus.ParseSignatureMust("as")}
	assert.Equal(t, signatures, cloneValue(slices.Clone(signatures)))
	struct1 := dbus.MakeVariantWithSignature([]any{text, uint32(1)}, dbus.ParseSignatureMust("(su)"))
	assert.Equal(t, struct1, cloneValue(struct1), "the type is the same")
}

// FuzzDecodeMessage checks that unreadable accepts any message without a panic, and that a message
// that it accepts can be decoded and cloned.
func FuzzDecodeMessage(f *testing.F) {
	f.Add("a{sv}", []byte{0, 0, 0, 0, 0, 0, 0, 0}, 0, byte(0))
	f.Add("s", []byte("\x01\x00\x00\x00a\x00"), 0, byte(0))
	f.Add("v", []byte("\x01s\x00\x00\x01\x00\x00\x00a\x00"), 20, byte(255))
	f.Add("a(sv)", bytes.Repeat([]byte{1}, 64), 12, byte(200))
	f.Fuzz(func(t *testing.T, signature string, body []byte, at int, value byte) {
		if s, err := dbus.ParseSignature(signature); err != nil || s.Empty() {
			return
		}
		message := rawCall(t, signature, body)
		whole := bytes.Clone(message)
		if at > fixedHeader && at < len(message) { // the bus rejects messages with a damaged fixed header
			message[at] = value
		}
		if bytes.Contains(append(message, whole...), []byte("()")) {
			return // the bus rejects empty structs; godbus would read an array of them endlessly
		}
		if unreadable(message, false); unreadable(whole, false) != "" {
			return
		}
		msg, err := dbus.DecodeMessage(bytes.NewReader(whole))
		if err != nil {
			return // a damaged value of a basic type, which the bus rejects
		}
		cloneStrings(msg)
		again, err := dbus.DecodeMessage(bytes.NewReader(whole))
		require.NoError(t, err)
		if !bytes.ContainsAny([]byte(signature), "dv") { // NaN is not equal to itself
			assert.Equal(t, again.Body, msg.Body)
		}
	})
}

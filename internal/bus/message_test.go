package bus

import (
	"bytes"
	"encoding/binary"
	"testing"
	"unsafe"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

// TestWhatGodbusCannotRead: messages that are valid, and that it cannot even send.
func TestWhatGodbusCannotRead(t *testing.T) {
	one := binary.LittleEndian.AppendUint32
	entry := func(key []byte) []byte { return append(one(one(nil, uint32(len(key))), 0), key...) }
	assert.Equal(t, header{":1.234", "a{bs}", 0}, parseHeader(raw(t, "a{bs}", nil)))
	assert.Contains(t, unreadable(raw(t, "a{bs}", entry([]byte("\x01\x00\x00\x00\x01\x00\x00\x00x\x00")))), "cannot be read")
	assert.Contains(t, unreadable(raw(t, "a{gs}", entry([]byte("\x01s\x00\x00\x01\x00\x00\x00x\x00")))), "cannot be read")
	assert.Contains(t, unreadable(raw(t, "as", one(nil, 1000))), "cannot be read")
	assert.Empty(t, unreadable(raw(t, "as", one(nil, 0))))
	assert.Empty(t, unreadable(raw(t, "u", one(nil, 0))))
}

func TestStringsOfOnesOwn(t *testing.T) {
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

// FuzzMessage: whatever comes is told to be readable or not, and what is readable is read and made one's own.
func FuzzMessage(f *testing.F) {
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
		if unreadable(message); unreadable(whole) != "" {
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

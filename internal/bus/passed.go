package bus

import (
	"bytes"
	"encoding/binary"
	"sync"

	"github.com/godbus/dbus/v5"
)

// passed remembers the last answers that were sent with descriptors: who cannot be passed any, as
// over ssh, is not given the answer, and waits for it in vain. Only whoever has sent it is told.
type passed struct {
	mu   sync.Mutex
	last [64]passage
	next int
}

// passage is one such answer.
type passage struct {
	serial uint32 // its own
	to     string // who called
	call   uint32 // the call's serial
}

// note takes note of an answer, before it is sent.
func (p *passed) note(serial uint32, answer *dbus.Message) {
	to, _ := answer.Headers[dbus.FieldDestination].Value().(string)
	call, _ := answer.Headers[dbus.FieldReplySerial].Value().(uint32)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last[p.next%len(p.last)] = passage{serial, to, call}
	p.next++
}

// of returns what was noted by this serial.
func (p *passed) of(serial uint32) (passage, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.last {
		if one.serial == serial && serial != 0 {
			return one, true
		}
	}
	return passage{}, false
}

// returned answers a call once more if the bus says that its answer was not passed on.
func (g *guard) returned(msg *dbus.Message) {
	if sender, _ := msg.Headers[dbus.FieldSender].Value().(string); msg.Type != dbus.TypeError || sender != "org.freedesktop.DBus" {
		return
	}
	serial, _ := msg.Headers[dbus.FieldReplySerial].Value().(uint32)
	if one, is := g.passed.of(serial); is {
		g.answer(one.to, one.call, "NotSupported", "the answer has a file descriptor, which cannot be passed over this connection")
	}
}

// answer answers a call with one of the bus's own errors.
func (g *guard) answer(to string, call uint32, name, says string) {
	answer := dbus.Message{Type: dbus.TypeError, Flags: dbus.FlagNoReplyExpected, Body: []any{says}, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldErrorName:   dbus.MakeVariant("org.freedesktop.DBus.Error." + name),
		dbus.FieldDestination: dbus.MakeVariant(to),
		dbus.FieldReplySerial: dbus.MakeVariant(call),
		dbus.FieldSignature:   dbus.MakeVariant(dbus.ParseSignatureMust("s")),
	}}
	var b bytes.Buffer
	if answer.EncodeTo(&b, binary.LittleEndian) == nil {
		_ = g.send(b.Bytes()) // a connection that is gone is noticed by who reads
	}
}

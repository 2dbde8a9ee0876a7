package server

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/supervisor"
)

var (
	managedObjects = dbus.ParseSignatureMust("a{oa{sa{sv}}}")
	sessionRows    = dbus.SignatureOf([]dbusapi.SessionRow{})
)

// marshalRows returns the body of ListSessions' reply, an array of dbusapi.SessionRow. For a
// thousand sessions, godbus would allocate 1 MB.
func marshalRows(all []*supervisor.Snapshot) bus.Marshalled {
	w := make(wire, 0, 64+144*len(all))
	w.array(8, func() {
		for _, n := range all {
			w.align(8)
			for _, column := range []string{n.ID, n.Agent, n.State, n.Activity, n.Attention} {
				w.text(column)
			}
			w.number64(usec(n.StateChanged))
			w.text(string(dbusapi.SessionPath(n.ID)))
		}
	})
	return bus.Marshalled{Signature: sessionRows, Body: w}
}

// marshalObjects returns the body of GetManagedObjects' reply. A thousand sessions have 34,000
// values. godbus inspects each of them by reflection, which takes 50 ms and 23 MB, and no signal
// can be sent meanwhile.
func marshalObjects(all []*supervisor.Snapshot) bus.Marshalled {
	w := make(wire, 0, 64+2560*len(all))
	w.array(8, func() {
		for _, n := range all {
			w.align(8)
			w.text(string(dbusapi.SessionPath(n.ID)))
			w.array(8, func() {
				w.align(8)
				w.text(dbusapi.SessionInterface)
				w.array(8, func() {
					for name, value := range snapshotFields.of(n) {
						w.align(8)
						w.text(name)
						w.variant(value)
					}
				})
			})
		}
	})
	return bus.Marshalled{Signature: managedObjects, Body: w}
}

// wire is a message body in the D-Bus wire format, little-endian.
type wire []byte

func (w *wire) align(n int) {
	for len(*w)%n != 0 {
		*w = append(*w, 0)
	}
}

func (w *wire) number(n uint32) {
	w.align(4)
	*w = binary.LittleEndian.AppendUint32(*w, n)
}

func (w *wire) number64(n uint64) {
	w.align(8)
	*w = binary.LittleEndian.AppendUint64(*w, n)
}

// text appends a string or an object path. The bus disconnects a client that sends a string with a
// NUL byte or invalid UTF-8, so these are replaced.
func (w *wire) text(s string) {
	if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	}
	w.number(uint32(len(s)))
	*w = append(append(*w, s...), 0)
}

// array appends an array. f appends its elements, which are aligned to n bytes.
func (w *wire) array(n int, f func()) {
	w.number(0)
	length := len(*w) - 4
	w.align(n)
	begin := len(*w)
	f()
	binary.LittleEndian.PutUint32((*w)[length:], uint32(len(*w)-begin))
}

func (w *wire) signature(s string) { *w = append(append(append(*w, byte(len(s))), s...), 0) }

// variant appends the value of a property. It panics if no property of a session has this type.
func (w *wire) variant(value any) {
	switch v := value.(type) {
	case string:
		w.signature("s")
		w.text(v)
	case bool:
		w.signature("b")
		n := uint32(0)
		if v {
			n = 1
		}
		w.number(n)
	case uint32:
		w.signature("u")
		w.number(v)
	case int32:
		w.signature("i")
		w.number(uint32(v))
	case uint64:
		w.signature("t")
		w.number64(v)
	case []string:
		w.signature("as")
		w.array(4, func() {
			for _, s := range v {
				w.text(s)
			}
		})
	case []uint16:
		w.signature("aq")
		w.array(2, func() {
			for _, n := range v {
				*w = binary.LittleEndian.AppendUint16(*w, n)
			}
		})
	case map[string]string:
		w.signature("a{ss}")
		w.array(8, func() {
			for name, s := range v {
				w.align(8)
				w.text(name)
				w.text(s)
			}
		})
	default:
		panic(fmt.Sprintf("no property of a session has type %T", value))
	}
}

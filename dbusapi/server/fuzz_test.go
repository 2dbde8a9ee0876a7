package server

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
)

// FuzzMethodCalls checks that no message body of any signature causes a panic when the call is
// ordered, checked and parsed, and that every refusal has an error name of the contract.
func FuzzMethodCalls(f *testing.F) {
	f.Fuzz(func(t *testing.T, method, signature string, body []byte) {
		sig, err := dbus.ParseSignature(signature)
		if err != nil || bytes.Contains(append([]byte(signature), body...), []byte("()")) {
			return // a bus does not deliver empty structs
		}
		msg := message(dbusapi.ManagerPath, dbusapi.ManagerInterface, "Member")
		msg.Headers[dbus.FieldSignature] = dbus.MakeVariant(sig)
		var b bytes.Buffer
		require.NoError(t, msg.EncodeTo(&b, binary.LittleEndian))
		binary.LittleEndian.PutUint32(b.Bytes()[4:], uint32(len(body)))
		b.Write(body)
		msg, err = dbus.DecodeMessage(&b)
		if err != nil {
			return
		}
		msg.Headers[dbus.FieldMember] = dbus.MakeVariant(method)
		orderKey(msg)
		for _, methods := range []methods{
			managerInterfaces[dbusapi.ManagerInterface],
			sessionInterfaces[dbusapi.SessionInterface],
			sessionInterfaces[propertiesInterface],
		} {
			if known := methods[method]; known != nil {
				_ = (&invocation{object: &object{}, method: known}).check(msg)
			}
		}
		for _, value := range msg.Body {
			for _, err := range parsed(value) {
				var e *dbus.Error
				if errors.As(err, &e) {
					assert.NotEmpty(t, dbusapi.ShortErrorName(*e))
				}
			}
		}
	})
}

// parsed passes a value to every parser for its type, and returns their errors.
func parsed(value any) (errs []error) {
	note := func(_ any, err error) { errs = append(errs, err) }
	switch v := value.(type) {
	case map[string]dbus.Variant:
		note(parseSpec(v))
		note(parseReport("waiting", v))
	case [][]any:
		var properties []dbusapi.UnitProperty
		if dbus.Store([]any{v}, &properties) == nil {
			note(readProperties(properties))
		}
	}
	return errs
}

package propertysyntax

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"

	"github.com/godbus/dbus/v5"
)

// wirePrefix marks a value that is stored in D-Bus wire format, in base64: godbus cannot parse its
// own text form of a structure. No text form of a value begins with it.
const wirePrefix = "wire:"

// encodeWire encodes the value in wire format.
func encodeWire(v dbus.Variant) (string, error) {
	typed, err := Typed(v)
	if err != nil {
		return "", err
	}
	msg := &dbus.Message{
		Type: dbus.TypeSignal,
		Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath:      dbus.MakeVariant(dbus.ObjectPath("/")),
			dbus.FieldInterface: dbus.MakeVariant("a.b"),
			dbus.FieldMember:    dbus.MakeVariant("c"),
			dbus.FieldSignature: dbus.MakeVariant(dbus.ParseSignatureMust("v")),
		},
		Body: []any{typed},
	}
	var b bytes.Buffer
	if err := msg.EncodeTo(&b, binary.LittleEndian); err != nil {
		return "", err
	}
	return wirePrefix + base64.StdEncoding.EncodeToString(b.Bytes()), nil
}

// decodeWire decodes the result of encodeWire, without the prefix.
func decodeWire(text, signature string) (dbus.Variant, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return dbus.Variant{}, err
	}
	msg, err := dbus.DecodeMessage(bytes.NewReader(raw))
	if err != nil {
		return dbus.Variant{}, err
	}
	if len(msg.Body) != 1 {
		return dbus.Variant{}, errors.New("it is not a single value")
	}
	v, ok := msg.Body[0].(dbus.Variant)
	if !ok || v.Signature().String() != signature {
		return dbus.Variant{}, fmt.Errorf("its type is not %q", signature)
	}
	return Typed(v)
}

// Typed converts a value to Go types that match its signature. godbus decodes a structure as []any,
// which it would send as an array of variants.
func Typed(v dbus.Variant) (typed dbus.Variant, err error) {
	defer func() {
		if p := recover(); p != nil {
			typed, err = dbus.Variant{}, fmt.Errorf("cannot convert a value of type %q: %v", v.Signature().String(), p)
		}
	}()
	sig := v.Signature()
	t, rest, err := goType(sig.String())
	if err != nil || rest != "" {
		return dbus.Variant{}, fmt.Errorf("cannot convert a value of type %q: %w", sig.String(), err)
	}
	to := reflect.New(t)
	if err := dbus.Store([]any{v.Value()}, to.Interface()); err != nil {
		return dbus.Variant{}, fmt.Errorf("cannot convert a value of type %q: %w", sig.String(), err)
	}
	return dbus.MakeVariantWithSignature(to.Elem().Interface(), sig), nil
}

// basicTypes are the Go types of the D-Bus types with one letter.
var basicTypes = map[byte]reflect.Type{
	'y': reflect.TypeFor[byte](), 'b': reflect.TypeFor[bool](), 'n': reflect.TypeFor[int16](),
	'q': reflect.TypeFor[uint16](),
	'i': reflect.TypeFor[int32](), 'u': reflect.TypeFor[uint32](), 'x': reflect.TypeFor[int64](),
	't': reflect.TypeFor[uint64](),
	'd': reflect.TypeFor[float64](), 's': reflect.TypeFor[string](), 'o': reflect.TypeFor[dbus.ObjectPath](),
	'g': reflect.TypeFor[dbus.Signature](),
	'v': reflect.TypeFor[dbus.Variant](),
}

// goType returns the Go type of the first complete type in a signature, and the rest of the
// signature.
func goType(sig string) (t reflect.Type, rest string, err error) {
	switch {
	case sig == "":
		return nil, "", errors.New("the signature ends too early")
	case sig[0] == '(':
		return structType(sig[1:])
	case len(sig) > 1 && sig[:2] == "a{":
		key, rest, err := goType(sig[2:])
		if err != nil {
			return nil, "", err
		}
		value, rest, err := goType(rest)
		if err != nil {
			return nil, "", err
		}
		if rest == "" || rest[0] != '}' || !key.Comparable() {
			return nil, "", errors.New("a dictionary is not closed")
		}
		return reflect.MapOf(key, value), rest[1:], nil
	case sig[0] == 'a':
		elem, rest, err := goType(sig[1:])
		if err != nil {
			return nil, "", err
		}
		return reflect.SliceOf(elem), rest, nil
	}
	t, ok := basicTypes[sig[0]]
	if !ok {
		return nil, "", fmt.Errorf("a unit property cannot have type %q", sig[:1])
	}
	return t, sig[1:], nil
}

func structType(sig string) (reflect.Type, string, error) {
	var fields []reflect.StructField
	for sig != "" && sig[0] != ')' {
		t, rest, err := goType(sig)
		if err != nil {
			return nil, "", err
		}
		fields = append(fields, reflect.StructField{Name: fmt.Sprintf("F%d", len(fields)), Type: t})
		sig = rest
	}
	if sig == "" {
		return nil, "", errors.New("a structure is not closed")
	}
	return reflect.StructOf(fields), sig[1:], nil
}

package bus

import (
	"strings"

	"github.com/godbus/dbus/v5"
)

// ownMessage gives a message strings of its own. godbus puts those of each message into a buffer of
// 4 KiB, which stays for as long as one of them is kept.
func ownMessage(msg *dbus.Message) {
	for field, v := range msg.Headers {
		msg.Headers[field] = ownVariant(v)
	}
	for i, v := range msg.Body {
		msg.Body[i] = own(v)
	}
}

// own returns a value with strings of its own. It is meant for the types that are kept; of others
// it returns what it was given.
func own(value any) any {
	switch v := value.(type) {
	case string:
		return strings.Clone(v)
	case dbus.ObjectPath:
		return dbus.ObjectPath(strings.Clone(string(v)))
	case dbus.Signature:
		return ownSignature(v)
	case dbus.Variant:
		return ownVariant(v)
	case []string:
		for i := range v {
			v[i] = strings.Clone(v[i])
		}
	case []any:
		for i := range v {
			v[i] = own(v[i])
		}
	case [][]any:
		for i := range v {
			own(v[i])
		}
	case map[string]string:
		return ownMap(v, strings.Clone)
	case map[string]dbus.Variant:
		return ownMap(v, ownVariant)
	}
	return value
}

func ownVariant(v dbus.Variant) dbus.Variant {
	return dbus.MakeVariantWithSignature(own(v.Value()), ownSignature(v.Signature()))
}

func ownSignature(s dbus.Signature) dbus.Signature {
	return dbus.ParseSignatureMust(strings.Clone(s.String())) // it was parsed before
}

func ownMap[T any](m map[string]T, value func(T) T) map[string]T {
	o := make(map[string]T, len(m))
	for k, v := range m {
		o[strings.Clone(k)] = value(v)
	}
	return o
}

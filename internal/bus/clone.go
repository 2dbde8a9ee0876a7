package bus

import (
	"strings"

	"github.com/godbus/dbus/v5"
)

// cloneStrings replaces the strings of a message with copies. godbus places the strings of each
// message in a buffer of 4 KiB, which stays in memory as long as any one of them is referenced.
func cloneStrings(msg *dbus.Message) {
	for field, v := range msg.Headers {
		msg.Headers[field] = cloneVariant(v)
	}
	for i, v := range msg.Body {
		msg.Body[i] = cloneValue(v)
	}
}

// cloneValue returns a value with copies of its strings. It supports the types that this program
// stores, and returns values of other types unchanged.
func cloneValue(value any) any {
	switch v := value.(type) {
	case string:
		return strings.Clone(v)
	case dbus.ObjectPath:
		return dbus.ObjectPath(strings.Clone(string(v)))
	case dbus.Signature:
		return cloneSignature(v)
	case dbus.Variant:
		return cloneVariant(v)
	case []string:
		for i := range v {
			v[i] = strings.Clone(v[i])
		}
	case []any:
		for i := range v {
			v[i] = cloneValue(v[i])
		}
	case [][]any:
		for i := range v {
			cloneValue(v[i])
		}
	case map[string]string:
		return cloneMap(v, strings.Clone)
	case map[string]dbus.Variant:
		return cloneMap(v, cloneVariant)
	}
	return value
}

func cloneVariant(v dbus.Variant) dbus.Variant {
	return dbus.MakeVariantWithSignature(cloneValue(v.Value()), cloneSignature(v.Signature()))
}

func cloneSignature(s dbus.Signature) dbus.Signature {
	return dbus.ParseSignatureMust(strings.Clone(s.String())) // it is valid because it was parsed before
}

func cloneMap[T any](m map[string]T, value func(T) T) map[string]T {
	o := make(map[string]T, len(m))
	for k, v := range m {
		o[strings.Clone(k)] = value(v)
	}
	return o
}

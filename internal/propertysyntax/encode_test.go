package propertysyntax_test

import (
	"math"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/propertysyntax"
)

func TestEncode_RoundTrips(t *testing.T) {
	for _, v := range []any{
		uint64(1 << 40), uint64(math.MaxUint64), uint32(7), int32(-3), int64(math.MinInt64), true,
		"a \"quoted\" text, 你好 \\ '", "", []string{}, []string{"a", "b c"},
		[]byte{0x0f, 0, 0xff}, []byte{}, 3.25, byte(7), dbus.ObjectPath("/a/b"), map[string]string{"a": "b"},
	} {
		want := dbus.MakeVariant(v)
		signature, text, err := propertysyntax.Encode(want)
		require.NoError(t, err)
		got, err := propertysyntax.Decode(signature, text)
		require.NoError(t, err, "%s %s", signature, text)
		assert.Equal(t, want, got)
	}
}

// godbus decodes structures as lists of any; the decoded text has to have the types that systemd
// expects.
func TestEncode_KeepsTypesOfStructures(t *testing.T) {
	for _, row := range []struct {
		signature      string
		decoded, typed any
	}{
		{"a(ss)", [][]any{{"/dev/fuse", "rw"}, {"/dev/kvm", "r"}},
			[]struct{ F0, F1 string }{{"/dev/fuse", "rw"}, {"/dev/kvm", "r"}}},
		{"a(st)", [][]any{{"/dev/vda", uint64(5)}}, []struct {
			F0 string
			F1 uint64
		}{{"/dev/vda", 5}}},
		{"(ba(iay))", []any{true, [][]any{{int32(2), []byte{127, 0, 0, 0}}}}, struct {
			F0 bool
			F1 []struct {
				F0 int32
				F1 []byte
			}
		}{true, []struct {
			F0 int32
			F1 []byte
		}{{2, []byte{127, 0, 0, 0}}}}},
	} {
		sig := dbus.ParseSignatureMust(row.signature)
		signature, text, err := propertysyntax.Encode(dbus.MakeVariantWithSignature(row.decoded, sig))
		require.NoError(t, err, row.signature)
		assert.Equal(t, row.signature, signature)
		got, err := propertysyntax.Decode(signature, text)
		require.NoError(t, err, row.signature)
		assert.Equal(t, sig, got.Signature())
		assert.Equal(t, row.typed, got.Value())
	}
}

func TestDecode_RejectsInvalidText(t *testing.T) {
	_, err := propertysyntax.Decode("t", "many")
	require.ErrorContains(t, err, "cannot read a property's value")
	_, err = propertysyntax.Decode("b", "[]")
	require.ErrorContains(t, err, "cannot read a property's value")
	_, err = propertysyntax.Decode("{", "1")
	require.ErrorContains(t, err, "cannot read a property of type")
	_, err = propertysyntax.Decode("a(ss)", "wire:AAAA")
	require.ErrorContains(t, err, "cannot read a property's value")
	_, _, err = propertysyntax.Encode(dbus.MakeVariant(dbus.UnixFD(1)))
	require.ErrorContains(t, err, "cannot convert a value of type")
}

// FuzzParse checks that no input makes Parse panic, and that an accepted value can be saved and
// read again.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"MemoryMax=1G", "CPUQuota=20%", "AllowedCPUs=0-3,8", "RuntimeMaxSec=1h 2min", "TasksMax=10%", "Delegate=yes",
		"Slice=a",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, v, err := propertysyntax.Parse(text)
		if err != nil {
			return
		}
		require.NotContains(t, name, "=")
		signature, encoded, err := propertysyntax.Encode(v)
		require.NoError(t, err)
		// D-Bus strings are valid UTF-8 without NUL
		if strings.ToValidUTF8(text, "") == text && !strings.ContainsRune(text, 0) {
			got, err := propertysyntax.Decode(signature, encoded)
			require.NoError(t, err, "%q", encoded)
			require.Equal(t, v.Value(), got.Value())
		}
	})
}

// FuzzDecode checks that a damaged record cannot make Decode panic.
func FuzzDecode(f *testing.F) {
	f.Add("t", "@t 5")
	f.Add("a(sv)", `[("a", <1>)]`)
	f.Add("ay", `b"abc"`)
	if signature, text, err := propertysyntax.Encode(dbus.MakeVariantWithSignature([][]any{{"a", "b"}},
		dbus.ParseSignatureMust("a(ss)"))); err == nil {
		f.Add(signature, text)
	}
	f.Fuzz(func(_ *testing.T, signature, text string) { _, _ = propertysyntax.Decode(signature, text) })
}

package unitproperty_test

import (
	"math"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/unitproperty"
)

func TestWhatIsEncodedIsDecoded(t *testing.T) {
	for _, v := range []any{
		uint64(1 << 40), uint64(math.MaxUint64), uint32(7), int32(-3), int64(math.MinInt64), true, "a \"quoted\" text, 你好 \\ '", "", []string{}, []string{"a", "b c"},
		[]byte{0x0f, 0, 0xff}, []byte{}, 3.25, byte(7), dbus.ObjectPath("/a/b"), map[string]string{"a": "b"},
	} {
		want := dbus.MakeVariant(v)
		signature, text := unitproperty.Encode(want)
		got, err := unitproperty.Decode(signature, text)
		require.NoError(t, err, "%s %s", signature, text)
		assert.Equal(t, want, got)
	}
}

func TestDecodeRefuses(t *testing.T) {
	_, err := unitproperty.Decode("t", "many")
	require.ErrorContains(t, err, "cannot read a property's value")
	_, err = unitproperty.Decode("b", "[]")
	require.ErrorContains(t, err, "cannot read a property's value")
	_, err = unitproperty.Decode("{", "1")
	require.ErrorContains(t, err, "cannot read a property of type")
}

// FuzzParse: what a person writes never crashes it, and what is taken can be saved and read again.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"MemoryMax=1G", "CPUQuota=20%", "AllowedCPUs=0-3,8", "RuntimeMaxSec=1h 2min", "TasksMax=10%", "Delegate=yes", "Slice=a"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, v, err := unitproperty.Parse(text)
		if err != nil {
			return
		}
		require.NotContains(t, name, "=")
		signature, encoded := unitproperty.Encode(v)
		if strings.ToValidUTF8(text, "") == text && !strings.ContainsRune(text, 0) { // the bus takes no other text
			got, err := unitproperty.Decode(signature, encoded)
			require.NoError(t, err, "%q", encoded)
			require.Equal(t, v.Value(), got.Value())
		}
	})
}

// FuzzDecode: nor does what stands in a damaged record.
func FuzzDecode(f *testing.F) {
	f.Add("t", "@t 5")
	f.Add("a(sv)", `[("a", <1>)]`)
	f.Add("ay", `b"abc"`)
	f.Fuzz(func(_ *testing.T, signature, text string) { _, _ = unitproperty.Decode(signature, text) })
}

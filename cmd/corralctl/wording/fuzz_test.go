package wording

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// FuzzPrintable checks that the output has no character that a terminal interprets, whatever the
// input, and that output which is fed in again is not changed.
func FuzzPrintable(f *testing.F) {
	for _, seed := range []string{"plain", "\x1b[31mred", "a\nb\tc", "\u202eabc", "\xff\xc2", "\u009b1m"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		shown := Printable(text)
		assert.True(t, utf8.ValidString(shown))
		assert.NotContains(t, shown, "\n")
		assert.Equal(t, shown, Printable(shown))
		lines := PrintableLines(text)
		assert.Equal(t, strings.Count(text, "\n"), strings.Count(lines, "\n"))
		for _, r := range shown + lines {
			assert.False(t, unicode.IsControl(r) && r != '\n' && r != '\t', "%q", r)
			assert.False(t, unicode.Is(unicode.Bidi_Control, r), "%q", r)
		}
		plain, err := json.Marshal(text)
		require.NoError(t, err)
		var want, is string
		require.NoError(t, json.Unmarshal(plain, &want))
		safe := PrintableJSON(plain)
		require.NoError(t, json.Unmarshal(safe, &is))
		assert.Equal(t, want, is)
		assert.Equal(t, string(safe), Printable(string(safe)))
	})
}

package wording

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

// FuzzPrintable: whatever an agent says, nothing of it acts on the terminal it is shown on, and what is harmless stays so.
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
		}
	})
}

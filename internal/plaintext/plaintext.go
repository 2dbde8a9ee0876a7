// Package plaintext defines which characters of untrusted text must not be written to a terminal.
package plaintext

import "unicode"

// These characters only join their neighbours or keep them apart: emoji of several parts need
// U+200D, Persian and Indic scripts need both.
const (
	nonJoiner = '\u200c'
	joiner    = '\u200d'
)

// IsUnsafe reports whether a terminal would interpret a character, or whether it would make a
// person read other text than there is: control characters (C0, DEL and C1, of which many terminals
// interpret U+009B as an escape sequence), line and paragraph separators, and format characters,
// which change the displayed order (Bidi_Control) or are invisible. Joiners are safe, and so are
// the visible format characters of Arabic and Syriac.
func IsUnsafe(r rune) bool {
	switch {
	case r < 0x7f:
		return r < 0x20
	case r == joiner || r == nonJoiner:
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) ||
		unicode.Is(unicode.Cf, r) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// Package plaintext tells which characters of a text that somebody else wrote must not reach a
// terminal.
package plaintext

import "unicode"

// The characters whose only effect is that their neighbours are joined or not: emoji of several
// parts need U+200D, Persian and Indic scripts need both.
const (
	nonJoiner = '\u200c'
	joiner    = '\u200d'
)

// IsUnsafe tells whether a terminal would act on a character, or a person would read another text
// than there is: control characters (C0, DEL and C1, of which many terminals take U+009B for an
// escape sequence), line and paragraph separators, and format characters, which change the order of
// what is shown (Bidi_Control) or are not visible. Joiners are safe, and so are the format
// characters of Arabic and Syriac that are visible.
func IsUnsafe(r rune) bool {
	switch {
	case r < 0x7f:
		return r < 0x20
	case r == joiner || r == nonJoiner:
		return false
	}
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) || unicode.Is(unicode.Cf, r) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

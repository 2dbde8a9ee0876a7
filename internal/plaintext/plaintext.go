// Package plaintext prepares untrusted text for people. It defines which characters must not be
// written to a terminal.
package plaintext

import (
	"strings"
	"unicode"
)

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

// Line returns a text as one line of valid UTF-8. It replaces control characters by spaces, and
// removes all other characters that are unsafe.
func Line(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp):
			return ' '
		case IsUnsafe(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	return strings.Join(strings.Fields(text), " ")
}

// AbbreviateHome returns a path with the directory home at its start replaced by ~.
func AbbreviateHome(path, home string) string {
	home = strings.TrimRight(home, "/")
	if rest, ok := strings.CutPrefix(path, home); ok && home != "" && (rest == "" || rest[0] == '/') {
		return "~" + rest
	}
	return path
}

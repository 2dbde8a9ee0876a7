// Package keys parses tmux's key names and encodes keys as a terminal sends them.
package keys

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Key is one key with its modifiers. The zero value is not a key.
type Key struct {
	char      rune // the character that it types; 0 for a function key
	special   special
	modifiers modifiers
	raw       bool // char is sent unchanged, as tmux does with a character given by its number
}

// special is a key that sends a control sequence (CSI or SS3).
type special struct {
	final  byte // last byte of the sequence; 0 for a key that types a character
	number byte // first parameter; 1 if the key has none without modifiers
}

// modifiers is a set of modifiers: xterm's modifier parameter minus one.
type modifiers byte

const (
	shift modifiers = 1 << iota
	alt
	control
)

var modifierLetters = map[byte]modifiers{
	'C': control, 'c': control, 'M': alt, 'm': alt, 'S': shift, 's': shift,
}

// Modes are the terminal modes that change what keys send.
type Modes struct {
	ApplicationCursor bool // application cursor keys (DECCKM)
	ApplicationKeypad bool // application keypad (DECKPAM)
	ModifyOtherKeys   bool // the program has enabled modified keys (XTMODKEYS, modifyOtherKeys)
	Kitty             bool // the program has enabled them by the kitty keyboard protocol
}

const (
	tab       = '\t'
	enter     = '\r'
	escape    = '\x1b'
	backspace = '\x7f'
)

// keypadNumber is special.number of the keys of the numeric keypad. In application mode they send
// SS3 and the final byte, else their character.
const keypadNumber = 0

// maxName is the length limit of a name, in bytes: "C-M-S-PageDown" has 14.
const maxName = 32

// namedKeys has the keys by their names, in lower case because tmux ignores case in them.
var namedKeys = map[string]Key{
	"enter": {char: enter}, "escape": {char: escape}, "space": {char: ' '}, "bspace": {char: backspace},
	"tab": {char: tab}, "btab": {char: tab, modifiers: shift},
	"up": functionKey('A', 1), "down": functionKey('B', 1), "right": functionKey('C', 1), "left": functionKey('D', 1),
	"home": functionKey('H', 1), "end": functionKey('F', 1),
	"ic": functionKey('~', 2), "insert": functionKey('~', 2), "dc": functionKey('~', 3), "delete": functionKey('~', 3),
	"ppage": functionKey('~', 5), "pageup": functionKey('~', 5), "pgup": functionKey('~', 5),
	"npage": functionKey('~', 6), "pagedown": functionKey('~', 6), "pgdn": functionKey('~', 6),
	"f1": functionKey('P', 1), "f2": functionKey('Q', 1), "f3": functionKey('R', 1), "f4": functionKey('S', 1),
	"f5": functionKey('~', 15), "f6": functionKey('~', 17), "f7": functionKey('~', 18), "f8": functionKey('~', 19),
	"f9": functionKey('~', 20), "f10": functionKey('~', 21), "f11": functionKey('~', 23), "f12": functionKey('~', 24),
	"kp0": keypadKey('0', 'p'), "kp1": keypadKey('1', 'q'), "kp2": keypadKey('2', 'r'),
	"kp3": keypadKey('3', 's'), "kp4": keypadKey('4', 't'), "kp5": keypadKey('5', 'u'),
	"kp6": keypadKey('6', 'v'), "kp7": keypadKey('7', 'w'), "kp8": keypadKey('8', 'x'),
	"kp9": keypadKey('9', 'y'), "kp*": keypadKey('*', 'j'), "kp+": keypadKey('+', 'k'),
	"kp-": keypadKey('-', 'm'), "kp.": keypadKey('.', 'n'), "kp/": keypadKey('/', 'o'),
	"kpenter": keypadKey(enter, 'M'),
}

func functionKey(final, number byte) Key { return Key{special: special{final, number}} }

func keypadKey(char rune, final byte) Key {
	return Key{char: char, special: special{final, keypadNumber}}
}

// Parse decodes the name of a key as send-keys in tmux(1) does: one character, a name such as Enter
// or PageUp, or a character's number such as 0x1b, after any of the modifiers C- or ^ for Ctrl, M-
// for Alt and S- for Shift. Unlike tmux, which types other words literally, Parse returns an error
// for them.
func Parse(name string) (Key, error) {
	k, rest := Key{}, name
	if n, ok := strings.CutPrefix(rest, "^"); ok && n != "" {
		k.modifiers, rest = control, n
	}
	for len(rest) > 2 && rest[1] == '-' {
		m, ok := modifierLetters[rest[0]]
		if !ok {
			break
		}
		k.modifiers |= m
		rest = rest[2:]
	}
	switch r, size := utf8.DecodeRuneInString(rest); {
	case rest == "" || len(name) > maxName || r == utf8.RuneError && size == 1:
	case size == len(rest):
		k.char, k.raw = r, r < ' '
		return k, nil
	case strings.HasPrefix(rest, "0x") || strings.HasPrefix(rest, "0X"):
		n, err := strconv.ParseUint(rest[2:], 16, 32)
		if err == nil && utf8.ValidRune(rune(n)) && n <= unicode.MaxRune {
			k.char, k.raw = rune(n), true
			return k, nil
		}
	default:
		if found, ok := namedKeys[strings.ToLower(rest)]; ok {
			found.modifiers |= k.modifiers
			return found, nil
		}
	}
	const expected = "expected a key name of tmux such as Enter, Escape or C-c, or one character"
	return Key{}, fmt.Errorf("invalid key %.64q: "+expected, name)
}

// ParseAll decodes the names of several keys.
func ParseAll(names []string) ([]Key, error) {
	all := make([]Key, len(names))
	for i, name := range names {
		var err error
		if all[i], err = Parse(name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Names returns the known key names in tmux's spelling, for completion and messages.
func Names() []string {
	return []string{
		"Enter", "Escape", "Tab", "BTab", "Space", "BSpace", "Up", "Down", "Left", "Right",
		"Home", "End", "PageUp", "PageDown", "IC", "DC", "Insert", "Delete",
		"F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F9", "F10", "F11", "F12",
	}
}

// IsNavigation reports whether most programs only move the selection or the view when the key is
// pressed, so that it does not answer a question.
func (k Key) IsNavigation() bool {
	switch final := k.special.final; {
	case final >= 'A' && final <= 'H': // arrows, Home and End
		return true
	case final == '~':
		return k.special.number == 5 || k.special.number == 6 // PageUp and PageDown
	}
	return k.char == tab
}

// Append appends the bytes that the key sends in a terminal with these modes. If the key has a
// legacy encoding, which every program understands, it is used even if the program has enabled
// another protocol; tmux, which does not support the kitty keyboard protocol, does the same. ok is
// false if the key has no legacy encoding and the program has not enabled another one.
func (k Key) Append(b []byte, m Modes) (_ []byte, ok bool) {
	switch {
	case k.special.final != 0 && k.special.number != keypadNumber:
		return k.appendFunction(b, m), true
	case k.special.final != 0 && m.ApplicationKeypad && k.modifiers == 0:
		return append(b, escape, 'O', k.special.final), true
	}
	char, ok := k.legacy()
	switch {
	case ok && k.char == tab && k.modifiers&shift != 0:
		return append(k.appendAlt(b), "\x1b[Z"...), true
	case ok:
		return utf8.AppendRune(k.appendAlt(b), char), true
	case m.Kitty:
		b = strconv.AppendInt(append(b, "\x1b["...), int64(unicode.ToLower(k.char)), 10)
		return append(k.appendModifiers(append(b, ';')), 'u'), true
	case m.ModifyOtherKeys:
		b = append(k.appendModifiers(append(b, "\x1b[27;"...)), ';')
		return append(strconv.AppendInt(b, int64(k.char), 10), '~'), true
	}
	return b, false
}

// legacy returns the character that the key sends in the legacy encoding, without the ESC that Alt
// puts before it; ok is false if there is none.
func (k Key) legacy() (char rune, ok bool) {
	c := k.char
	switch {
	case k.modifiers&^alt == 0, c == tab && k.modifiers&^alt == shift:
		return c, true
	case k.modifiers&control == 0: // Shift alone
		upper := unicode.ToUpper(c)
		return upper, upper != c || unicode.IsUpper(c)
	case k.modifiers&shift != 0 || k.raw:
		return 0, false
	case c >= 'a' && c <= 'z':
		return c - 'a' + 1, true
	case c >= '@' && c <= '_':
		return c - '@', true
	case c == ' ':
		return 0, true
	case c == '?':
		return backspace, true
	case c == '/':
		return 0x1f, true
	case c == backspace:
		return '\b', true
	}
	return 0, false
}

// appendFunction appends the control sequence of a function key.
func (k Key) appendFunction(b []byte, m Modes) []byte {
	final, number := k.special.final, k.special.number
	isCursor := final >= 'A' && final <= 'D'
	switch {
	case k.modifiers == 0 && (final >= 'P' && final <= 'S' || isCursor && m.ApplicationCursor):
		return append(b, escape, 'O', final)
	case k.modifiers == 0 && isCursor:
		return append(b, escape, '[', final)
	case k.modifiers == 0 && final != '~': // Home and End, as in tmux's and screen's terminfo entries
		number, final = map[byte]byte{'H': 1, 'F': 4}[final], '~'
	}
	b = strconv.AppendInt(append(b, escape, '['), int64(number), 10)
	if k.modifiers != 0 {
		b = k.appendModifiers(append(b, ';'))
	}
	return append(b, final)
}

func (k Key) appendAlt(b []byte) []byte {
	if k.modifiers&alt != 0 {
		return append(b, escape)
	}
	return b
}

func (k Key) appendModifiers(b []byte) []byte { return strconv.AppendInt(b, int64(k.modifiers)+1, 10) }

// Label returns the name of a key as documentation spells it: "Ctrl-q" for "C-q".
func Label(key string) string {
	var label string
	for len(key) > 2 && key[1] == '-' {
		label += map[byte]string{'C': "Ctrl-", 'M': "Alt-", 'S': "Shift-"}[key[0]&^0x20]
		key = key[2:]
	}
	return label + key
}

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
	char    rune // what it types; 0 for a function key
	special special
	mods    mods
	raw     bool // char is sent as it is, as tmux sends a character given by its number
}

// special is a key that sends a control sequence (CSI or SS3).
type special struct {
	final  byte // last byte of the sequence; 0 for a key that types a character
	number byte // first parameter; 1 where a key without modifiers has none
}

// mods are the modifiers, as xterm counts them in a parameter, less one.
type mods byte

const (
	shift mods = 1 << iota
	alt
	control
)

// Modes are the modes of a terminal that change what keys send.
type Modes struct {
	Cursor bool // application cursor keys (DECCKM)
	Keypad bool // application keypad (DECKPAM)
	Other  bool // the program has asked for other keys with modifiers (XTMODKEYS)
	Kitty  bool // it has asked for them by the kitty keyboard protocol
}

const (
	tab       = '\t'
	enter     = '\r'
	escape    = '\x1b'
	backspace = '\x7f'
)

// keypadNumber is the number of a key of the numeric keypad, which sends SS3 and its final byte in
// application mode, and else the character.
const keypadNumber = 0

// maxName bounds a name, in bytes: "C-M-S-PageDown" has 14.
const maxName = 32

// named are the keys that have a name, in lower case: tmux ignores case in them.
var named = map[string]Key{
	"enter": {char: enter}, "escape": {char: escape}, "tab": {char: tab}, "space": {char: ' '}, "bspace": {char: backspace},
	"btab": {char: tab, mods: shift},
	"up":   function('A', 1), "down": function('B', 1), "right": function('C', 1), "left": function('D', 1),
	"home": function('H', 1), "end": function('F', 1),
	"ic": function('~', 2), "insert": function('~', 2), "dc": function('~', 3), "delete": function('~', 3),
	"ppage": function('~', 5), "pageup": function('~', 5), "pgup": function('~', 5),
	"npage": function('~', 6), "pagedown": function('~', 6), "pgdn": function('~', 6),
	"f1": function('P', 1), "f2": function('Q', 1), "f3": function('R', 1), "f4": function('S', 1),
	"f5": function('~', 15), "f6": function('~', 17), "f7": function('~', 18), "f8": function('~', 19),
	"f9": function('~', 20), "f10": function('~', 21), "f11": function('~', 23), "f12": function('~', 24),
	"kp0": keypad('0', 'p'), "kp1": keypad('1', 'q'), "kp2": keypad('2', 'r'), "kp3": keypad('3', 's'), "kp4": keypad('4', 't'),
	"kp5": keypad('5', 'u'), "kp6": keypad('6', 'v'), "kp7": keypad('7', 'w'), "kp8": keypad('8', 'x'), "kp9": keypad('9', 'y'),
	"kp*": keypad('*', 'j'), "kp+": keypad('+', 'k'), "kp-": keypad('-', 'm'), "kp.": keypad('.', 'n'), "kp/": keypad('/', 'o'),
	"kpenter": keypad(enter, 'M'),
}

func function(final, number byte) Key { return Key{special: special{final, number}} }

func keypad(char rune, final byte) Key { return Key{char: char, special: special{final, keypadNumber}} }

// Parse reads the name of a key, as send-keys in tmux(1) does: one character, a name such as Enter
// or PageUp, a character's number such as 0x1b; with C- or ^ for Ctrl, M- for Alt and S- for Shift
// before it. A word that tmux would type as it is, because it names no key, is an error.
func Parse(name string) (Key, error) {
	k, rest := Key{}, name
	if n, ok := strings.CutPrefix(rest, "^"); ok && n != "" {
		k.mods, rest = control, n
	}
	for len(rest) > 2 && rest[1] == '-' {
		m := modifier(rest[0])
		if m == 0 {
			break
		}
		k.mods |= m
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
		if found, ok := named[strings.ToLower(rest)]; ok {
			found.mods |= k.mods
			return found, nil
		}
	}
	return Key{}, fmt.Errorf("invalid key %.64q: expected a key name of tmux such as Enter, Escape or C-c, or one character", name)
}

// ParseAll reads the names of keys.
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

// Names returns the names that keys have, as tmux writes them.
func Names() []string {
	return []string{
		"Enter", "Escape", "Tab", "BTab", "Space", "BSpace", "Up", "Down", "Left", "Right", "Home", "End", "PageUp", "PageDown", "IC", "DC", "Insert", "Delete",
		"F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F9", "F10", "F11", "F12",
	}
}

// modifier returns the modifier with this letter, 0 if there is none.
func modifier(letter byte) mods {
	switch letter {
	case 'C', 'c':
		return control
	case 'M', 'm':
		return alt
	case 'S', 's':
		return shift
	}
	return 0
}

// IsNavigation reports whether the key only moves a mark or the view in most programs, and so
// answers nothing by itself.
func (k Key) IsNavigation() bool {
	switch final := k.special.final; {
	case final >= 'A' && final <= 'H': // arrows, Home and End
		return true
	case final == '~':
		return k.special.number == 5 || k.special.number == 6 // PageUp and PageDown
	}
	return k.char == tab
}

// Append appends what the key sends in a terminal with these modes. A key has the encoding that
// every program understands wherever there is one, also for a program that has asked for another
// one: which it gets in tmux, too, that does not have the kitty keyboard protocol. ok is false if
// there is none and the program has not asked for one.
func (k Key) Append(b []byte, m Modes) (_ []byte, ok bool) {
	switch {
	case k.special.final != 0 && k.special.number != keypadNumber:
		return k.appendFunction(b, m), true
	case k.special.final != 0 && m.Keypad && k.mods == 0:
		return append(b, escape, 'O', k.special.final), true
	}
	char, ok := k.legacy()
	switch {
	case ok && k.char == tab && k.mods&shift != 0:
		return append(k.appendAlt(b), "\x1b[Z"...), true
	case ok:
		return utf8.AppendRune(k.appendAlt(b), char), true
	case m.Kitty:
		b = strconv.AppendInt(append(b, "\x1b["...), int64(unicode.ToLower(k.char)), 10)
		return append(k.appendMods(append(b, ';')), 'u'), true
	case m.Other:
		b = append(k.appendMods(append(b, "\x1b[27;"...)), ';')
		return append(strconv.AppendInt(b, int64(k.char), 10), '~'), true
	}
	return b, false
}

// legacy returns the character that the key sends, without what Alt puts before it, if there is one
// for it.
func (k Key) legacy() (char rune, ok bool) {
	c := k.char
	switch {
	case k.mods&^alt == 0, c == tab && k.mods&^alt == shift:
		return c, true
	case k.mods&control == 0: // Shift alone
		upper := unicode.ToUpper(c)
		return upper, upper != c || unicode.IsUpper(c)
	case k.mods&shift != 0 || k.raw:
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
	case k.mods == 0 && (final >= 'P' && final <= 'S' || isCursor && m.Cursor):
		return append(b, escape, 'O', final)
	case k.mods == 0 && isCursor:
		return append(b, escape, '[', final)
	case k.mods == 0 && final != '~': // Home and End, as the terminfo entries of tmux and screen have them
		number, final = map[byte]byte{'H': 1, 'F': 4}[final], '~'
	}
	b = strconv.AppendInt(append(b, escape, '['), int64(number), 10)
	if k.mods != 0 {
		b = k.appendMods(append(b, ';'))
	}
	return append(b, final)
}

func (k Key) appendAlt(b []byte) []byte {
	if k.mods&alt != 0 {
		return append(b, escape)
	}
	return b
}

func (k Key) appendMods(b []byte) []byte { return strconv.AppendInt(b, int64(k.mods)+1, 10) }

// Label returns the name of a key as people write it: "Ctrl-q" for "C-q".
func Label(key string) string {
	var label string
	for len(key) > 2 && key[1] == '-' {
		label += map[byte]string{'C': "Ctrl-", 'M': "Alt-", 'S': "Shift-"}[key[0]]
		key = key[2:]
	}
	return label + key
}

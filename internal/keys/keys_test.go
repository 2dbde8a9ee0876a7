package keys_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/keys"
)

// The expected encodings are those of tmux 3.3a with TERM=tmux-256color, and xterm's where tmux has
// none.
func TestAppend_EncodesKeysAsATerminalDoes(t *testing.T) {
	plain := keys.Modes{}
	for _, row := range []struct {
		names string // separated by blanks
		modes keys.Modes
		want  string
	}{
		{"a é 漢 ; - ^ ~", plain, "aé漢;-^~"},
		{"Enter escape TAB Space BSpace BTab S-Tab", plain, "\r\x1b\t \x7f\x1b[Z\x1b[Z"},
		{"C-a C-A ^a c-z C-[ C-_ C-/ C-? C-Space C-@ C-BSpace", plain, "\x01\x01\x01\x1a\x1b\x1f\x1f\x7f\x00\x00\b"},
		{"M-a m-A M-Enter M-Escape C-M-a M-C-a M-BTab", plain, "\x1ba\x1bA\x1b\r\x1b\x1b\x1b\x01\x1b\x01\x1b\x1b[Z"},
		{"S-a S-é S-A", plain, "AÉA"},
		{"Up Down Right Left Home End", plain, "\x1b[A\x1b[B\x1b[C\x1b[D\x1b[1~\x1b[4~"},
		{"Up Left Home", keys.Modes{ApplicationCursor: true}, "\x1bOA\x1bOD\x1b[1~"},
		{
			"S-Up M-Up C-Up C-S-Up M-C-S-Home", keys.Modes{ApplicationCursor: true},
			"\x1b[1;2A\x1b[1;3A\x1b[1;5A\x1b[1;6A\x1b[1;8H",
		},
		{
			"IC Insert DC Delete PPage PageUp PgUp NPage PageDown PgDn C-DC", plain,
			"\x1b[2~\x1b[2~\x1b[3~\x1b[3~\x1b[5~\x1b[5~\x1b[5~\x1b[6~\x1b[6~\x1b[6~\x1b[3;5~",
		},
		{"F1 F4 F5 F12 S-F1 C-F5", plain, "\x1bOP\x1bOS\x1b[15~\x1b[24~\x1b[1;2P\x1b[15;5~"},
		{"KP0 KP/ KPEnter", plain, "0/\r"},
		{"KP0 KP/ KPEnter", keys.Modes{ApplicationKeypad: true}, "\x1bOp\x1bOo\x1bOM"},
		{"0x1b 0x41 0xe9", plain, "\x1bAé"},
		{"C-a S-a M-Enter Escape", keys.Modes{ModifyOtherKeys: true, Kitty: true}, "\x01A\x1b\r\x1b"},
		{
			"S-Enter C-Enter C-1 C-Tab C-S-a", keys.Modes{ModifyOtherKeys: true},
			"\x1b[27;2;13~\x1b[27;5;13~\x1b[27;5;49~\x1b[27;5;9~\x1b[27;6;97~",
		},
		{
			"S-Enter C-1 C-M-Enter C-S-A", keys.Modes{ModifyOtherKeys: true, Kitty: true},
			"\x1b[13;2u\x1b[49;5u\x1b[13;7u\x1b[97;6u",
		},
	} {
		var got []byte
		for name := range strings.FieldsSeq(row.names) {
			key, err := keys.Parse(name)
			require.NoError(t, err)
			var ok bool
			got, ok = key.Append(got, row.modes)
			require.True(t, ok, name)
		}
		assert.Equal(t, row.want, string(got), row.names)
	}
	for name := range strings.FieldsSeq("S-Enter C-Enter C-1 C-S-a S-Space S-Escape C-é") {
		key, err := keys.Parse(name)
		require.NoError(t, err)
		got, ok := key.Append(nil, plain)
		assert.False(t, ok, "%s has no legacy encoding", name)
		assert.Empty(t, got)
	}
}

func TestParseKey_RejectsInvalidNames(t *testing.T) {
	for _, name := range []string{
		"", "Entr", "yes", "C-", "M-", "C-Entr", "^", "F13", "User0", "Any", "None", "MouseDown1Pane",
		"0x", "0xd800", "0x110000", "0xffffffff", "a\xff", "\xff", strings.Repeat("C-", 20) + "a",
	} {
		if _, err := keys.Parse(name); name == "^" {
			assert.NoError(t, err, "a character")
		} else {
			assert.ErrorContains(t, err, "invalid key", "%q", name)
		}
	}
	for _, name := range keys.Names() {
		_, err := keys.ParseAll([]string{name, strings.ToLower(name), "C-" + name})
		assert.NoError(t, err)
	}
}

// FuzzParse checks that a key sends one character or one control sequence, preceded by ESC for Alt,
// and nothing else.
func FuzzParse(f *testing.F) {
	for _, name := range append(keys.Names(), "C-a", "^[", "M-é", "C-M-S-F1", "0x1b", "S-", "KP5", "C--") {
		f.Add(name, byte(0))
		f.Add(name, byte(15))
	}
	f.Fuzz(func(t *testing.T, name string, bits byte) {
		key, err := keys.Parse(name)
		if err != nil {
			return
		}
		got, ok := key.Append(nil, keys.Modes{
			ApplicationCursor: bits&1 != 0,
			ApplicationKeypad: bits&2 != 0,
			ModifyOtherKeys:   bits&4 != 0,
			Kitty:             bits&8 != 0,
		})
		if !ok {
			require.Empty(t, got)
			return
		}
		require.NotEmpty(t, got)
		require.LessOrEqual(t, len(got), 24)
		body, _ := strings.CutPrefix(string(got), "\x1b")
		sequence := len(body) > 1 && (body[0] == '[' || body[0] == 'O') &&
			strings.Trim(body[1:len(body)-1], "0123456789;") == ""
		inner, _ := strings.CutPrefix(body, "\x1b")
		again := len(inner) > 1 && inner[0] == '[' && strings.Trim(inner[1:len(inner)-1], "0123456789;") == ""
		if !sequence && !again {
			require.LessOrEqual(t, utf8.RuneCountInString(body), 1, "%q", got)
		}
	})
}

func TestLabel(t *testing.T) {
	for name, label := range map[string]string{
		"C-q": "Ctrl-q", "C-M-x": "Ctrl-Alt-x", "c-m-x": "Ctrl-Alt-x",
		"S-F5": "Shift-F5", "F12": "F12", "M--": "Alt--", "-": "-",
	} {
		assert.Equal(t, label, keys.Label(name))
	}
}

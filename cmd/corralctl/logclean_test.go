package main

import (
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func clean(t *testing.T, parts ...string) string {
	t.Helper()
	var out strings.Builder
	cleaner := newLogCleaner(&out)
	for _, part := range parts {
		n, err := cleaner.Write([]byte(part))
		require.NoError(t, err)
		require.Equal(t, len(part), n)
	}
	require.NoError(t, cleaner.Close())
	return out.String()
}

func TestLogCleaning(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"plain text stays":                           {"one\ntwo\tthree\n", "one\ntwo\tthree\n"},
		"a terminal's line ends":                     {"one\r\ntwo\r\n", "one\ntwo\n"},
		"an unfinished line is passed on":            {"name? ", "name? "},
		"colours":                                    {"\x1b[1;31mred\x1b[0m\n", "red\n"},
		"colours with colons":                        {"\x1b[38:2::1:2:3mx\x1b[m\n", "x\n"},
		"a title ended by BEL":                       {"\x1b]0;title\ax\n", "x\n"},
		"a title ended by ST":                        {"\x1b]2;title\x1b\\x\n", "x\n"},
		"a title with letters beyond ASCII":          {"\x1b]2;tïtlé ✳\ax\n", "x\n"},
		"a hyperlink":                                {"\x1b]8;;http://example.org\x1b\\text\x1b]8;;\x1b\\\n", "text\n"},
		"a title that never ends loses its line":     {"\x1b]0;title\nnext\n", "\nnext\n"},
		"a device control string":                    {"\x1bP1;2|secret\nstuff\x1b\\x\n", "x\n"},
		"a kitty graphics query":                     {"\x1b_Gi=31,s=1;AAAA\x1b\\x\n", "x\n"},
		"single shift":                               {"\x1bOAx\x1bNyz\n", "xz\n"},
		"a character set":                            {"\x1b(Bx\x1b#8y\n", "xy\n"},
		"keypad and cursor keeping":                  {"\x1b=\x1b>\x1b7\x1b8x\n", "x\n"},
		"C1 controls as UTF-8":                       {"\u009b31mx\u009d0;title\u009cy\n", "xy\n"},
		"a cancelled sequence":                       {"\x1b[31\x18x\x1b]0;t\x1ay\n", "xy\n"},
		"a sequence within a sequence":               {"\x1b[3\x1b[31mx\n", "x\n"},
		"a control within a sequence acts":           {"ab\x1b[\r1mc\n", "cb\n"},
		"a newline within a sequence acts":           {"a\x1b[3\n1mb\n", "a\nb\n"},
		"modes":                                      {"\x1b[?25l\x1b[?2004hx\x1b[>1u\x1b[<u\n", "x\n"},
		"a progress bar leaves its last state":       {"10%\r50%\r100%\n", "100%\n"},
		"a shorter line over a longer one":           {"abcdef\rxy\n", "xycdef\n"},
		"a shorter line, erased before":              {"abcdef\r\x1b[Kxy\n", "xy\n"},
		"erasing to the end":                         {"abcdef\r\x1b[2Cx\x1b[K\n", "abx\n"},
		"erasing the line":                           {"abcdef\x1b[2K\rxy\n", "xy\n"},
		"erasing to the beginning":                   {"abcdef\x1b[3D\x1b[1K\n", "    ef\n"},
		"backspace":                                  {"abc\b\bX\n", "aXc\n"},
		"rubbing out":                                {"abc\b \b\b \bX\n", "aX \n"},
		"blanks by cursor movement":                  {"a\x1b[1Cb\x1b[3Cc\n", "a b   c\n"},
		"an absolute column":                         {"\x1b[5Gx\x1b[1Gy\n", "y   x\n"},
		"characters deleted, inserted and blanked":   {"abcdef\r\x1b[2P\x1b[1@X\x1b[1X\n", "X def\n"},
		"a character repeated":                       {"-\x1b[4b\n", "-----\n"},
		"a far column is not believed":               {"\x1b[999999999999999999999Cx\n", strings.Repeat(" ", maxColumn) + "x\n"},
		"another line of the screen is another line": {"one\x1b[5;1Htwo\x1b[Athree\n", "one\ntwo\n   three\n"},
		"an empty screen is nothing":                 {"\x1b[2J\x1b[H\x1b[Hx\n", "x\n"},
		"bell, delete, null":                         {"a\a\x7f\x00b\n", "ab\n"},
		"a byte that is no UTF-8":                    {"a\xffb\n", "a\uFFFDb\n"},
		"half a character at the end":                {"a\xe2\x9c", "a\uFFFD\uFFFD"},
		"blanks at the end are the agent's own":      {"a  \n", "a  \n"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, clean(t, c.in))
			assert.Equal(t, c.want, clean(t, strings.Split(c.in, "")...), "in single characters")
		})
	}
}

func TestLogCleaningKeepsLongLines(t *testing.T) {
	line := strings.Repeat("0123456789", 10_000)
	assert.Equal(t, line+"\n", clean(t, line+"\n"))
}

func TestLogCleaningReportsTheWritersError(t *testing.T) {
	broken := errors.New("broken")
	cleaner := newLogCleaner(failingWriter{broken})
	_, err := cleaner.Write([]byte("x\ny\n"))
	assert.ErrorIs(t, err, broken)
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// FuzzLogCleaning holds what every log has to hold: no control character comes through, and it does not matter how the log is cut into parts.
func FuzzLogCleaning(f *testing.F) {
	for _, seed := range []string{"a\x1b[31mb\n", "\x1b]0;t\ax", "\x1bP\x1b\\", "\u009b5Cx\b\b\r\ty", "\x1b[4096b\x1b[9@\x1b[2P", "\xe2\x9c\xff"} {
		f.Add([]byte(seed), uint(3))
	}
	f.Fuzz(func(t *testing.T, log []byte, cut uint) {
		if len(log) > 4<<10 {
			return
		}
		i := int(cut % uint(len(log)+1))
		whole := clean(t, string(log))
		assert.Equal(t, whole, clean(t, string(log[:i]), string(log[i:])))
		for _, r := range whole {
			if unicode.IsControl(r) && r != '\n' && r != '\t' {
				t.Fatalf("control character %q", r)
			}
		}
	})
}

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// modesAfter returns the modes after output that arrives in pieces of this size.
func modesAfter(output []byte, size int) *modes {
	var s scanner
	s.init(nil, nil)
	var held []byte
	for piece := range slices.Chunk(output, max(size, 1)) {
		kept := s.scan(slices.Concat(held, piece))
		held = kept[len(kept)-s.filter.held:]
	}
	return &s.modes
}

func TestModes_TrackAndRestore(t *testing.T) {
	for _, c := range []struct {
		name, output string
		paste        bool
		restored     string
	}{
		{"nothing", "plain text\r\n", false, ""},
		{"bracketed paste", "x\x1b[?2004hy", true, "\x1b[?2004h"},
		{"on and off", "\x1b[?2004h\x1b[?2004l", false, ""},
		{"several at once", "\x1b[?1;1000;2004h", true, "\x1b[?1h\x1b[?1000h\x1b[?2004h"},
		{"an ANSI mode", "\x1b[2004h", false, ""},
		{"after other sequences", "\x1b]0;title\x07\x1b[1m\x1b[?2004h", true, "\x1b[?2004h"},
		{"an aborted string", "\x1b]0;title\x1b[?2004h", true, "\x1b[?2004h"},
		{"a control character in a sequence", "\x1b[?20\n04h", true, "\x1b[?2004h"},
		{"cancelled", "\x1b[?20\x1804h", false, ""},
		{"a sequence aborted by another one", "\x1b[?20\x1b[?2004h", true, "\x1b[?2004h"},
		{"reset", "\x1b[?2004;1000h\x1b=\x1b[>1u\x1bc", false, ""},
		{"hidden cursor, alternate screen", "\x1b[?1049h\x1b[?25l", false, "\x1b[?1049h\x1b[?25l"},
		{"keypad", "\x1b=", false, "\x1b="},
		{"keypad off", "\x1b=\x1b>", false, ""},
		{"kitty keys", "\x1b[>1u\x1b[>5u\x1b[<u", false, "\x1b[>1u"},
		{"kitty keys, set and changed", "\x1b[=1u\x1b[=4;2u", false, "\x1b[>5u"},
		{"kitty keys, popped too often", "\x1b[>1u\x1b[<99u", false, ""},
		{"modified keys", "\x1b[>4;2m", false, "\x1b[>4;2m"},
		{"colours are not modes", "\x1b[4;2m\x1b[u", false, ""},
		{"far too long", "\x1b[?" + strings.Repeat("1;", 100) + "2004h", false, ""},
		{"a byte that tmux ignores in a sequence", "\x1b[?20\x7f04h", true, "\x1b[?2004h"},
		{"a character set is not a reset", "\x1b[?2004h\x1b(c", true, "\x1b[?2004h"},
		{"a query is not a mode", "\x1b[?2004$h", false, ""},
		{"an invalid number", "\x1b[?20:04;99999999999999999999h", false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := modesAfter([]byte(c.output), len(c.output))
			assert.Equal(t, c.paste, m.paste)
			assert.Equal(t, c.restored, string(m.restore()))
		})
	}
}

// FuzzModes checks that the modes do not depend on how the output is split into pieces, and that
// the restoring sequences set the same modes.
func FuzzModes(f *testing.F) {
	f.Add([]byte("a\x1b[?2004hb\x1b[?1;25l\x1b[>1u\x1bc\x1b="), uint8(3))
	f.Add([]byte("\x1b[?1049;1000h\x1b[>4;1m\x1b[=3;2u\x1b[<2u"), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		whole, pieces := modesAfter(b, len(b)), modesAfter(b, int(size)+1)
		assert.Equal(t, whole.paste, pieces.paste)
		restored := string(whole.restore())
		assert.Equal(t, restored, string(pieces.restore()))
		again := modesAfter([]byte(restored), len(restored))
		assert.Equal(t, restored, string(again.restore()))
		assert.Equal(t, whole.paste, again.paste)
	})
}

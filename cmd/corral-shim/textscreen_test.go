package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// rowsAfter returns the rows of a screen of 4 rows and 20 columns after output that arrives in
// pieces of this size.
func rowsAfter(output string, size int) []string {
	screen := newTextScreen(4, 20)
	for len(output) > 0 {
		n := min(size, len(output))
		screen.write([]byte(output[:n]))
		output = output[n:]
	}
	rows := make([]string, screen.rows)
	for row := range rows {
		rows[row] = string(screen.appendLine(nil, row))
	}
	return rows
}

func TestTextScreen_FollowsOutput(t *testing.T) {
	for _, row := range []struct{ name, output, want string }{
		{"lines", "one\r\ntwo", "one|two||"},
		{"scrolling", "1\r\n2\r\n3\r\n4\r\n5", "2|3|4|5"},
		{"a long line is wrapped", strings.Repeat("x", 20) + "yz", strings.Repeat("x", 20) + "|yz||"},
		{"words placed one by one", "\x1b[2;1HSign\x1b[2;6Hin\x1b[2;9Hwith", "|Sign in with||"},
		{"words separated by cursor movement", "Do\x1b[Cyou\x1b[1Ctrust\tit", "Do you trust    it|||"},
		{"some rows scroll", "1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3;1H\nx", "1|3|x|4"},
		{"history is inserted above, as by Codex", "1\r\n2\r\n3\x1b[1;2r\x1b[1;1H\x1bMx\x1b[r", "x|1|3|"},
		{"below the rows that scroll", "\x1b[1;2r\x1b[4;1Hx\ny", "|||xy"},
		{"lines are inserted and deleted", "1\r\n2\r\n3\x1b[2;1H\x1b[L\x1b[1;1H\x1b[M", "|2|3|"},
		{"lines are inserted outside of the rows that scroll", "1\r\n2\x1b[2;3r\x1b[1;1H\x1b[L", "1|2||"},
		{"the screen scrolls up and down", "1\r\n2\r\n3\x1b[2S\x1b[T", "|3||"},
		{"more rows than there are", "1\r\n2\x1b[99S\x1b[99T\x1b[99Lx", "| x||"},
		{"characters are inserted and deleted", "abcd\x1b[1;2H\x1b[2@x\x1b[1;4H\x1b[1P", "ax cd|||"},
		{"invalid rows to scroll", "\x1b[3;2r\x1b[9;9r1\r\n2", "1|2||"},
		{"colours are ignored", "\x1b[1;38:2::1:2:3mbold\x1b[0m text", "bold text|||"},
		{"a frame is removed", "╭────╮\r\n│ Sure? │\r\n╰────╯", "|Sure?||"},
		{"a line is overwritten", "working\rdone\x1b[K", "done|||"},
		{"the screen is erased", "old\r\nold\x1b[2J\x1b[Hnew", "new|||"},
		{"the part below is erased", "a\r\nb\r\nc\x1b[2;1H\x1b[J", "a|||"},
		{"the part above is erased", "aaa\r\nbbb\x1b[1J\x1b[3X", "|||"},
		{
			"lines are cleared upwards, as when a frame is redrawn",
			"1\r\n2\r\n3\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K\x1b[Gnew", "new|||",
		},
		{"switch to the alternate screen", "shell\x1b[?1049hdialog", "dialog|||"},
		{"and back", "\x1b[?1049hdialog\x1b[?1049l", "|||"},
		{"reset", "old\x1bcnew", "new|||"},
		{"saved cursor position", "\x1b7one\x1b8two", "two|||"},
		{"strings are ignored", "a\x1b]0;title\ab\x1bPq~\x1b\\c\x1b_G\x1b\\d", "abcd|||"},
		{"an aborted string", "\x1b]0;title\x1b[2;1Hx", "|x||"},
		{"a cancelled string", "\x1b]0;ti\x18x", "x|||"},
		{"a string aborted by a character set", "\x1b]0;t\x1b(Bx", "x|||"},
		{"a bell ends only an OSC", "\x1bPq\ax\x1b\\y", "y|||"},
		{"a control character after ESC acts", "a\x1b\n[1mb", "a| b||"},
		{"a sequence with an intermediate byte is another one", "ab\x1b[2 Dx", "abx|||"},
		{"characters of more than one byte", "◇ é", "◇ é|||"},
		{"invalid UTF-8", "\xff\xc3a", "�a|||"},
		{"positions outside of the screen", "\x1b[999;999Hx\x1b[999999999Cy\b\b\x1b[99A!", strings.Repeat(" ", 18) + "!|||y"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var want []string
			for text := range strings.SplitSeq(row.want, "|") {
				want = append(want, strings.TrimSpace(text))
			}
			for _, size := range []int{1, 3, len(row.output)} {
				assert.Equal(t, want, rowsAfter(row.output, size), "in pieces of %d", size)
			}
		})
	}
}

func TestTextScreen_Resize(t *testing.T) {
	screen := newTextScreen(3, 10)
	screen.write([]byte("one\r\ntwo\r\nthree"))
	screen.resize(2, 4)
	assert.Equal(t, "one", string(screen.appendLine(nil, 0)))
	screen.write([]byte("\r\nx"))
	assert.Equal(t, []string{"two", "x"}, []string{string(screen.appendLine(nil, 0)), string(screen.appendLine(nil, 1))})
	screen.resize(1<<20, 0)
	assert.Equal(t, maxSide, screen.rows)
	screen.write([]byte("yz"))
}

// FuzzTextScreen checks that no output writes outside of the screen, and that the result does not
// depend on how the output is split into pieces.
func FuzzTextScreen(f *testing.F) {
	for _, seed := range []string{
		"a\r\nb\x1b[2;3Hc\x1b[2J", "\x1b[?1049h\x1b[99;99Hx\x1b[1J\x1b[K", "\x1b]0;t\a\xc3\xa9\t\b\x1bM\x1b7\x1b8",
		"\x1b[;;;;;9m\x1b[3X",
	} {
		f.Add(seed, uint8(3))
	}
	f.Fuzz(func(t *testing.T, output string, size uint8) {
		assert.Equal(t, rowsAfter(output, len(output)+1), rowsAfter(output, int(size)+1))
	})
}

func BenchmarkTextScreen(b *testing.B) {
	screen := newTextScreen(40, 120)
	output := []byte(strings.Repeat("\x1b[32m+\tif err := s.save(entry); err != nil {\x1b[0m\r\n", 1000))
	b.SetBytes(int64(len(output)))
	for b.Loop() {
		screen.write(output)
	}
}

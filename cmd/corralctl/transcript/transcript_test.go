package transcript

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

func transcribe(t *testing.T, parts ...string) string {
	t.Helper()
	var out strings.Builder
	cleaner := New(&out)
	for _, part := range parts {
		n, err := cleaner.Write([]byte(part))
		require.NoError(t, err)
		require.Equal(t, len(part), n)
	}
	require.NoError(t, cleaner.Close())
	return out.String()
}

func TestTranscript_HandlesControlSequences(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"plain text stays":                         {"one\r\ntwo\tthree\n", "one\ntwo\tthree\n"},
		"a terminal's line ends":                   {"one\r\ntwo\r\n", "one\ntwo\n"},
		"an unfinished line is emitted":            {"name? ", "name? "},
		"colours":                                  {"\x1b[1;31mred\x1b[0m\n", "red\n"},
		"colours with colons":                      {"\x1b[38:2::1:2:3mx\x1b[m\n", "x\n"},
		"a title ended by BEL":                     {"\x1b]0;title\ax\n", "x\n"},
		"a title ended by ST":                      {"\x1b]2;title\x1b\\x\n", "x\n"},
		"a title with letters beyond ASCII":        {"\x1b]2;tïtlé ✳\ax\n", "x\n"},
		"a hyperlink":                              {"\x1b]8;;http://example.org\x1b\\text\x1b]8;;\x1b\\\n", "text\n"},
		"a title that never ends loses its line":   {"\x1b]0;title\nnext\n", "\nnext\n"},
		"a device control string":                  {"\x1bP1;2|secret\nstuff\x1b\\x\n", "x\n"},
		"a kitty graphics query":                   {"\x1b_Gi=31,s=1;AAAA\x1b\\x\n", "x\n"},
		"single shift":                             {"\x1bOAx\x1bNyz\n", "xz\n"},
		"a character set":                          {"\x1b(Bx\x1b#8y\n", "xy\n"},
		"keypad and cursor keeping":                {"\x1b=\x1b>\x1b7\x1b8x\n", "x\n"},
		"C1 controls as UTF-8":                     {"\u009b31mx\u009d0;title\u009cy\n", "xy\n"},
		"a title of screen":                        {"\x1bkname\x1b\\x\n", "x\n"},
		"an intermediate byte":                     {"ab\x1b[2 Dx\n", "abx\n"},
		"a sequence that is too long":              {"ab\x1b[" + strings.Repeat("0", 70) + "1Dx\n", "abx\n"},
		"a character that no sequence contains":    {"\x1b[3é1mx\n", "x\n"},
		"a cancelled sequence":                     {"\x1b[31\x18x\x1b]0;t\x1ay\n", "xy\n"},
		"a sequence within a sequence":             {"\x1b[3\x1b[31mx\n", "x\n"},
		"a control within a sequence acts":         {"ab\x1b[\r1mc\n", "cb\n"},
		"a newline within a sequence acts":         {"a\x1b[3\n1mb\n", "a\n b\n"},
		"modes":                                    {"\x1b[?25l\x1b[?2004hx\x1b[>1u\x1b[<u\n", "x\n"},
		"a progress bar leaves its last state":     {"10%\r50%\r100%\n", "100%\n"},
		"a shorter line over a longer one":         {"abcdef\rxy\n", "xycdef\n"},
		"a shorter line, erased before":            {"abcdef\r\x1b[Kxy\n", "xy\n"},
		"erasing to the end":                       {"abcdef\r\x1b[2Cx\x1b[K\n", "abx\n"},
		"erasing the line":                         {"abcdef\x1b[2K\rxy\n", "xy\n"},
		"erasing to the beginning":                 {"abcdef\x1b[3D\x1b[1K\n", "    ef\n"},
		"backspace":                                {"abc\b\bX\n", "aXc\n"},
		"rubbing out":                              {"abc\b \b\b \bX\n", "aX \n"},
		"blanks by cursor movement":                {"a\x1b[1Cb\x1b[3Cc\n", "a b   c\n"},
		"an absolute column":                       {"\x1b[5Gx\x1b[1Gy\n", "y   x\n"},
		"characters deleted, inserted and blanked": {"abcdef\r\x1b[2P\x1b[1@X\x1b[1X\n", "X def\n"},
		"a character repeated":                     {"-\x1b[4b\n", "-----\n"},
		"a far column is limited": {"\x1b[999999999999999999999Cx\n",
			strings.Repeat(" ", maxColumn) + "x\n"},
		"another line of the screen is another line": {"one\x1b[5;1Htwo\x1b[Athree\n", "one\n\n\n   three\ntwo"},
		"an empty screen has no text":                {"\x1b[2J\x1b[H\x1b[Hx\n", "x\n"},
		"bell, delete, null":                         {"a\a\x7f\x00b\n", "ab\n"},
		"a byte that is not UTF-8":                   {"a\xffb\n", "a\uFFFDb\n"},
		"half a character at the end":                {"a\xe2\x9c", "a\uFFFD\uFFFD"},
		"trailing blanks are kept":                   {"a  \n", "a  \n"},
		"a line feed alone keeps the column":         {"ab\ncd\n", "ab\n  cd\n"},
		"repainted lines":                            {"log\r\n1\r\n2\x1b[A\r\x1b[Jx\r\ny", "log\nx\ny"},
		"lines above that are changed":               {"one: …\r\ntwo: …\r\n\x1b[2A\x1b[6Gok\x1b[2B\r", "one: ok\ntwo: …\n"},
		"wide characters take two columns":           {"漢字x\r\x1b[2C|\r\n漢字x\x1b[4D|\n", "漢| x\n |字x\n"},
		"a mark belongs to the letter before":        {"e\u0301x\r\x1b[1C|\n", "e\u0301|\n"},
		"a cleared screen is emitted":                {"one\r\n\x1b[H\x1b[2Jtwo", "one\ntwo"},
		"a status line below a region that scrolls": {"\x1b[1;3r\x1b[4;1Hstatus\x1b[1;1Ha\r\nb\r\nc\r\nd\r\ne",
			"a\nb\nc\nd\ne\nstatus"},
		"lines inserted and deleted": {"a\r\nb\r\nc\x1b[2;1H\x1b[Lx\x1b[1;1H\x1b[M\x1b[4;1H", "x\nb\nc\n"},
		"the alternate screen and its last content": {"$ vi\r\n\x1b[?1049h\x1b[H\x1b[2Jtext\x1b[24;1H:wq\x1b[?1049l$ ",
			"$ vi\ntext\n" + strings.Repeat("\n", 22) + ":wq\n$ "},
		"the cursor kept": {"ab\x1b7cd\r\n\x1b8X\r\n", "abXd\n"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, transcribe(t, c.in))
			assert.Equal(t, c.want, transcribe(t, strings.Split(c.in, "")...), "in single characters")
		})
	}
}

func TestTranscript_KeepsLongLines(t *testing.T) {
	line := strings.Repeat("0123456789", 10_000)
	assert.Equal(t, line+"\n", transcribe(t, line+"\n"))
}

// TestTranscript_JoinsWrappedLines: the terminal wraps lines at its width; the output has each as
// one line.
func TestTranscript_JoinsWrappedLines(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"a wrapped line is one line":                   {"0123456789abcdefghijKLM\r\nx\r\n", "0123456789abcdefghijKLM\nx\n"},
		"a line that just fits is not wrapped":         {"0123456789\r\nx\r\n", "0123456789\nx\n"},
		"a wrapped line is repainted":                  {"0123456789abc\x1b[A\r##\x1b[B\r**\r\n", "##23456789**c\n"},
		"blanks where it wraps stay":                   {"01234567  abc\r\n", "01234567  abc\n"},
		"a wide character does not fit":                {"012345678漢字\r\n", "012345678漢字\n"},
		"the cursor stays in the last column":          {"\x1b[50Cx\x1b[99Gy\r\n", "         y\n"},
		"colours do not wrap":                          {"0123456789\x1b[31m\x1b[0mab\r\n", "0123456789ab\n"},
		"an erased wrapped line is two lines":          {"0123456789abc\x1b[A\r\x1b[Kshort\x1b[B\r\x1b[Kx\r\n", "short\nx\n"},
		"a tab stays in the line":                      {"012345678\tab\r\n", "012345678ab\n"},
		"wrapping off":                                 {"\x1b[?7l0123456789abc\x1b[?7h\r\nx\r\n", "012345678c\nx\n"},
		"characters moved beyond the line are dropped": {"0123456789\r\x1b[3@abc\r\n", "abc0123456\n"},
		"far down is the last row":                     {"a\x1b[99;1Hb\r\nc\r\n", "a\n\n\nb\nc\n"},
		"readline wraps by itself":                     {"0123456789 \rx\x1b[A\r#\x1b[B\r\n", "#123456789x\n"},
	} {
		for _, parts := range [][]string{{c.in}, strings.Split(c.in, "")} {
			var out strings.Builder
			transcript := New(&out)
			transcript.Resize(10, 4)
			for _, part := range parts {
				_, err := transcript.Write([]byte(part))
				require.NoError(t, err)
			}
			require.NoError(t, transcript.Close())
			assert.Equal(t, c.want, out.String(), "%s, in %d parts", name, len(parts))
		}
	}
}

// TestTranscript_FlushOfAWrappedLine: Flush emits the last part of a wrapped line once the line has
// ended.
func TestTranscript_FlushOfAWrappedLine(t *testing.T) {
	var out strings.Builder
	transcript := New(&out)
	transcript.Resize(4, 3)
	for _, row := range []struct{ in, want string }{
		{"0123", ""}, {"4567", "0123"}, {"89", "4567"}, {"\r\nx", "89\n"}, {"\x1b[3A\r##\x1b[3B\r", "##23"},
		{"\r\n", "\nx\n"},
	} {
		out.Reset()
		_, err := transcript.Write([]byte(row.in))
		require.NoError(t, err)
		require.NoError(t, transcript.Flush())
		assert.Equal(t, row.want, out.String(), "%q", row.in)
	}
	require.NoError(t, transcript.Close())
}

// TestTranscript_OfRecordedPrograms compares the output for the streams of real programs with
// golden files. The streams of bash, readline, htop, less and vim were recorded, that of readline
// with the sizes of its terminal. Those of claude (an agent that repaints its prompt all the time),
// progress (npm and cargo) and region (apt) are imitations, made of the sequences that these
// programs use.
func TestTranscript_OfRecordedPrograms(t *testing.T) {
	streams, err := filepath.Glob("testdata/*.raw")
	require.NoError(t, err)
	require.NotEmpty(t, streams)
	for _, path := range streams {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".raw"), func(t *testing.T) {
			stream, err := os.ReadFile(path)
			require.NoError(t, err)
			var got string
			if sizes, err := os.ReadFile(strings.TrimSuffix(path, ".raw") + ".sizes"); err == nil {
				got = transcribeSized(t, string(stream), string(sizes))
			} else {
				got = transcribe(t, string(stream))
				assert.Equal(t, got, transcribe(t, strings.Split(string(stream), "")...), "in single characters")
			}
			golden := strings.TrimSuffix(path, ".raw") + ".txt"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), got)
		})
	}
}

// transcribeSized returns the transcript of a stream whose terminal had these sizes: lines of byte
// offset, columns and rows.
func transcribeSized(t *testing.T, stream, sizes string) string {
	t.Helper()
	var out strings.Builder
	transcript := New(&out)
	written := 0
	write := func(to int) {
		_, err := transcript.Write([]byte(stream[written:to]))
		require.NoError(t, err)
		written = to
	}
	for line := range strings.Lines(sizes) {
		var at, columns, rows int
		_, err := fmt.Sscan(line, &at, &columns, &rows)
		require.NoError(t, err)
		write(at)
		transcript.Resize(columns, rows)
	}
	write(len(stream))
	require.NoError(t, transcript.Close())
	return out.String()
}

// TestTranscript_FlushPrintsCompletedLines: Flush emits each line once the cursor has left it, and
// once more after a change.
func TestTranscript_FlushPrintsCompletedLines(t *testing.T) {
	var out strings.Builder
	transcript := New(&out)
	for _, row := range []struct{ in, want string }{
		{"one\r\ntwo\r\nthr", "one\ntwo\n"},
		{"ee\r\n", "three\n"},
		{"\x1b[2A\x1b[Ktwo\x1b[2B\r", ""},
		{"\x1b[2A\x1b[KTWO\x1b[2B\r", "TWO\n"},
		{strings.Repeat("\r\n", maxRows) + "end\r\n", strings.Repeat("\n", maxRows) + "end\n"},
		{"\x1b[?1049hscreen", ""},
		{"\x1b[?1049l$ ", "screen\n"},
	} {
		out.Reset()
		_, err := transcript.Write([]byte(row.in))
		require.NoError(t, err)
		require.NoError(t, transcript.Flush())
		assert.Equal(t, row.want, out.String(), "%q", row.in)
	}
	out.Reset()
	require.NoError(t, transcript.Close())
	assert.Equal(t, "$ ", out.String())
}

// TestTranscript_MemoryIsBounded: the number of lines and cells that are kept is bounded, whatever
// the agent writes.
func TestTranscript_MemoryIsBounded(t *testing.T) {
	for name, part := range map[string]string{
		"wide lines": strings.Repeat("x", maxLine-10) + "\r\n", "far columns": "\x1b[1000Cx\r\n", "marks": "\u0301",
		"insertions": "x\r\x1b[1000@",
		"a title":    "\x1b]0;" + strings.Repeat("t", 5000), "parameters": "\x1b[1;1;1", "rows": "\x1b[200;1Hx\x1b[999;1Hy",
		"line feeds": "\n\n\n", "screens": "\x1b[?1049hx\x1b[?1049l",
		"lines inserted": "\x1b[999Lx", "scrolling": "x\x1b[5;9r\x1b[999S\x1b[999T",
	} {
		t.Run(name, func(t *testing.T) {
			transcript := New(io.Discard)
			for range 256 << 10 / len(part) {
				_, err := transcript.Write([]byte(part))
				require.NoError(t, err)
			}
			cells := 0
			for _, l := range transcript.lines {
				cells += len(l.cells)
			}
			assert.LessOrEqual(t, cells, maxCells+maxLine)
			assert.LessOrEqual(t, len(transcript.lines), 2*maxRows)
			require.NoError(t, transcript.Close())
		})
	}
}

func BenchmarkTranscript(b *testing.B) {
	for _, name := range []string{"claude", "bash", "vim"} {
		stream, err := os.ReadFile("testdata/" + name + ".raw")
		require.NoError(b, err)
		b.Run(name, func(b *testing.B) {
			transcript := New(io.Discard)
			b.SetBytes(int64(len(stream)))
			for b.Loop() {
				_, _ = transcript.Write(stream)
			}
		})
	}
}

func TestTranscript_ReturnsTheWritersError(t *testing.T) {
	broken := errors.New("broken")
	cleaner := New(failingWriter{broken})
	_, err := cleaner.Write([]byte("x\ny\n"))
	require.NoError(t, err, "it can still be changed")
	require.ErrorIs(t, cleaner.Flush(), broken)
	_, err = cleaner.Write([]byte("z"))
	require.ErrorIs(t, err, broken)
	assert.ErrorIs(t, cleaner.Close(), broken)
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// FuzzTranscript checks that the output has no control characters and does not depend on how the
// log is split into writes.
func FuzzTranscript(f *testing.F) {
	for _, seed := range []string{"a\x1b[31mb\n", "\x1b]0;t\ax", "\x1bP\x1b\\", "\u009b5Cx\b\b\r\ty",
		"\x1b[4096b\x1b[9@\x1b[2P", "\xe2\x9c\xff",
		"漢字\r\x1b[1C\tx\x1b[2;4r\x1b[5L\x1b[2M\x1bM\x1b[3S", "\x1b[?1049hx\x1b[1J\x1b[2J\x1bc\x1b[?1049l\x1b7\x1b8",
		"\x1b[200;1H\x1b[1T\x1b[A\x1b[J"} {
		f.Add([]byte(seed), uint(3), uint8(0), uint8(0))
		f.Add([]byte(seed), uint(3), uint8(4), uint8(3))
	}
	f.Fuzz(func(t *testing.T, log []byte, cut uint, columns, rows uint8) {
		if len(log) > 4<<10 {
			return
		}
		i := int(cut % uint(len(log)+1))
		read := func(parts ...[]byte) string {
			var out strings.Builder
			transcript := New(&out)
			transcript.Resize(int(columns), int(rows))
			for _, part := range parts {
				_, err := transcript.Write(part)
				require.NoError(t, err)
			}
			require.NoError(t, transcript.Close())
			return out.String()
		}
		whole := read(log)
		assert.Equal(t, whole, read(log[:i], log[i:]))
		for _, r := range whole {
			if unicode.IsControl(r) && r != '\n' && r != '\t' {
				t.Fatalf("control character %q", r)
			}
		}
	})
}

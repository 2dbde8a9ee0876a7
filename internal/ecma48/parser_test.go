package ecma48_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/ecma48"
)

// parse returns a description of the tokens in output that arrives in pieces of this size. Parts of
// a text or of a string are joined.
func parse(output []byte, size int) []string {
	var parser ecma48.Parser
	var all []string
	var kind, joined string
	add := func(newKind, format string, args ...any) {
		if kind != newKind && joined != "" {
			all = append(all, kind+" "+joined)
			joined = ""
		}
		if kind = newKind; kind == "text" || kind == "string" {
			joined += fmt.Sprintf(format, args...)
		} else {
			all = append(all, strings.TrimSpace(kind+" "+fmt.Sprintf(format, args...)))
		}
	}
	for piece := range slices.Chunk(output, max(size, 1)) {
		for len(piece) > 0 {
			token, n := parser.Next(piece)
			switch token {
			case ecma48.Text:
				add("text", "%s", piece[:n])
			case ecma48.Control:
				add("control", "%#02x", piece[n-1])
			case ecma48.EscapeSequence:
				add("escape", "%c", parser.Final())
			case ecma48.ControlSequence:
				private := strings.Trim(string(parser.Marker()), "\x00")
				add("csi", "%s%s%c", private, parser.Params(), parser.Final())
			case ecma48.StringPart:
				add("string", "%s", piece[:n])
			case ecma48.StringEnd:
				add("end", "%c", parser.Introducer())
			case ecma48.StringAbort:
				add("abort", "")
			}
			piece = piece[n:]
		}
	}
	add("", "")
	return all[:len(all)-1]
}

// TestParser_FindsTokens: where ECMA-48 leaves the result open, it is that of tmux 3.3a.
func TestParser_FindsTokens(t *testing.T) {
	zeros := strings.Repeat("0", 64)
	for name, row := range map[string]struct{ output, want string }{
		"text with control characters":          {"a\r\n\a\x18\x7fé\xff", "text a\r\n\a\x18\x7fé\xff"},
		"C1 controls are text":                  {"\u009b31m\x9b", "text \u009b31m\x9b"},
		"an escape sequence":                    {"a\x1b7b\x1bMc", "text a|escape 7|text b|escape M|text c"},
		"a control sequence":                    {"a\x1b[1;2Hb", "text a|csi 1;2H|text b"},
		"one with a private marker":             {"\x1b[?25l\x1b[>1u", "csi ?25l|csi >1u"},
		"one with sub-parameters":               {"\x1b[38:2::1m", "csi 38:2::1m"},
		"one without parameters":                {"\x1b[m", "csi m"},
		"an OSC that ends with a bell":          {"\x1b]0;title\ab", "string 0;title|end ]|text b"},
		"an OSC that ends with ST":              {"\x1b]0;title\x1b\\b", "string 0;title|end ]|text b"},
		"an OSC with other characters":          {"\x1b]0;✳\n\u009cb\a", "string 0;✳\n\u009cb|end ]"},
		"an empty OSC":                          {"\x1b]\a", "end ]"},
		"a bell in other strings":               {"\x1bPq\a\x1b\\\x1b_G\a\x1b\\", "string q\a|end P|string G\a|end _"},
		"a title of screen":                     {"\x1bkname\x1b\\b", "string name|end k|text b"},
		"a string cancelled by CAN":             {"\x1b]0;t\x18b", "string 0;t|abort|text b"},
		"a string cancelled by SUB":             {"\x1bPq\x1ab", "string q|abort|text b"},
		"a string aborted by a sequence":        {"\x1b]0;t\x1b[1mb", "string 0;t|abort|csi 1m|text b"},
		"a string aborted by a string":          {"\x1b]0;t\x1b]2;u\a", "string 0;t|abort|string 2;u|end ]"},
		"a string aborted by a character set":   {"\x1b]0;t\x1b(Bb", "string 0;t|abort|text b"},
		"ESC twice in a string":                 {"\x1b]0;t\x1b\x1b\\b", "string 0;t|abort|escape \\|text b"},
		"control characters in a sequence":      {"\x1b\n[1\a;\r2m", "control 0x0a|control 0x07|control 0x0d|csi 1;2m"},
		"a cancelled sequence":                  {"\x1b[31\x18m\x1b\x1ac", "text mc"},
		"a sequence aborted by another":         {"\x1b[3\x1b[1m", "csi 1m"},
		"other bytes in a sequence are ignored": {"\x1b[3\x7f1ém\x1béc", "csi 31m|escape c"},
		"intermediate bytes":                    {"\x1b(B\x1b#8\x1b[2 q\x1b[2$Db", "text b"},
		"ESC before an intermediate byte":       {"\x1b([b", "text b"},
		"a private marker that is not first":    {"\x1b[1?25lb", "text b"},
		"a parameter after an intermediate":     {"\x1b[ 1mb", "text b"},
		"parameters of maximum length":          {"\x1b[" + zeros + "m", "csi " + zeros + "m"},
		"longer parameters":                     {"\x1b[" + zeros + "0mb\x1b[1m", "text b|csi 1m"},
	} {
		for _, size := range []int{1, 2, 3, len(row.output)} {
			got := strings.Join(parse([]byte(row.output), size), "|")
			assert.Equal(t, row.want, got, "%s, in pieces of %d", name, size)
		}
	}
}

func TestParser_DoesNotAllocate(t *testing.T) {
	output := []byte("text\x1b[1;2H\x1b]0;title\a\x1bPq\x1b\\\x1b[?25h")
	var parser ecma48.Parser
	sum := 0
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		for rest := output; len(rest) > 0; {
			_, n := parser.Next(rest)
			sum += parser.Params().At(1)
			rest = rest[n:]
		}
	}))
	assert.NotZero(t, sum)
}

func TestParams_AreNumbers(t *testing.T) {
	for params, want := range map[string][]int{
		"":              nil,
		"1":             {1},
		"1;22;333":      {1, 22, 333},
		";;3":           {0, 0, 3},
		"0007":          {7},
		"4:3;2":         {0, 2},
		"70000;65535":   {65535, 65535},
		"9999999999999": {65535},
	} {
		var got []int
		for rest := ecma48.Params(params); len(rest) > 0; {
			var n int
			n, rest = rest.Cut()
			got = append(got, n)
		}
		assert.Equal(t, want, got, "%q", params)
		for i, n := range append(want, 0) {
			assert.Equal(t, n, ecma48.Params(params).At(i), "%q", params)
		}
	}
}

// FuzzParser checks that the tokens do not depend on how the output is split into pieces, and that
// CAN ends every sequence.
func FuzzParser(f *testing.F) {
	f.Add([]byte("a\x1b[1;2Hb\x1b]0;t\a\x1b(B\x1b7"), uint8(1))
	f.Add([]byte("\x1bPq\x1b\x1b\\\x1b_G\a\x18\x1b[?1\n;2\x7fh"), uint8(2))
	f.Fuzz(func(t *testing.T, output []byte, size uint8) {
		whole := parse(output, len(output))
		assert.Equal(t, whole, parse(output, int(size)+1))
		tokens := parse(append(output, "\x18text"...), len(output)+5)
		assert.Contains(t, tokens[len(tokens)-1], "text")
	})
}

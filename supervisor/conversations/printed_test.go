package conversations

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/environment"
)

func TestPlain_StripsEscapeSequences(t *testing.T) {
	for name, c := range map[string]struct{ printed, want string }{
		"plain text":                    {"resume with\r\nclaude --resume x\n", "resume with\nclaude --resume x\n"},
		"colours":                       {"\x1b[1;38:5:2mclaude\x1b[0m --resume\x1b[m x", "claude --resume x"},
		"a title":                       {"\x1b]0;claude --resume evil\aclaude", "claude"},
		"a link":                        {"\x1b]8;;http://x\x1b\\codex resume x\x1b]8;;\x1b\\", "codex resume x"},
		"an interrupted control string": {"\x1b]0;title\x1b[1mbold", "bold"},
		"other control strings":         {"\x1bPq#0\x1b\\a\x1b_b\x1b\\c", "ac"},
		"a cancelled control string":    {"\x1b]0;title\x18claude", "claude"},
		"a bell in a control string":    {"\x1bPtmux;\aevil\x1b\\claude", "claude"},
		"a title of screen":             {"\x1bkclaude --resume evil\x1b\\claude", "claude"},
		"a line feed in a sequence":     {"a\x1b[1\nmb", "a\nb"},
		"a character set":               {"\x1b(Ba\x1b=b\x1b7c", "abc"},
		"unterminated sequence":         {"a\x1b[1;2", "a"},
		"an escape character alone":     {"a\x1b", "a"},
		"bytes that are not text":       {"a\xff\x00b\x7f", "a\uFFFDb"},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, plain([]byte(c.printed))) })
	}
}

// FuzzPlain checks that the result is valid text without control characters, and that plain does
// not change it again.
func FuzzPlain(f *testing.F) {
	for _, seed := range []string{"\x1b[1mx\x1b[m", "\x1b]0;t\ax", "\x1bPx\x1b\\", "\x1b(B", "\x1b", "é\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, printed []byte) {
		text := plain(printed)
		isControl := func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f }
		if !utf8.ValidString(text) || strings.ContainsFunc(text, isControl) {
			t.Fatalf("%q became %q", printed, text)
		}
		if again := plain([]byte(text)); again != text {
			t.Fatalf("%q became %q, and then %q", printed, text, again)
		}
	})
}

func TestTail_ReadsAcrossLogRotation(t *testing.T) {
	dir := t.TempDir()
	text, err := tail(dir, 8)
	require.NoError(t, err)
	assert.Empty(t, text)
	for _, c := range []struct{ log, before, want string }{
		{"short", "", "short"},
		{"a long line", "", "ong line"},
		{"new", "the older one", "er onenew"[1:]},
		{"new", "x", "xnew"},
		{"", "the old one alone", "ne alone"},
	} {
		write(t, dir, "output.log", c.log)
		if c.log == "" {
			require.NoError(t, os.Remove(filepath.Join(dir, "output.log")))
		}
		write(t, dir, "output.log.1", c.before)
		text, err := tail(dir, 8)
		require.NoError(t, err)
		assert.Equal(t, c.want, string(text))
	}
}

func TestDetectPrinted(t *testing.T) {
	home := t.TempDir()
	write(t, home, "saved", "")
	pattern := regexp.MustCompile(`resume (\S+)`)
	for name, c := range map[string]struct {
		printed   string
		condition []string
		want      string
	}{
		"nothing":                            {"bye", nil, ""},
		"the last one":                       {"resume a\nresume \x1b[1mb\x1b[m\n", nil, "b"},
		"an invalid id":                      {"resume a\nresume --x\n", nil, ""},
		"a conversation that exists":         {"resume saved\n", []string{"%h/%U"}, "saved"},
		"a conversation that does not exist": {"resume a\n", []string{"%h/%U"}, ""},
		"a condition that cannot be checked": {"resume saved\n", []string{"%h/%U", "%i"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "output.log", c.printed)
			variables := noVariables
			if c.condition != nil {
				variables = func() ([]environment.Variable, error) { return nil, nil }
			}
			p := Printed{pattern, Saved{Patterns: c.condition, Values: config.Specifiers{Conversation: "x", Home: home}}}
			assert.Equal(t, c.want, Detector{}.DetectPrinted(dir, p, variables))
		})
	}
}

package wording

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPrintable_EscapesControlCharacters(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                 "plain",
		"Grüße ✳ 漢字":            "Grüße ✳ 漢字",
		"\x1b[31mred":           `\x1b[31mred`,
		"a\nb\tc":               `a\nb\tc`,
		"\u009b31m":             `\u009b31m`,
		"\xff\xfe":              `\xff\xfe`,
		"\uFFFD":                "\uFFFD",
		"left\u202etfel":        `left\u202etfel`,
		"bell\a delete\x7f":     `bell\x07 delete\x7f`,
		"separated\u2028line":   `separated\u2028line`,
		"a\u200e\u200f\u061cb":  `a\u200e\u200f\u061cb`,
		"zero\u200bwidth\ufeff": `zero\u200bwidth\ufeff`,
		"tag\U000e0041":         `tag\U000e0041`,
		"سلام می\u200cخواهم":    "سلام می\u200cخواهم",
		"👩\u200d👩\u200d👧":       "👩\u200d👩\u200d👧",
	} {
		assert.Equal(t, want, Printable(in))
	}
	assert.Equal(t, "one\ntwo\t\\x1b[m\n", PrintableLines("one\ntwo\t\x1b[m\n"))
}

// TestPrintableJSON_EscapesAndKeepsTheValue: the output has no character that a terminal
// interprets, and decodes to the same value.
func TestPrintableJSON_EscapesAndKeepsTheValue(t *testing.T) {
	value := map[string]string{"message": "\u009b31m \u202etfel\u200e \x7f \U000e0041 \x1b[m a\nb 👩\u200d👧 \xff \\"}
	var plain bytes.Buffer
	encoder := json.NewEncoder(&plain)
	encoder.SetIndent("", "  ")
	require.NoError(t, encoder.Encode(value))
	shown := PrintableJSON(plain.Bytes())
	for line := range strings.SplitSeq(string(shown), "\n") {
		assert.Equal(t, line, Printable(line))
	}
	var want, is map[string]string
	require.NoError(t, json.Unmarshal(plain.Bytes(), &want))
	require.NoError(t, json.Unmarshal(shown, &is))
	assert.Equal(t, want, is)
}

func TestSpan_PrintsTheTwoLargestUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second:                        "0s",
		0:                                   "0s",
		999 * time.Millisecond:              "0s",
		15 * time.Second:                    "15s",
		2*time.Minute + 15*time.Second:      "2m 15s",
		2 * time.Minute:                     "2m",
		time.Hour + time.Second:             "1h",
		3*time.Hour + 12*time.Minute:        "3h 12m",
		50 * time.Hour:                      "2d 2h",
		15 * 24 * time.Hour:                 "2w 1d",
		400 * 24 * time.Hour:                "1y 5w",
		time.Duration(math.MaxInt64):        "292y 24w",
		59*time.Minute + 59*time.Second + 1: "59m 59s",
	} {
		assert.Equal(t, want, Span(d), d.String())
	}
}

func TestSize_AndCPUTimeFollowSystemctl(t *testing.T) {
	for n, want := range map[uint64]string{0: "0B", 1023: "1023B", 1024: "1.0K", 222_715_904: "212.4M", 1 << 40: "1.0T",
		math.MaxUint64: "16.0E"} {
		assert.Equal(t, want, Size(n))
	}
	for n, want := range map[uint64]string{0: "0.000s", 3_201_000_000: "3.201s", 123_201_000_000: "2min 3.201s",
		3_723_000_000_000: "1h 2min 3.000s"} {
		assert.Equal(t, want, CPUTime(n))
	}
}

func TestEllipsize_ShortensToAWidth(t *testing.T) {
	assert.Equal(t, "abcdef", Ellipsize("abcdef", 6))
	assert.Equal(t, "abcd…", Ellipsize("abcdef", 5))
	assert.Empty(t, Ellipsize("abcdef", 0))
	assert.Equal(t, "…/shop", EllipsizePath("~/src/shop", 6))
	assert.Empty(t, EllipsizePath("~/src/shop", 0))
}

func TestWidth_CountsWideCharacters(t *testing.T) {
	for text, width := range map[string]int{"shop": 4, "漢字": 4, "Grüße": 5, "été": 3, "✳ x": 3, "👩‍🚀": 2, "": 0} {
		assert.Equal(t, width, Width(text), "%q", text)
	}
	assert.Equal(t, "漢字", Ellipsize("漢字", 4))
	assert.Equal(t, "漢…", Ellipsize("漢字", 3))
	assert.Equal(t, "…", Ellipsize("漢字", 2), "half a character cannot be shown")
	assert.Equal(t, "…字", EllipsizePath("漢字", 3))
	assert.Equal(t, "…", EllipsizePath("漢字", 2))
	assert.Equal(t, "…rc/漢字", EllipsizePath("~/src/漢字", 8))
}

func TestShellWords_QuotesArguments(t *testing.T) {
	assert.Equal(t, `claude --resume 'it'\''s' '' 'a b' '$HOME' '~'`,
		ShellWords([]string{"claude", "--resume", "it's", "", "a b", "$HOME", "~"}))
}

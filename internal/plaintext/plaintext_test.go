package plaintext_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/plaintext"
)

func TestIsUnsafe_ByCharacterClass(t *testing.T) {
	for name, row := range map[string]struct {
		text   string
		unsafe bool
	}{
		"C0":                                {"\x00\t\n\r\x1b\x1f", true},
		"DEL and C1":                        {"\x7f\u0080\u0085\u009b\u009d\u009f", true},
		"separators":                        {"\u2028\u2029", true},
		"marks of direction":                {"\u061c\u200e\u200f", true},
		"embeddings and overrides":          {"\u202a\u202b\u202c\u202d\u202e", true},
		"isolates":                          {"\u2066\u2067\u2068\u2069", true},
		"invisible characters":              {"\u00ad\u180e\u200b\u2060\u2063\ufeff\U000e0001\U000e0061", true},
		"ASCII":                             {" azAZ09~", false},
		"Arabic and Hebrew":                 {"السلام עולם", false},
		"Persian, with a non-joiner":        {"می\u200cخواهم", false},
		"emoji of several parts":            {"👩\u200d👩\u200d👧 ❤\ufe0f\u200d🔥 👍🏽", false},
		"combining marks, no-break space":   {"e\u0301 a\u00a0b", false},
		"signs that go before Arabic words": {"\u0600\u06dd\u070f", false},
		"Chinese, symbols":                  {"漢字 ✳ …", false},
	} {
		for _, r := range row.text {
			assert.Equal(t, row.unsafe, plaintext.IsUnsafe(r), "%s: %U", name, r)
		}
	}
}

func TestLine_KeepsWordsAndEmoji(t *testing.T) {
	for name, row := range map[string]struct{ text, want string }{
		"control characters and line feeds are spaces": {" a\x1b[31m\r\nb\tc\u0085\u2028d\n", "a [31m b c d"},
		"characters that reorder text are removed":     {"rm \u202eab\u202c \u200bc", "rm ab c"},
		"emoji of several parts, Persian":              {"👩\u200d💻 می\u200cخواهم", "👩\u200d💻 می\u200cخواهم"},
		"invalid UTF-8":                                {"a\xff\xfeb", "a\uFFFDb"},
		"nothing to show":                              {"\n\u200b ", ""},
	} {
		assert.Equal(t, row.want, plaintext.Line(row.text), name)
	}
}

func TestAbbreviateHome_ReplacesWholeDirectoryNames(t *testing.T) {
	for _, row := range []struct{ path, home, want string }{
		{"/home/alice/src", "/home/alice", "~/src"},
		{"/home/alice", "/home/alice", "~"},
		{"/home/alice/src", "/home/alice/", "~/src"},
		{"/home/alice2/src", "/home/alice", "/home/alice2/src"},
		{"/src", "", "/src"},
		{"/src", "/", "/src"},
	} {
		assert.Equal(t, row.want, plaintext.AbbreviateHome(row.path, row.home), "%+v", row)
	}
}

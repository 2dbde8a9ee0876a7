package config

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseTimeSpan(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"10": 10 * time.Second, "0": 0, " 1min 30s ": 90 * time.Second, "1h30min": 90 * time.Minute,
		"1.5h": 90 * time.Minute, ".5": 500 * time.Millisecond, "2 days": 48 * time.Hour, "7d": 7 * day, "1w": 7 * day,
		"1M": month, "1 y": year, "5 10": 15 * time.Second, "1ms": time.Millisecond, "1us": time.Microsecond,
		"1µs": time.Microsecond, "3μs": 3 * time.Microsecond, "1ns": 1, "0.0000000019": 1, "0.9ns": 0, "infinity": Infinity,
		" infinity\t": Infinity, "9223372036s": 9223372036 * time.Second,
		"0.1000000000000000000000000000000001": 100 * time.Millisecond,
	} {
		got, err := ParseTimeSpan(s)
		require.NoError(t, err, s)
		assert.Equal(t, want, got, s)
	}
	for s, want := range map[string]string{
		"": "empty", "  ": "empty", "-1": "invalid time span", "+1": "invalid time span", "1.": "invalid time span",
		"1. 5": "invalid time span", ".": "invalid time span", "1.2.3": "invalid time span",
		"1fortnight": "invalid time span", "s": "invalid time span", "infinity 1": "invalid time span",
		"1 infinity": "invalid time span", "1e3": "invalid time span", "0x10": "invalid time span", "9223372037": "too long",
		"300y": "too long", "292y 292y": "too long", "9223372036854775807ns": "too long",
		"99999999999999999999999999": "too long",
	} {
		_, err := ParseTimeSpan(s)
		assert.ErrorContains(t, err, want, "%q", s)
	}
}

func TestParseBytes(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "65536": 65536, "64K": 64 << 10, "16 M": 16 << 20, "1.5G": 3 << 29, "1B": 1, "0.5B": 0, "1T": 1 << 40,
		"7E": 7 << 60, ".5K": 512, "9223372036854775807": math.MaxInt64,
	} {
		got, err := ParseBytes(s)
		require.NoError(t, err, s)
		assert.Equal(t, want, got, s)
	}
	for s, want := range map[string]string{
		"": "invalid size", "K": "invalid size", "-1": "invalid size", "1KB": "invalid size", "1k": "invalid size",
		"1K 5": "invalid size", "1 5": "invalid size", "infinity": "invalid size", "8E": "too large",
		"9223372036854775808": "too large", "7.9999999999999999999E1": "invalid size",
	} {
		_, err := ParseBytes(s)
		assert.ErrorContains(t, err, want, "%q", s)
	}
}

func TestParseBool(t *testing.T) {
	for _, s := range []string{"1", "yes", "Y", "true", "T", "ON"} {
		got, err := ParseBool(s)
		assert.True(t, got && err == nil, s)
	}
	for _, s := range []string{"0", "no", "N", "False", "f", "off"} {
		got, err := ParseBool(s)
		assert.True(t, !got && err == nil, s)
	}
	_, err := ParseBool("maybe")
	assert.ErrorContains(t, err, `"maybe"`)
}

func TestSplitWords(t *testing.T) {
	for s, want := range map[string][]string{
		``:                           nil,
		"  \t ":                      nil,
		`a  b`:                       {"a", "b"},
		`'a b' "c d"`:                {"a b", "c d"},
		`'' ""`:                      {"", ""},
		`a"b c"d`:                    {"ab cd"},
		`"it's" '"'`:                 {"it's", `"`},
		`\a\b\f\n\r\t\v\\\"\'\s`:     {"\a\b\f\n\r\t\v\\\"' "},
		`'\x41\101\u00e4\U0001f600'`: {"AAä😀"},
		`\xc3\xa4`:                   {"ä"},
		`a\sb c`:                     {"a b", "c"},
		`$HOME * ; | %U #x`:          {"$HOME", "*", ";", "|", "%U", "#x"},
	} {
		got, err := SplitWords(s)
		require.NoError(t, err, s)
		assert.Equal(t, want, got, s)
	}
	for s, want := range map[string]string{
		`"a`: "not closed", `a'`: "not closed", `a\`: "end of the line", `\q`: `unknown escape sequence "\\q"`, `\ä`: "unknown escape",
		`\x4`: "too short", `\xzz`: "expected a character", `\x00`: "expected a character", `\000`: "expected a character",
		`\777`: "expected a byte", `\x-1`: "expected a character",
		`\ud800`: "expected a character", `\UFFFFFFFF`: "expected a character", `\xff`: "not valid UTF-8",
		`\u1_23`: "expected a character",
	} {
		_, err := SplitWords(s)
		assert.ErrorContains(t, err, want, s)
	}
}

func FuzzParseTimeSpan(f *testing.F) {
	for _, seed := range []string{"10", "1min 30s", "1.5h", "infinity", "9223372036854775807ns", "1.2.3", "5 10", "1µs"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseTimeSpan(s)
		if d < 0 || err != nil && d != 0 {
			t.Fatalf("%q gives %d, %v", s, d, err)
		}
		if err == nil && d == Infinity && strings.TrimSpace(s) != "infinity" {
			t.Fatalf("%q is taken for infinity", s)
		}
	})
}

func FuzzParseBytes(f *testing.F) {
	for _, seed := range []string{"65536", "1.5G", "16 M", "7.999999999999999999E", "-1", ".5K"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := ParseBytes(s); n < 0 || err != nil && n != 0 {
			t.Fatalf("%q gives %d, %v", s, n, err)
		}
	})
}

func FuzzSplitWords(f *testing.F) {
	for _, seed := range []string{`a 'b c' "d"`, `\x41\u00e4\101`, `mid"dle"'s'`, `\`, `"`, `'' ""`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		words, err := SplitWords(s)
		if err != nil {
			return
		}
		for _, word := range words { // quoting a word and splitting it again returns the word
			quoted := "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(word) + "'"
			again, err := SplitWords(quoted)
			if err != nil || len(again) != 1 || again[0] != word ||
				strings.ContainsRune(word, 0) && !strings.ContainsRune(s, 0) || !utf8.ValidString(word) {
				t.Fatalf("%q gives %q, which gives %q (%v)", s, word, again, err)
			}
		}
	})
}

package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

const blank = " \t\n\r"

// SplitWords splits a value into words by systemd's quoting rules (systemd.syntax(7)): white space
// separates words; '…' and "…" quote it; inside and outside of quotes a backslash starts a C escape
// sequence, or \s for a space. Nothing else is special: no variables, no globs, no shell syntax.
func SplitWords(s string) ([]string, error) {
	var words []string
	for {
		s = strings.TrimLeft(s, blank)
		if s == "" {
			return words, nil
		}
		word, rest, err := nextWord(s)
		if err != nil {
			return nil, err
		}
		if !utf8.ValidString(word) { // D-Bus strings are UTF-8
			return nil, fmt.Errorf("word %q is not valid UTF-8", word)
		}
		words, s = append(words, word), rest
	}
}

// SplitCommand splits a command by the rules of SplitWords, and requires that it names a program.
func SplitCommand(s string) ([]string, error) {
	words, err := SplitWords(s)
	if err == nil && (len(words) == 0 || words[0] == "") {
		err = fmt.Errorf("invalid command %q: expected a program", s)
	}
	return words, err
}

// nextWord cuts the first word from s, which is not empty.
func nextWord(s string) (word, rest string, err error) {
	var b strings.Builder
	var quote byte // the open quote, or 0
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '\\':
			text, n, err := unescape(s[i:])
			if err != nil {
				return "", "", err
			}
			b.WriteString(text)
			i += n
			continue
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case quote == 0 && strings.IndexByte(blank, c) >= 0:
			return b.String(), s[i:], nil
		default:
			b.WriteByte(c)
		}
		i++
	}
	if quote != 0 {
		return "", "", fmt.Errorf("quote %c is not closed", quote)
	}
	return b.String(), "", nil
}

// simpleEscapes are the escape sequences of one letter.
var simpleEscapes = map[byte]string{
	'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v", '\\': `\`, '"': `"`, '\'': `'`, 's': " ",
}

// unescape decodes the escape sequence at the start of s and returns its length in bytes.
func unescape(s string) (text string, length int, err error) {
	if len(s) < 2 {
		return "", 0, errors.New("backslash at the end of the line")
	}
	if text, ok := simpleEscapes[s[1]]; ok {
		return text, 2, nil
	}
	var digits int // the number of digits, from index start
	start, base := 2, 16
	switch c := s[1]; {
	case c == 'x':
		digits = 2
	case c == 'u':
		digits = 4
	case c == 'U':
		digits = 8
	case '0' <= c && c <= '7':
		start, digits, base = 1, 3, 8
	default:
		_, n := utf8.DecodeRuneInString(s[1:])
		return "", 0, fmt.Errorf("unknown escape sequence %q", s[:1+n])
	}
	if len(s) < start+digits {
		return "", 0, fmt.Errorf("invalid escape sequence %q: too short", s)
	}
	// At most 31 bits. With an explicit base, ParseUint accepts neither a sign nor underscores.
	n, err := strconv.ParseUint(s[start:start+digits], base, 31)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("invalid escape sequence %q: expected a character", s[:start+digits])
	}
	if s[1] != 'u' && s[1] != 'U' {
		if n > 0xff {
			return "", 0, fmt.Errorf("invalid escape sequence %q: expected a byte", s[:start+digits])
		}
		return string([]byte{byte(n)}), start + digits, nil
	}
	if !utf8.ValidRune(rune(n)) {
		return "", 0, fmt.Errorf("invalid escape sequence %q: expected a character", s[:start+digits])
	}
	return string(rune(n)), start + digits, nil
}

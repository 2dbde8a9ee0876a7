package environment

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/corrald/corral/internal/safefile"
)

// maxFile bounds a file of variables, in bytes: as much as a session may have.
const maxFile = 1 << 20

// ReadFiles reads files of variables, one after the other: systemd.exec(5), EnvironmentFile=. A
// path with a - in front may be missing.
func ReadFiles(paths []string) ([]string, error) {
	var all []string
	for _, path := range paths {
		path, optional := strings.CutPrefix(path, "-")
		text, err := readFile(path)
		if optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the environment file: %w", err)
		}
		entries, line := ParseFile(text)
		if line > 0 { // what it says there nobody is told: it may be a secret
			return nil, fmt.Errorf("cannot use the environment file %s: line %d is not NAME=VALUE", path, line)
		}
		all = append(all, entries...)
	}
	return all, nil
}

func readFile(path string) (string, error) {
	text, err := safefile.ReadLinked(path, maxFile)
	return string(text), err
}

// ParseFile reads the text of a file of variables: NAME=VALUE lines; empty ones and those that
// begin with # or ; are left out. A backslash at the end continues a line, elsewhere it takes the
// next character as it is. Values may be quoted, in double quotes with the escapes of a shell, and
// may then go over several lines. Line is the first one that is not of that kind, 0 if there is
// none.
func ParseFile(text string) (entries []string, line int) {
	p := fileParser{text: text, line: 1}
	for p.text != "" {
		begin := p.line
		name, ok := p.name()
		if !ok {
			continue
		}
		value, closed := p.value()
		if !ValidName(name) || !closed || strings.ContainsRune(value, 0) {
			return entries, begin
		}
		entries = append(entries, name+"="+value)
	}
	return entries, 0
}

type fileParser struct {
	text string
	line int // from 1 on, of what text begins with
}

func (p *fileParser) next() byte {
	c := p.text[0]
	p.text = p.text[1:]
	if c == '\n' {
		p.line++
	}
	return c
}

// name reads up to the equals sign. Ok is false for a line that has nothing to say, which is taken
// away; a line without an equals sign is a name that is not valid.
func (p *fileParser) name() (name string, ok bool) {
	line, _, _ := strings.Cut(p.text, "\n")
	trimmed := strings.TrimLeft(line, " \t\r")
	if strings.TrimSpace(trimmed) == "" || trimmed[0] == '#' || trimmed[0] == ';' {
		p.skip(len(line) + 1)
		return "", false
	}
	before, _, is := strings.Cut(line, "=")
	if !is {
		p.skip(len(line) + 1)
		return "", true
	}
	p.skip(len(before) + 1)
	return strings.TrimSpace(before), true
}

func (p *fileParser) skip(n int) {
	for range min(n, len(p.text)) {
		p.next()
	}
}

// value reads to the end of the line that it ends in. Closed tells whether each quote was.
func (p *fileParser) value() (value string, closed bool) {
	var b strings.Builder
	p.text = strings.TrimLeft(p.text, " \t\r")
	kept := 0 // bytes of the value that were quoted or escaped, up to the last of them: blanks behind them are cut off
	for p.text != "" {
		switch c := p.next(); c {
		case '\n':
			return trimEnd(b.String(), kept), true
		case '\\':
			if p.text == "" {
				return "", false
			}
			if c := p.next(); c != '\n' {
				b.WriteByte(c)
				kept = b.Len()
			}
		case '\'', '"':
			if !p.quoted(&b, c) {
				return "", false
			}
			kept = b.Len()
		default:
			b.WriteByte(c)
		}
	}
	return trimEnd(b.String(), kept), true
}

func trimEnd(value string, kept int) string {
	return value[:kept] + strings.TrimRight(value[kept:], " \t\r")
}

// quoted reads to the closing quote, and tells whether there is one.
func (p *fileParser) quoted(b *strings.Builder, quote byte) bool {
	for p.text != "" {
		c := p.next()
		switch {
		case c == quote:
			return true
		case c == '\\' && quote == '"' && p.text != "":
			switch c := p.next(); {
			case strings.ContainsRune("\"\\`$", rune(c)):
				b.WriteByte(c)
			case c != '\n':
				b.WriteByte('\\')
				b.WriteByte(c)
			}
		default:
			b.WriteByte(c)
		}
	}
	return false
}

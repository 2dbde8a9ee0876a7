package environment

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/corrald/corral/internal/safefile"
)

// maxFile is the largest accepted environment file, in bytes: as much as a session may have.
const maxFile = 1 << 20

// SourceFile is an environment file of an agent's definition.
type SourceFile struct {
	Path     string
	Optional bool // it may be missing
	Private  bool // it has to belong to the user and to be accessible to nobody else, as with mode 0600
}

// FileError is the error of an environment file that cannot be used. A person has to correct the
// file.
type FileError struct{ err error }

func (e *FileError) Error() string { return e.err.Error() }
func (e *FileError) Unwrap() error { return e.err }

// ReadFiles reads environment files in order, as EnvironmentFile= of systemd.exec(5) does. Errors:
// *FileError.
func ReadFiles(files []SourceFile) ([]string, error) {
	var all []string
	for _, file := range files {
		entries, err := file.read()
		if err != nil {
			return nil, &FileError{err}
		}
		all = append(all, entries...)
	}
	return all, nil
}

func (f SourceFile) read() ([]string, error) {
	read := safefile.ReadLinked
	if f.Private {
		read = safefile.ReadPrivate
	}
	text, err := read(f.Path, maxFile)
	switch {
	case f.Optional && errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, safefile.ErrNotPrivate):
		return nil, fmt.Errorf("cannot use the environment file: %w; run: chmod 600 %s", err, shellWord(f.Path))
	case err != nil:
		return nil, fmt.Errorf("cannot read the environment file: %w", err)
	}
	entries, line := ParseFile(string(text))
	if line > 0 { // the message does not quote the line, which may contain a secret
		return nil, fmt.Errorf("cannot use the environment file %s: line %d is not NAME=VALUE", f.Path, line)
	}
	return entries, nil
}

// shellWord quotes a path so that it is one word of a shell's command line.
func shellWord(path string) string {
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-@+") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// ParseFile parses an environment file: NAME=VALUE lines. Empty lines and lines that begin with #
// or ; are ignored. A backslash continues a line at its end and quotes the next character
// elsewhere. Values may be quoted, in double quotes with the escapes of a shell, and quoted values
// may span several lines. Line is the number of the first invalid line, 0 if there is none.
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
	line int // number of the line that text starts in, from 1
}

func (p *fileParser) next() byte {
	c := p.text[0]
	p.text = p.text[1:]
	if c == '\n' {
		p.line++
	}
	return c
}

// name reads up to the equals sign. For an empty line or a comment it skips the line and returns
// false. A line without an equals sign yields an empty, and so invalid, name.
func (p *fileParser) name() (name string, ok bool) {
	line, _, _ := strings.Cut(p.text, "\n")
	trimmed := strings.TrimLeft(line, " \t\r")
	if strings.TrimSpace(trimmed) == "" || trimmed[0] == '#' || trimmed[0] == ';' {
		p.skip(len(line) + 1)
		return "", false
	}
	before, _, ok := strings.Cut(line, "=")
	if !ok {
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

// value reads to the end of the assignment. Closed is false if a quote or an escape is not
// finished.
func (p *fileParser) value() (value string, closed bool) {
	var b strings.Builder
	p.text = strings.TrimLeft(p.text, " \t\r")
	kept := 0 // length of the value up to its last quoted or escaped byte: only blanks after that are trimmed
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

// quoted reads up to the closing quote and reports whether there is one.
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

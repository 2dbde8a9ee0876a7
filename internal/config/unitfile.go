package config

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/corrald/corral/internal/safefile"
)

// maxFileSize is the largest file that is read, in bytes. systemd accepts lines of 1 MiB; no agent
// definition is that long.
const maxFileSize = 1 << 20

// Warning describes a part of a configuration file that was ignored. The rest of the file still
// applies.
type Warning struct {
	File string
	Line int // from 1; 0 if the warning is about the whole file or directory
	Text string
}

func (w Warning) String() string {
	if w.Line == 0 {
		return w.File + ": " + w.Text
	}
	return fmt.Sprintf("%s:%d: %s", w.File, w.Line, w.Text)
}

// assignment is one KEY=VALUE line of a file.
type assignment struct {
	section, key, value string
	file                string
	line                int // its first line
}

// warn returns a warning that the assignment is ignored.
func (a assignment) warn(format string, args ...any) Warning {
	return Warning{a.file, a.line, fmt.Sprintf(format, args...) + ", ignored"}
}

// readUnitFile reads and parses a file; see parseUnit. It returns an error if the whole file is
// unusable.
func readUnitFile(path string, sections ...string) ([]assignment, []Warning, error) {
	b, err := safefile.ReadLinked(path, maxFileSize)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read configuration: %w", err)
	}
	assignments, warnings := parseUnit(path, b, sections...)
	return assignments, warnings, nil
}

// parseUnit parses the syntax of systemd.syntax(7): [Section] lines, KEY=VALUE lines, comments that
// begin with # or ;, and a backslash at the end of a line, which joins it with the next line that
// is not a comment, separated by a space. Sections other than the given ones are ignored with a
// warning. Sections and keys that begin with "X-" belong to other programs and are ignored
// silently.
func parseUnit(file string, b []byte, sections ...string) ([]assignment, []Warning) {
	p := unitParser{file: file, sections: sections}
	b = bytes.TrimPrefix(b, []byte("\ufeff"))
	var joined string // the continued lines so far
	first, n := 0, 0  // the first line of joined, and the current line
	for raw := range bytes.Lines(b) {
		n++
		line := strings.TrimRight(string(raw), "\r\n")
		if isComment(line) {
			continue
		}
		if first == 0 {
			first = n
		}
		joined += line
		if endsInBackslash(joined) {
			joined = joined[:len(joined)-1] + " "
			continue
		}
		p.line(strings.TrimSpace(joined), first)
		joined, first = "", 0
	}
	p.line(strings.TrimSpace(joined), first)
	return p.assignments, p.warnings
}

type unitParser struct {
	file     string
	sections []string

	section       string // "" before the first header
	skip          bool   // the current section is ignored
	warnedOutside bool   // whether an assignment outside of a section was already reported

	assignments []assignment
	warnings    []Warning
}

func (p *unitParser) line(text string, line int) {
	switch {
	case text == "":
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		p.warn(line, "line is not valid UTF-8 text, ignored")
	case text[0] == '[':
		p.header(text, line)
	case p.skip:
	case p.section == "":
		if !p.warnedOutside {
			p.warn(line, "assignment outside of a section, ignored")
		}
		p.warnedOutside = true
	default:
		p.assign(text, line)
	}
}

func (p *unitParser) header(text string, line int) {
	name, ok := strings.CutSuffix(text[1:], "]")
	p.section, p.skip = name, true
	switch {
	case !ok || name == "":
		p.warn(line, "section header %q is not of the form [NAME], ignored with what follows", text)
	case strings.HasPrefix(name, "X-"):
	case !slices.Contains(p.sections, name):
		p.warn(line, "unknown section [%s], ignored", name)
	default:
		p.skip = false
	}
}

func (p *unitParser) assign(text string, line int) {
	key, value, ok := strings.Cut(text, "=")
	key = strings.TrimSpace(key)
	if !ok || key == "" {
		p.warn(line, "line is not of the form KEY=VALUE, ignored")
		return
	}
	if strings.HasPrefix(key, "X-") {
		return
	}
	p.assignments = append(p.assignments, assignment{p.section, key, strings.TrimSpace(value), p.file, line})
}

func (p *unitParser) warn(line int, format string, args ...any) {
	p.warnings = append(p.warnings, Warning{p.file, line, fmt.Sprintf(format, args...)})
}

func isComment(line string) bool {
	line = strings.TrimLeft(line, " \t")
	return line != "" && (line[0] == '#' || line[0] == ';')
}

// endsInBackslash reports whether s ends in a backslash that is not escaped by another one.
func endsInBackslash(s string) bool {
	return (len(s)-len(strings.TrimRight(s, `\`)))%2 == 1
}

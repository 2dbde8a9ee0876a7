package top

import (
	"io"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

// screenLines returns the lines of a session's screen, truncated to width columns. Of escape
// sequences it keeps only those that set colours and other styles of text. Each line begins with
// the styles that apply to its first character, so that it can be drawn anywhere.
func screenLines(screen string, width int) []string {
	lines := strings.Split(strings.TrimRight(screen, "\n"), "\n")
	for i, line := range lines {
		lines[i] = sanitize(line)
	}
	var b strings.Builder
	styled := lipgloss.NewWrapWriter(&b) // ends the styles with each line, and repeats them in the next
	_, _ = io.WriteString(styled, strings.Join(lines, "\n"))
	_ = styled.Close()
	lines = strings.Split(b.String(), "\n")
	for len(lines) > 0 && strings.TrimSpace(ansi.Strip(lines[len(lines)-1])) == "" {
		lines = lines[:len(lines)-1]
	}
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, width, "")
	}
	return lines
}

const tabWidth = 8

// sanitize returns a line that contains only text and SGR sequences.
func sanitize(line string) string {
	var b strings.Builder
	var state byte
	column := 0
	for len(line) > 0 {
		seq, width, n, next := ansi.DecodeSequence(line, state, nil)
		line, state = line[n:], next
		switch {
		case width > 0:
			if wording.Printable(seq) != seq {
				seq, width = "?", 1
			}
			b.WriteString(seq)
			column += width
		case seq == "\t":
			blanks := tabWidth - column%tabWidth
			b.WriteString(strings.Repeat(" ", blanks))
			column += blanks
		case isSGR(seq):
			b.WriteString(seq)
		}
	}
	return b.String()
}

// isSGR reports whether seq is a sequence "CSI numbers m", see ECMA-48 8.3.117.
func isSGR(seq string) bool {
	numbers, ok := strings.CutPrefix(seq, "\x1b[")
	if !ok || !strings.HasSuffix(numbers, "m") {
		return false
	}
	return strings.Trim(numbers[:len(numbers)-1], "0123456789;:") == ""
}

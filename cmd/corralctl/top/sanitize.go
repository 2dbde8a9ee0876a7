package top

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

// screenLines returns the lines of a session's screen, truncated to width columns. Of escape
// sequences it keeps only those that set colours and other styles of text. Each line begins with
// the sequences that apply to its first character, so that it can be drawn anywhere.
func screenLines(screen string, width int) []string {
	lines := strings.Split(strings.TrimRight(screen, "\n"), "\n")
	var styles string // the sequences in force, in their order
	for i, line := range lines {
		var clean string
		clean, styles = sanitize(line, styles)
		lines[i] = clean
	}
	for len(lines) > 0 && strings.TrimSpace(ansi.Strip(lines[len(lines)-1])) == "" {
		lines = lines[:len(lines)-1]
	}
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, width, "") + ansi.ResetStyle
	}
	return lines
}

const (
	tabWidth = 8
	// maxStyles bounds the sequences that apply from line to line, in bytes. A program that exceeds it
	// has not reset its styles for too long.
	maxStyles = 256
)

// sanitize returns a line that contains only text and SGR sequences. The line begins with the
// sequences in styles; after contains the sequences that are in force at its end.
func sanitize(line, styles string) (clean, after string) {
	var b strings.Builder
	b.WriteString(styles)
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
			if startsWithReset(seq) || len(styles)+len(seq) > maxStyles {
				styles = ""
			}
			styles += seq
		}
	}
	return b.String(), styles
}

// isSGR reports whether seq is a sequence "CSI numbers m", see ECMA-48 8.3.117.
func isSGR(seq string) bool {
	numbers, ok := strings.CutPrefix(seq, "\x1b[")
	if !ok || !strings.HasSuffix(numbers, "m") {
		return false
	}
	return strings.Trim(numbers[:len(numbers)-1], "0123456789;:") == ""
}

// startsWithReset reports whether an SGR sequence begins with a reset, which cancels all sequences
// before it.
func startsWithReset(seq string) bool {
	first, _, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(seq, "\x1b["), "m"), ";")
	return strings.Trim(first, "0") == ""
}

package main

import (
	"bytes"
	"slices"
	"strings"
)

// inputLine is what is known of an agent's input line. Some agents put the prompt of a turn that
// was interrupted back into it, for the user to change. A text that is sent then has to replace
// that prompt, or it would be appended to it.
type inputLine struct {
	edited      bool // something was typed since the last prompt was entered
	interrupted bool // all that was typed since are keys that interrupt
	lines, size int  // line breaks and bytes of what was typed since
	rows        int  // rows that the last prompt may occupy; 0 if nothing was entered
}

// interruptions are what the keys send with which users interrupt agents, Escape and Ctrl-C:
// without and with the kitty keyboard protocol.
var interruptions = []string{"\x1b", "\x1b\x1b", "\x03", "\x1b[27u", "\x1b[27;1u", "\x1b[99;5u"}

// typed records keys that were written to the agent's terminal, whose width is cols.
func (l *inputLine) typed(b []byte, cols int) {
	switch {
	case slices.Contains(interruptions, string(b)):
		l.interrupted = !l.edited
	case bytes.HasSuffix(b, enterKey):
		l.added(b[:len(b)-1])
		l.entered(cols)
	default:
		l.added(b)
	}
}

// added records that a text was added to the input line.
func (l *inputLine) added(b []byte) {
	l.edited, l.interrupted = true, false
	l.lines += bytes.Count(b, []byte{'\r'}) + bytes.Count(b, []byte{'\n'})
	l.size += len(b)
}

// entered records that Enter was pressed.
func (l *inputLine) entered(cols int) {
	*l = inputLine{rows: 1 + l.lines + l.size/max(cols, 1)}
}

// maxClearedRows limits how many rows are deleted. Agents show a longer prompt as one word.
const maxClearedRows = 200

// clearingKeys returns the keys that delete a prompt which the agent may have put back: names, the
// keys that delete one row and the line break before it, for each row and one more time. It returns
// none if the agent was not interrupted. In an empty input line, the keys do nothing.
func (l *inputLine) clearingKeys(names []string) []string {
	if !l.interrupted || l.rows == 0 {
		return nil
	}
	l.interrupted = false
	return slices.Repeat(names, min(l.rows, maxClearedRows)+1)
}

// clearInputLine is called before a text is written. If the agent was interrupted, it has the keys
// pressed that delete an interrupted prompt, and returns true. An answer to a question does not go
// into the input line, and an empty text only presses Enter, which submits that prompt again.
func (s *shim) clearInputLine(t *text) bool {
	if s.spec.ClearKeys == "" || t.n == 0 || s.isAsking() {
		return false
	}
	names := s.input.line.clearingKeys(strings.Fields(s.spec.ClearKeys))
	if len(names) == 0 {
		return false
	}
	s.input.count++
	s.input.texts = slices.Insert(s.input.texts, 0, &text{keys: &keySequence{names: names}})
	return true
}

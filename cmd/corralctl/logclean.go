package main

import (
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The bounds of what a line may be made to grow to by a few bytes of an agent.
const (
	maxColumn = 1000     // where the cursor can be moved to, and characters be moved and repeated
	maxLine   = 16 << 10 // characters of a line that are kept to be written over; a longer one is passed on in parts
	maxParams = 64       // bytes of a sequence's parameters
)

// logCleaner turns what an agent wrote to its terminal into readable text. It follows the cursor within the line, so that a progress bar leaves its last
// state; where a program moves to another line, a new line begins, because a log has no screen to go back to. What it passes on has no control
// characters but newlines and tabs. Close it after the last Write.
//
// The sequences are those of ECMA-48 and xterm's ctlseqs: CSI, OSC, DCS, SOS, PM, APM, SS2, SS3, two-byte escapes, and C1 controls encoded as UTF-8.
type logCleaner struct {
	out     io.Writer
	err     error // of out; sticky
	state   cleanState
	params  []byte // of the control sequence that is being read
	partial []byte // the beginning of a character
	line    []rune
	column  int
	moved   bool // the cursor was moved in this line, so blanks at its end mean nothing
	last    rune // for REP
}

// cleanState tells what the next character belongs to.
type cleanState int

const (
	inText    cleanState = iota
	inEscape             // after ESC
	inTwoByte            // after ESC and an intermediate: a final character follows
	inControl            // CSI
	inCommand            // OSC: ends with BEL or ST
	inString             // DCS, SOS, PM, APM: ends with ST
	inSingle             // SS2, SS3: one character follows
)

const (
	bel = '\a'
	esc = 0x1b
	can = 0x18
	sub = 0x1a
	csi = 0x9b
	osc = 0x9d
	st  = 0x9c
)

func newLogCleaner(out io.Writer) *logCleaner { return &logCleaner{out: out} }

// Write takes what the agent wrote, in parts of any size. Its error is that of the writer below.
func (l *logCleaner) Write(p []byte) (int, error) {
	n := len(p)
	if len(l.partial) > 0 {
		p = append(l.partial, p...)
		l.partial = nil
	}
	for len(p) > 0 && utf8.FullRune(p) {
		r, size := utf8.DecodeRune(p)
		l.next(r)
		p = p[size:]
	}
	l.partial = append(l.partial, p...)
	return n, l.err
}

// Close passes on what is left of the last line.
func (l *logCleaner) Close() error {
	for range l.partial {
		l.next(utf8.RuneError)
	}
	l.partial = nil
	l.pass("")
	return l.err
}

func (l *logCleaner) next(r rune) {
	switch {
	case r == can || r == sub:
		l.state = inText // cancels any sequence
		return
	case r == esc:
		l.state = inEscape // ends any string, as its ST does
		return
	case r >= 0x80 && r < 0xa0 && l.state != inString && l.state != inCommand:
		l.begin(r)
		return
	}
	switch l.state {
	case inText:
		l.text(r)
	case inEscape:
		l.escape(r)
	case inTwoByte:
		if r >= 0x30 || !l.control(r) {
			l.state = stateAfter(r, 0x20, 0x2f, inTwoByte)
		}
	case inControl:
		l.controlSequence(r)
	case inCommand:
		l.command(r)
	case inString:
		if r == st {
			l.state = inText
		}
	case inSingle:
		l.state = inText
	}
}

// stateAfter stays in a state for a character from first to last, and leaves it for any other.
func stateAfter(r, first, last rune, stay cleanState) cleanState {
	if r >= first && r <= last {
		return stay
	}
	return inText
}

// begin handles a C1 control: those that begin a sequence, and those that move to another line.
func (l *logCleaner) begin(c1 rune) {
	l.state = inText
	switch c1 {
	case csi:
		l.state, l.params = inControl, l.params[:0]
	case osc:
		l.state = inCommand
	case 0x90, 0x98, 0x9e, 0x9f: // DCS, SOS, PM, APM
		l.state = inString
	case 0x8e, 0x8f: // SS2, SS3
		l.state = inSingle
	case 0x84, 0x8d: // IND, RI
		l.breakLine()
	case 0x85: // NEL
		l.breakLine()
		l.column = 0
	}
}

// escape handles the character after ESC.
func (l *logCleaner) escape(r rune) {
	switch {
	case l.control(r):
	case r >= 0x20 && r <= 0x2f:
		l.state = inTwoByte
	case r >= 0x40 && r <= 0x5f:
		l.begin(r + 0x40)
	case r == 'c': // RIS
		l.state = inText
		l.breakLine()
		l.column = 0
	default:
		l.state = inText
	}
}

// command handles a character of an OSC. A newline ends it too: none is part of one, and what follows an unfinished one would be lost otherwise.
func (l *logCleaner) command(r rune) {
	switch r {
	case bel, st:
		l.state = inText
	case '\n':
		l.state = inText
		l.text(r)
	}
}

// controlSequence handles a character of a CSI sequence.
func (l *logCleaner) controlSequence(r rune) {
	switch {
	case l.control(r):
	case r >= 0x20 && r <= 0x3f:
		if len(l.params) < maxParams {
			l.params = append(l.params, byte(r))
		}
	case r >= 0x40 && r <= 0x7e:
		l.state = inText
		l.act(r)
	case r != 0x7f:
		l.state = inText
		l.text(r)
	}
}

// text handles a character of ordinary text.
func (l *logCleaner) text(r rune) {
	if l.control(r) || r == 0x7f {
		return
	}
	l.put(r)
	l.last = r
}

// control handles a C0 control, which acts within sequences as well, and tells whether r is one.
func (l *logCleaner) control(r rune) bool {
	switch r {
	case '\n':
		l.pass("\n")
		l.column = 0
	case '\v', '\f':
		l.breakLine()
	case '\r':
		l.column = 0
	case '\b':
		l.column = max(0, l.column-1)
	case '\t':
		l.put(r)
	default:
		return r < 0x20
	}
	return true
}

// act does what a control sequence asks for, as far as it has a meaning within a line.
func (l *logCleaner) act(final rune) {
	if len(l.params) > 0 && l.params[0] >= '<' {
		return // private sequences: modes, reports
	}
	n := max(1, l.param(0))
	switch final {
	case 'C', 'a':
		l.moveTo(l.column + n)
	case 'D':
		l.moveTo(l.column - n)
	case 'G', '`':
		l.moveTo(n - 1)
	case 'H', 'f':
		l.breakLine()
		l.moveTo(max(1, l.param(1)) - 1)
	case 'A', 'B', 'd', 'S', 'T':
		l.breakLine()
	case 'E', 'F':
		l.breakLine()
		l.column = 0
	case 'J':
		if l.param(0) != 0 {
			l.breakLine()
			return
		}
		l.erase(l.column, len(l.line))
	case 'K':
		l.eraseLine()
	case 'P':
		if len(l.line) > maxColumn {
			return
		}
		from := min(l.column, len(l.line))
		l.line = append(l.line[:from], l.line[min(from+n, len(l.line)):]...)
	case 'X':
		l.erase(l.column, l.column+n)
	case '@':
		l.insert(n)
	case 'b':
		for l.last != 0 && n > 0 && l.column < maxColumn {
			l.put(l.last)
			n--
		}
	}
}

// param is the sequence's i-th number, 0 if it has none; a great one is as good as the greatest column.
func (l *logCleaner) param(i int) int {
	fields := strings.Split(string(l.params), ";")
	if i >= len(fields) || fields[i] == "" {
		return 0
	}
	n, err := strconv.ParseUint(fields[i], 10, 63)
	if err != nil && !strings.Contains(err.Error(), strconv.ErrRange.Error()) {
		return 0
	}
	return int(min(n, maxColumn))
}

func (l *logCleaner) moveTo(column int) {
	l.column = min(max(column, 0), maxColumn)
	l.moved = true
}

// put writes a character at the cursor.
func (l *logCleaner) put(r rune) {
	for len(l.line) < l.column {
		l.line = append(l.line, ' ')
	}
	if l.column < len(l.line) {
		l.line[l.column] = r
	} else {
		l.line = append(l.line, r)
	}
	l.column++
	if len(l.line) >= maxLine {
		l.moved = false
		l.pass("")
		l.column = 0
	}
}

// eraseLine erases to the end of the line, to its beginning, or all of it.
func (l *logCleaner) eraseLine() {
	switch l.param(0) {
	case 0:
		l.erase(l.column, len(l.line))
	case 1:
		l.erase(0, l.column+1)
	case 2:
		l.erase(0, len(l.line))
	}
}

// erase blanks the columns from and up to, but not including, to.
func (l *logCleaner) erase(from, to int) {
	l.moved = true
	if to >= len(l.line) {
		l.line = l.line[:min(from, len(l.line))]
		return
	}
	for i := from; i < to; i++ {
		l.line[i] = ' '
	}
}

// insert moves the rest of the line to the right.
func (l *logCleaner) insert(n int) {
	if l.column >= len(l.line) || len(l.line) > maxColumn {
		return
	}
	rest := append([]rune(strings.Repeat(" ", n)), l.line[l.column:]...)
	l.line = append(l.line[:l.column], rest...)
	l.moved = true
}

// breakLine begins a new line because the cursor goes to another one; nothing comes of it where there is no text.
func (l *logCleaner) breakLine() {
	column := l.column
	if strings.TrimSpace(string(l.line)) != "" {
		l.pass("\n")
	}
	l.line = l.line[:0]
	l.column, l.moved = min(column, maxColumn), true
}

// pass writes the line, and end after it, to the writer below.
func (l *logCleaner) pass(end string) {
	text := string(l.line)
	if l.moved {
		text = strings.TrimRight(text, " ")
	}
	l.line, l.moved = l.line[:0], false
	if text+end == "" || l.err != nil {
		return
	}
	_, l.err = io.WriteString(l.out, text+end)
}

// Package transcript makes readable text of what a program wrote to its terminal.
package transcript

import (
	"io"
	"strings"
	"unicode/utf8"
)

// maxParams is how many bytes of a sequence's parameters are read.
const maxParams = 64

// Transcript turns what an agent wrote to its terminal into the text that a person who scrolls back
// in that terminal would read: a progress bar in its last state, the final lines of what was
// painted again and again, in their order. It is a terminal whose lines are not lost when they
// leave the screen but passed on. What it passes on has no control characters but newlines and
// tabs. Close it after the last Write.
//
// A line that is longer than the terminal is wide goes on in the next one there, and is one line
// here. Where the size is not known (Resize), no line is too long: a program that relies on the
// terminal to begin another one and then goes up in the lines that came of it is not followed
// exactly. What leaves a full screen program's (alternate) screen is passed on too, and what is
// there when it ends, because some agents show nothing elsewhere.
//
// The sequences are those of ECMA-48 and xterm's ctlseqs: CSI, OSC, DCS, SOS, PM, APM, SS2, SS3,
// two-byte escapes, and C1 controls encoded as UTF-8.
type Transcript struct {
	screen
	primary *screen // while the program has the alternate screen: the other one
	spare   []*line // of the alternate screen that there was last
	state   parserState
	params  []byte // of the control sequence that is being read
	partial []byte // the beginning of a character
	last    rune   // for REP
}

// parserState tells what the next character belongs to.
type parserState int

const (
	inText               parserState = iota
	inEscape                         // after ESC
	inEscapeIntermediate             // after ESC and an intermediate: a final character follows
	inCSI                            // CSI
	inOSC                            // OSC: ends with BEL or ST
	inString                         // DCS, SOS, PM, APM: ends with ST
	inSingleShift                    // SS2, SS3: one character follows
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

// New returns a Transcript that passes text on to out.
func New(out io.Writer) *Transcript { return &Transcript{screen: newScreen(&output{writer: out}, nil)} }

// Write takes what the agent wrote, in parts of any size. Its error is that of the writer below.
func (l *Transcript) Write(p []byte) (int, error) {
	n := len(p)
	if len(l.partial) > 0 {
		p = append(l.partial, p...)
		l.partial = nil
	}
	for len(p) > 0 && utf8.FullRune(p) {
		r, size := utf8.DecodeRune(p)
		l.handle(r)
		p = p[size:]
	}
	l.partial = append(l.partial, p...)
	return n, l.out.flush()
}

// Resize gives the terminal the size that it has from here on in what the agent wrote; zeros are
// for a size that is not known.
func (l *Transcript) Resize(columns, rows int) {
	l.resize(columns, rows)
	if l.primary != nil {
		l.primary.resize(columns, rows)
	}
}

// Flush passes on the lines above the cursor, for who wants to read along. What is changed later of
// them is passed on once more.
func (l *Transcript) Flush() error {
	if l.primary == nil {
		l.emitAbove()
	}
	return l.out.flush()
}

// Close passes on what is left.
func (l *Transcript) Close() error {
	for range l.partial {
		l.handle(utf8.RuneError)
	}
	l.partial = nil
	l.setAlternate(false)
	l.finish()
	return l.out.flush()
}

// SetOutput has everything from now on passed on to another writer.
func (l *Transcript) SetOutput(out io.Writer) { l.out.writer = out }

// setAlternate begins and ends the program's use of the alternate screen.
func (l *Transcript) setAlternate(on bool) {
	switch {
	case on && l.primary == nil:
		main := l.screen
		main.emitAbove()
		l.screen = newScreen(main.out, l.spare)
		l.width, l.height, l.heightKnown, l.noWrap, l.primary = main.width, main.height, main.heightKnown, main.noWrap, &main
		l.moveToRow(l.primary.row - l.primary.base())
	case !on && l.primary != nil:
		first, used := 0, l.usedLines()
		for first < used && l.lines[first].isBlank() {
			first++
		}
		for _, row := range l.lines[first:used] {
			l.emit(row)
		}
		height, cuts := l.height, l.noWrap
		l.spare, l.screen, l.primary = l.lines, *l.primary, nil
		l.height, l.noWrap = max(height, l.height), cuts
	}
}

func (l *Transcript) handle(r rune) {
	switch {
	case r == can || r == sub:
		l.state = inText // cancels any sequence
		return
	case r == esc:
		l.state = inEscape // ends any string, as its ST does
		return
	case r >= 0x80 && r < 0xa0 && l.state != inString && l.state != inOSC:
		l.c1Control(r)
		return
	}
	switch l.state {
	case inText:
		l.text(r)
	case inEscape:
		l.escapeCharacter(r)
	case inEscapeIntermediate:
		if r >= 0x30 || !l.c0Control(r) {
			l.state = stayWithin(r, 0x20, 0x2f, inEscapeIntermediate)
		}
	case inCSI:
		l.csiCharacter(r)
	case inOSC:
		l.oscCharacter(r)
	case inString:
		if r == st {
			l.state = inText
		}
	case inSingleShift:
		l.state = inText
	}
}

// stayWithin stays in a state for a character from first to last, and leaves it for any other.
func stayWithin(r, first, last rune, stay parserState) parserState {
	if r >= first && r <= last {
		return stay
	}
	return inText
}

// c1Control handles a C1 control: those that begin a sequence, and those that move to another line.
func (l *Transcript) c1Control(c1 rune) {
	l.state = inText
	switch c1 {
	case csi:
		l.state, l.params = inCSI, l.params[:0]
	case osc:
		l.state = inOSC
	case 0x90, 0x98, 0x9e, 0x9f: // DCS, SOS, PM, APM
		l.state = inString
	case 0x8e, 0x8f: // SS2, SS3
		l.state = inSingleShift
	case 0x84: // IND
		l.lineFeed()
	case 0x85: // NEL
		l.lineFeed()
		l.column = 0
	case 0x8d: // RI
		l.reverseLineFeed()
	}
}

// escapeCharacter handles the character after ESC.
func (l *Transcript) escapeCharacter(r rune) {
	switch {
	case l.c0Control(r):
	case r >= 0x20 && r <= 0x2f:
		l.state = inEscapeIntermediate
	case r >= 0x40 && r <= 0x5f:
		l.c1Control(r + 0x40)
	case r == 'c': // RIS
		l.state = inText
		l.setAlternate(false)
		l.clear()
		l.moveToCell(0, 0)
		l.bottom, l.noWrap = 0, false
	case r == '7' || r == '8': // DECSC, DECRC
		l.state = inText
		l.saveOrRestoreCursor(r == '7')
	default:
		l.state = inText
	}
}

// oscCharacter handles a character of an OSC. A newline ends it too: none is part of one, and what
// follows an unfinished one would be lost otherwise.
func (l *Transcript) oscCharacter(r rune) {
	switch r {
	case bel, st:
		l.state = inText
	case '\n':
		l.state = inText
		l.text(r)
	}
}

// csiCharacter handles a character of a CSI sequence.
func (l *Transcript) csiCharacter(r rune) {
	switch {
	case l.c0Control(r):
	case r >= 0x20 && r <= 0x3f:
		if len(l.params) < maxParams {
			l.params = append(l.params, byte(r))
		}
	case r >= 0x40 && r <= 0x7e:
		l.state = inText
		l.dispatchCSI(r)
	case r != 0x7f:
		l.state = inText
		l.text(r)
	}
}

// text handles a character of ordinary text.
func (l *Transcript) text(r rune) {
	if l.c0Control(r) || r == 0x7f {
		return
	}
	l.put(r)
	l.last = r
}

// c0Control handles a C0 control, which acts within sequences as well, and tells whether r is one.
func (l *Transcript) c0Control(r rune) bool {
	switch r {
	case '\n', '\v', '\f':
		l.lineFeed()
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

// saveOrRestoreCursor keeps the cursor's place on the screen, or takes it back there.
func (l *Transcript) saveOrRestoreCursor(save bool) {
	if save {
		l.savedCursor = [2]int{l.row - l.base(), l.column}
		return
	}
	l.moveToCell(max(l.savedCursor[0], 0), l.savedCursor[1])
}

// dispatchCSI does what a control sequence asks for.
func (l *Transcript) dispatchCSI(final rune) {
	if len(l.params) > 0 && l.params[0] >= '<' {
		if l.params[0] == '?' && (final == 'h' || final == 'l') {
			l.setPrivateModes(final == 'h')
		}
		return // the others are reports
	}
	if n := max(1, l.param(0)); !l.moveCursor(final, n) {
		l.editScreen(final, n)
	}
}

// setPrivateModes switches a private mode.
func (l *Transcript) setPrivateModes(on bool) {
	for _, mode := range strings.Split(string(l.params[1:]), ";") {
		switch mode {
		case "47", "1047", "1049":
			l.setAlternate(on)
		case "7": // DECAWM
			l.noWrap = !on
		}
	}
}

// moveCursor does what a control sequence asks for if that is to move the cursor.
func (l *Transcript) moveCursor(final rune, n int) bool {
	switch final {
	case 'A', 'F':
		l.up(n)
	case 'B', 'E', 'e':
		l.down(n)
	case 'C', 'a':
		l.moveToColumn(l.column + n)
	case 'D':
		l.moveToColumn(l.column - n)
	case 'G', '`':
		l.moveToColumn(n - 1)
	case 'H', 'f':
		l.moveToCell(n-1, max(1, l.param(1))-1)
	case 'd':
		l.moveToCell(n-1, l.column)
	case 's', 'u':
		l.saveOrRestoreCursor(final == 's')
	default:
		return false
	}
	if final == 'E' || final == 'F' {
		l.column = 0
	}
	return true
}

// editScreen does what a control sequence asks for if that is to change the text.
func (l *Transcript) editScreen(final rune, n int) {
	first, last := l.region()
	inside := l.row >= first && l.row <= last
	switch final {
	case 'J':
		l.eraseScreen()
	case 'K':
		l.eraseLine()
	case 'L', 'M':
		if inside && final == 'L' {
			l.insertLines(l.row, last, n)
		} else if inside {
			l.deleteLines(l.row, last, n)
		}
	case 'S':
		l.scroll(first, last, n)
	case 'T':
		l.insertLines(first, last, n)
	case 'r':
		l.setRegion()
	case 'P':
		l.deleteCells(n)
	case 'X':
		l.erase(l.column, l.column+n)
	case '@':
		l.insertCells(n)
	case 'b':
		if l.last != 0 {
			l.putRepeated(l.last, n)
		}
	}
}

func (l *Transcript) setRegion() {
	top, bottom := max(1, l.param(0))-1, l.param(1)-1
	if bottom >= l.height && bottom < maxRows && !l.heightKnown {
		l.height = bottom + 1
	}
	if bottom <= top || bottom >= l.height || top == 0 && bottom == l.height-1 {
		top, bottom = 0, 0
	}
	base := l.base()
	l.ensureLines(base + bottom)
	l.top, l.bottom = top, bottom
	l.moveToCell(0, 0)
}

func (l *Transcript) eraseScreen() {
	switch l.param(0) {
	case 0:
		l.eraseBelow()
	case 1:
		l.eraseAbove()
	case 2:
		l.clear()
	}
}

// param is the sequence's i-th number, 0 if it has none; a great one is as good as the greatest
// column.
func (l *Transcript) param(i int) int {
	n := 0
	for _, c := range l.params {
		switch {
		case c == ';':
			if i--; i < 0 {
				return n
			}
		case i > 0:
		case c < '0' || c > '9':
			return 0
		default:
			n = min(n*10+int(c-'0'), maxColumn)
		}
	}
	if i > 0 {
		return 0
	}
	return n
}

// eraseLine erases to the end of the line, to its beginning, or all of it.
func (l *Transcript) eraseLine() {
	switch l.param(0) {
	case 0:
		l.erase(l.column, maxLine)
	case 1:
		l.erase(0, l.column+1)
	case 2:
		l.erase(0, maxLine)
	}
}

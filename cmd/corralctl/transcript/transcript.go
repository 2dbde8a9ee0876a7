// Package transcript turns the bytes that a program wrote to its terminal into readable text.
package transcript

import (
	"io"
	"strings"
	"unicode/utf8"
)

// maxParams is the number of bytes of a sequence's parameters that are kept.
const maxParams = 64

// Transcript turns what an agent wrote to its terminal into the text that a person would read when
// they scroll back in that terminal: a progress bar in its last state, the final lines of what was
// repainted many times, in their order. It emulates a terminal that emits the lines which leave its
// screen instead of dropping them. Its output has no control characters but newlines and tabs. Call
// Close after the last Write.
//
// A line that is longer than the terminal is wide is wrapped on the screen and is one line in the
// output. Where the size is unknown (see Resize), lines are not wrapped, and the output is inexact
// for a program that relies on wrapping and then moves the cursor up within the wrapped lines.
// Lines that leave the alternate screen are emitted too, and so is its content when the program
// leaves it, because some agents show their output nowhere else.
//
// It understands the sequences of ECMA-48 and of xterm's ctlseqs: CSI, OSC, DCS, SOS, PM, APM, SS2,
// SS3, two-byte escapes, and C1 controls encoded as UTF-8.
type Transcript struct {
	screen
	primary *screen // the primary screen while the program uses the alternate one, otherwise nil
	spare   []*line // lines of the last alternate screen, to be reused
	state   parserState
	params  []byte // parameters of the control sequence that is being read
	partial []byte // the first bytes of an incomplete character
	last    rune   // the last character, for REP
}

// parserState is the kind of sequence that the next character is part of.
type parserState int

const (
	inText               parserState = iota
	inEscape                         // after ESC
	inEscapeIntermediate             // after ESC and an intermediate character: a final character follows
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

// New returns a Transcript that writes its text to out.
func New(out io.Writer) *Transcript { return &Transcript{screen: newScreen(&output{writer: out}, nil)} }

// Write processes what the agent wrote, in parts of any size. It returns the errors of the
// underlying writer.
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

// Resize sets the terminal's size for what is written from now on; zeros mean that it is unknown.
func (l *Transcript) Resize(columns, rows int) {
	l.resize(columns, rows)
	if l.primary != nil {
		l.primary.resize(columns, rows)
	}
}

// Flush emits the lines above the cursor, for readers that follow a growing log. A line that
// changes after that is emitted once more.
func (l *Transcript) Flush() error {
	if l.primary == nil {
		l.emitAbove()
	}
	return l.out.flush()
}

// Close emits all remaining lines.
func (l *Transcript) Close() error {
	for range l.partial {
		l.handle(utf8.RuneError)
	}
	l.partial = nil
	l.setAlternate(false)
	l.finish()
	return l.out.flush()
}

// SetOutput writes everything from now on to another writer.
func (l *Transcript) SetOutput(out io.Writer) { l.out.writer = out }

// setAlternate switches to the program's alternate screen and back.
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
		l.state = inEscape // terminates any string, as the ESC of ST does
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

// stayWithin returns the state stay if r is in [first, last], otherwise inText.
func stayWithin(r, first, last rune, stay parserState) parserState {
	if r >= first && r <= last {
		return stay
	}
	return inText
}

// c1Control processes a C1 control: one that begins a sequence, or one that moves to another line.
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

// escapeCharacter processes the character after ESC.
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

// oscCharacter processes a character of an OSC. A newline terminates it as well: none is part of
// one, and otherwise everything after an unterminated OSC would be lost.
func (l *Transcript) oscCharacter(r rune) {
	switch r {
	case bel, st:
		l.state = inText
	case '\n':
		l.state = inText
		l.text(r)
	}
}

// csiCharacter processes a character of a CSI sequence.
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

// text processes a character of ordinary text.
func (l *Transcript) text(r rune) {
	if l.c0Control(r) || r == 0x7f {
		return
	}
	l.put(r)
	l.last = r
}

// c0Control processes a C0 control, which takes effect within sequences as well. It returns whether
// r is one.
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

// saveOrRestoreCursor saves the cursor's position on the screen or moves it back there.
func (l *Transcript) saveOrRestoreCursor(save bool) {
	if save {
		l.savedCursor = [2]int{l.row - l.base(), l.column}
		return
	}
	l.moveToCell(max(l.savedCursor[0], 0), l.savedCursor[1])
}

// dispatchCSI executes the control sequence with this final character.
func (l *Transcript) dispatchCSI(final rune) {
	if len(l.params) > 0 && l.params[0] >= '<' {
		if l.params[0] == '?' && (final == 'h' || final == 'l') {
			l.setPrivateModes(final == 'h')
		}
		return // the others are terminal reports
	}
	if n := max(1, l.param(0)); !l.moveCursor(final, n) {
		l.editScreen(final, n)
	}
}

// setPrivateModes sets or resets the private modes that the sequence names.
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

// moveCursor executes a control sequence that moves the cursor. It returns false for any other.
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

// editScreen executes a control sequence that changes the text.
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

// param returns the sequence's i-th number, 0 if it has none, at most maxColumn.
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

// eraseLine erases from the cursor to the end of its line, to its beginning, or the whole line.
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

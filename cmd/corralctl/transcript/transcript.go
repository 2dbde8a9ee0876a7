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
func (t *Transcript) Write(p []byte) (int, error) {
	n := len(p)
	if len(t.partial) > 0 {
		p = append(t.partial, p...)
		t.partial = nil
	}
	for len(p) > 0 && utf8.FullRune(p) {
		r, size := utf8.DecodeRune(p)
		t.handle(r)
		p = p[size:]
	}
	t.partial = append(t.partial, p...)
	return n, t.out.flush()
}

// Resize sets the terminal's size for what is written from now on; zeros mean that it is unknown.
func (t *Transcript) Resize(columns, rows int) {
	t.resize(columns, rows)
	if t.primary != nil {
		t.primary.resize(columns, rows)
	}
}

// Flush emits the lines above the cursor, for readers that follow a growing log. A line that
// changes after that is emitted once more.
func (t *Transcript) Flush() error {
	if t.primary == nil {
		t.emitAbove()
	}
	return t.out.flush()
}

// Close emits all remaining lines.
func (t *Transcript) Close() error {
	for range t.partial {
		t.handle(utf8.RuneError)
	}
	t.partial = nil
	t.setAlternate(false)
	t.finish()
	return t.out.flush()
}

// SetOutput writes everything from now on to another writer.
func (t *Transcript) SetOutput(out io.Writer) { t.out.writer = out }

// setAlternate switches to the program's alternate screen and back.
func (t *Transcript) setAlternate(on bool) {
	switch {
	case on && t.primary == nil:
		primary := t.screen
		primary.emitAbove()
		t.screen = newScreen(primary.out, t.spare)
		t.width, t.height, t.heightKnown = primary.width, primary.height, primary.heightKnown
		t.noWrap, t.primary = primary.noWrap, &primary
		t.moveToRow(t.primary.row - t.primary.base())
	case !on && t.primary != nil:
		first, used := 0, t.usedLines()
		for first < used && t.lines[first].isBlank() {
			first++
		}
		for _, row := range t.lines[first:used] {
			t.emit(row)
		}
		height, noWrap := t.height, t.noWrap
		t.spare, t.screen, t.primary = t.lines, *t.primary, nil
		t.height, t.noWrap = max(height, t.height), noWrap
	}
}

func (t *Transcript) handle(r rune) {
	switch {
	case r == can || r == sub:
		t.state = inText // cancels any sequence
		return
	case r == esc:
		t.state = inEscape // terminates any string, as the ESC of ST does
		return
	case r >= 0x80 && r < 0xa0 && t.state != inString && t.state != inOSC:
		t.c1Control(r)
		return
	}
	switch t.state {
	case inText:
		t.text(r)
	case inEscape:
		t.escapeCharacter(r)
	case inEscapeIntermediate:
		if r >= 0x30 || !t.c0Control(r) {
			t.state = stayWithin(r, 0x20, 0x2f, inEscapeIntermediate)
		}
	case inCSI:
		t.csiCharacter(r)
	case inOSC:
		t.oscCharacter(r)
	case inString:
		if r == st {
			t.state = inText
		}
	case inSingleShift:
		t.state = inText
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
func (t *Transcript) c1Control(c1 rune) {
	t.state = inText
	switch c1 {
	case csi:
		t.state, t.params = inCSI, t.params[:0]
	case osc:
		t.state = inOSC
	case 0x90, 0x98, 0x9e, 0x9f: // DCS, SOS, PM, APM
		t.state = inString
	case 0x8e, 0x8f: // SS2, SS3
		t.state = inSingleShift
	case 0x84: // IND
		t.lineFeed()
	case 0x85: // NEL
		t.lineFeed()
		t.column = 0
	case 0x8d: // RI
		t.reverseLineFeed()
	}
}

// escapeCharacter processes the character after ESC.
func (t *Transcript) escapeCharacter(r rune) {
	switch {
	case t.c0Control(r):
	case r >= 0x20 && r <= 0x2f:
		t.state = inEscapeIntermediate
	case r >= 0x40 && r <= 0x5f:
		t.c1Control(r + 0x40)
	case r == 'c': // RIS
		t.state = inText
		t.setAlternate(false)
		t.clear()
		t.moveToCell(0, 0)
		t.bottom, t.noWrap = 0, false
	case r == '7' || r == '8': // DECSC, DECRC
		t.state = inText
		t.saveOrRestoreCursor(r == '7')
	default:
		t.state = inText
	}
}

// oscCharacter processes a character of an OSC. A newline terminates it as well: none is part of
// one, and otherwise everything after an unterminated OSC would be lost.
func (t *Transcript) oscCharacter(r rune) {
	switch r {
	case bel, st:
		t.state = inText
	case '\n':
		t.state = inText
		t.text(r)
	}
}

// csiCharacter processes a character of a CSI sequence.
func (t *Transcript) csiCharacter(r rune) {
	switch {
	case t.c0Control(r):
	case r >= 0x20 && r <= 0x3f:
		if len(t.params) < maxParams {
			t.params = append(t.params, byte(r))
		}
	case r >= 0x40 && r <= 0x7e:
		t.state = inText
		t.dispatchCSI(r)
	case r != 0x7f:
		t.state = inText
		t.text(r)
	}
}

// text processes a character of ordinary text.
func (t *Transcript) text(r rune) {
	if t.c0Control(r) || r == 0x7f {
		return
	}
	t.put(r)
	t.last = r
}

// c0Control processes a C0 control, which takes effect within sequences as well. It returns whether
// r is one.
func (t *Transcript) c0Control(r rune) bool {
	switch r {
	case '\n', '\v', '\f':
		t.lineFeed()
	case '\r':
		t.column = 0
	case '\b':
		t.column = max(0, t.column-1)
	case '\t':
		t.put(r)
	default:
		return r < 0x20
	}
	return true
}

// saveOrRestoreCursor saves the cursor's position on the screen or moves it back there.
func (t *Transcript) saveOrRestoreCursor(save bool) {
	if save {
		t.savedCursor = [2]int{t.row - t.base(), t.column}
		return
	}
	t.moveToCell(max(t.savedCursor[0], 0), t.savedCursor[1])
}

// dispatchCSI executes the control sequence with this final character.
func (t *Transcript) dispatchCSI(final rune) {
	if len(t.params) > 0 && t.params[0] >= '<' {
		if t.params[0] == '?' && (final == 'h' || final == 'l') {
			t.setPrivateModes(final == 'h')
		}
		return // the others are terminal reports
	}
	if n := max(1, t.param(0)); !t.moveCursor(final, n) {
		t.editScreen(final, n)
	}
}

// setPrivateModes sets or resets the private modes that the sequence names.
func (t *Transcript) setPrivateModes(on bool) {
	for _, mode := range strings.Split(string(t.params[1:]), ";") {
		switch mode {
		case "47", "1047", "1049":
			t.setAlternate(on)
		case "7": // DECAWM
			t.noWrap = !on
		}
	}
}

// moveCursor executes a control sequence that moves the cursor. It returns false for any other.
func (t *Transcript) moveCursor(final rune, n int) bool {
	switch final {
	case 'A', 'F':
		t.up(n)
	case 'B', 'E', 'e':
		t.down(n)
	case 'C', 'a':
		t.moveToColumn(t.column + n)
	case 'D':
		t.moveToColumn(t.column - n)
	case 'G', '`':
		t.moveToColumn(n - 1)
	case 'H', 'f':
		t.moveToCell(n-1, max(1, t.param(1))-1)
	case 'd':
		t.moveToCell(n-1, t.column)
	case 's', 'u':
		t.saveOrRestoreCursor(final == 's')
	default:
		return false
	}
	if final == 'E' || final == 'F' {
		t.column = 0
	}
	return true
}

// editScreen executes a control sequence that changes the text.
func (t *Transcript) editScreen(final rune, n int) {
	first, last := t.region()
	inside := t.row >= first && t.row <= last
	switch final {
	case 'J':
		t.eraseScreen()
	case 'K':
		t.eraseLine()
	case 'L', 'M':
		if inside && final == 'L' {
			t.insertLines(t.row, last, n)
		} else if inside {
			t.deleteLines(t.row, last, n)
		}
	case 'S':
		t.scroll(first, last, n)
	case 'T':
		t.insertLines(first, last, n)
	case 'r':
		t.setRegion()
	case 'P':
		t.deleteCells(n)
	case 'X':
		t.erase(t.column, t.column+n)
	case '@':
		t.insertCells(n)
	case 'b':
		if t.last != 0 {
			t.putRepeated(t.last, n)
		}
	}
}

func (t *Transcript) setRegion() {
	top, bottom := max(1, t.param(0))-1, t.param(1)-1
	if bottom >= t.height && bottom < maxRows && !t.heightKnown {
		t.height = bottom + 1
	}
	if bottom <= top || bottom >= t.height || top == 0 && bottom == t.height-1 {
		top, bottom = 0, 0
	}
	base := t.base()
	t.ensureLines(base + bottom)
	t.top, t.bottom = top, bottom
	t.moveToCell(0, 0)
}

func (t *Transcript) eraseScreen() {
	switch t.param(0) {
	case 0:
		t.eraseBelow()
	case 1:
		t.eraseAbove()
	case 2:
		t.clear()
	}
}

// param returns the sequence's i-th number, 0 if it has none, at most maxColumn.
func (t *Transcript) param(i int) int {
	n := 0
	for _, c := range t.params {
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
func (t *Transcript) eraseLine() {
	switch t.param(0) {
	case 0:
		t.erase(t.column, maxLine)
	case 1:
		t.erase(0, t.column+1)
	case 2:
		t.erase(0, maxLine)
	}
}

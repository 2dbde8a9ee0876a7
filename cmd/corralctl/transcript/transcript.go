// Package transcript turns the bytes that a program wrote to its terminal into readable text.
package transcript

import (
	"bytes"
	"io"
	"unicode/utf8"

	"github.com/corrald/corral/internal/ecma48"
)

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
// It understands the sequences that package ecma48 parses, and C1 controls encoded as UTF-8.
type Transcript struct {
	screen
	primary *screen // the primary screen while the program uses the alternate one, otherwise nil
	spare   []*line // lines of the last alternate screen, to be reused
	parser  ecma48.Parser
	partial []byte // the first bytes of an incomplete character
	last    rune   // the last character, for REP
	shifted bool   // after SS2 or SS3: the next character is part of the sequence
}

// New returns a Transcript that writes its text to out.
func New(out io.Writer) *Transcript { return &Transcript{screen: newScreen(&output{writer: out}, nil)} }

// NewLines returns a Transcript that calls emit for each line. Line has no newline, and is valid
// until emit returns; printed is the time at which the last character of the line was written, as
// set by SetTime.
func NewLines(emit func(line []byte, printed int64)) *Transcript {
	return &Transcript{screen: newScreen(&output{emitLine: emit}, nil)}
}

// SetTime sets the time of what is written from now on, in a unit of the caller; 0 means that it is
// unknown.
func (t *Transcript) SetTime(now int64) { t.out.now = now }

// Write processes what the agent wrote, in parts of any size. It returns the errors of the
// underlying writer.
func (t *Transcript) Write(p []byte) (int, error) {
	n := len(p)
	if len(t.partial) > 0 {
		p = append(t.partial, p...)
		t.partial = nil
	}
	end := wholeCharacters(p)
	t.parse(p[:end])
	t.partial = append(t.partial, p[end:]...)
	return n, t.out.flush()
}

// wholeCharacters returns the length of p without an incomplete character at its end.
func wholeCharacters(p []byte) int {
	for start := len(p) - 1; start >= 0 && start > len(p)-utf8.UTFMax; start-- {
		if utf8.RuneStart(p[start]) && !utf8.FullRune(p[start:]) {
			return start
		}
	}
	return len(p)
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
	t.parse(t.partial)
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

// parse processes whole characters.
func (t *Transcript) parse(b []byte) {
	for len(b) > 0 {
		token, n := t.parser.Next(b)
		if token != ecma48.Text {
			t.shifted = false
		}
		switch token {
		case ecma48.Text:
			n = t.text(b[:n])
		case ecma48.Control:
			t.c0Control(rune(b[n-1]))
		case ecma48.EscapeSequence:
			t.dispatchEscape(t.parser.Final())
		case ecma48.ControlSequence:
			t.dispatchCSI()
		case ecma48.StringPart:
			n = t.skipString(b[:n])
		}
		b = b[n:]
	}
}

// text processes text up to the end of its first C1 control, and returns how many bytes it
// processed.
func (t *Transcript) text(b []byte) int {
	for at := 0; at < len(b); {
		if n := lengthOfASCII(b[at:]); n > 0 && !t.shifted {
			t.putASCII(b[at : at+n])
			at += n
			t.last = rune(b[at-1])
			continue
		}
		r, size := utf8.DecodeRune(b[at:])
		at += size
		switch {
		case r >= 0x80 && r < 0xa0:
			t.parse([]byte{'\x1b', byte(r) - 0x40}) // ECMA-48, 5.3: the same function
			return at
		case t.shifted:
			t.shifted = false
		case !t.c0Control(r) && r != 0x7f:
			t.put(r)
			t.last = r
		}
	}
	return len(b)
}

// lengthOfASCII returns how many bytes at the beginning of b are printable ASCII characters.
func lengthOfASCII(b []byte) int {
	for i, c := range b {
		if c < 0x20 || c >= 0x7f {
			return i
		}
	}
	return len(b)
}

// skipString returns how many bytes of a control string's content are to be skipped: up to an ST
// that is encoded as UTF-8. A newline terminates an OSC as well: none is part of one, and otherwise
// everything after an unterminated OSC would be lost.
func (t *Transcript) skipString(content []byte) int {
	const st = "\u009c"
	before, _, terminated := bytes.Cut(content, []byte(st))
	if i := bytes.IndexByte(before, '\n'); i >= 0 && t.parser.Introducer() == ']' {
		t.parser.Reset()
		return i
	}
	if !terminated {
		return len(content)
	}
	t.parser.Reset()
	return len(before) + len(st)
}

// dispatchEscape executes the escape sequence with this final character.
func (t *Transcript) dispatchEscape(final byte) {
	switch final {
	case 'D': // IND
		t.lineFeed()
	case 'E': // NEL
		t.lineFeed()
		t.column = 0
	case 'M': // RI
		t.reverseLineFeed()
	case 'N', 'O': // SS2, SS3
		t.shifted = true
	case 'c': // RIS
		t.setAlternate(false)
		t.clear()
		t.moveToCell(0, 0)
		t.bottom, t.noWrap = 0, false
	case '7', '8': // DECSC, DECRC
		t.saveOrRestoreCursor(final == '7')
	}
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

// dispatchCSI executes the control sequence that was parsed.
func (t *Transcript) dispatchCSI() {
	switch marker, final := t.parser.Marker(), t.parser.Final(); {
	case marker == '?' && (final == 'h' || final == 'l'):
		t.setPrivateModes(t.parser.Params(), final == 'h')
	case marker != 0: // terminal reports
	default:
		if n := max(1, t.param(0)); !t.moveCursor(final, n) {
			t.editScreen(final, n)
		}
	}
}

// setPrivateModes sets or resets these private modes.
func (t *Transcript) setPrivateModes(modes ecma48.Params, on bool) {
	for len(modes) > 0 {
		var mode int
		switch mode, modes = modes.Cut(); mode {
		case 47, 1047, 1049:
			t.setAlternate(on)
		case 7: // DECAWM
			t.noWrap = !on
		}
	}
}

// moveCursor executes a control sequence that moves the cursor. It returns false for any other.
func (t *Transcript) moveCursor(final byte, n int) bool {
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
func (t *Transcript) editScreen(final byte, n int) {
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
func (t *Transcript) param(i int) int { return min(t.parser.Params().At(i), maxColumn) }

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

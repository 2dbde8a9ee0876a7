package main

import (
	"unicode/utf8"

	"github.com/corrald/corral/internal/ecma48"
)

// textScreen is the text that a terminal shows: without colours and modes, and with all characters
// of equal width. Sequences that it does not know are ignored. It is not meant for display, only
// for finding a line of text however the program has drawn it.
type textScreen struct {
	rows, cols int
	cells      []rune // row by row; 0 is a blank cell
	row, col   int
	top, end   int // the rows that scroll: from top to before end
	savedRow   int
	savedCol   int

	parser      ecma48.Parser
	partialRune [utf8.UTFMax]byte
	partialLen  int
}

// maxSide is the limit for rows and columns.
const maxSide = 500

func newTextScreen(rows, cols int) textScreen {
	t := textScreen{rows: min(max(rows, 1), maxSide), cols: min(max(cols, 1), maxSide)}
	t.cells, t.end = make([]rune, t.rows*t.cols), t.rows
	return t
}

// resize keeps the upper left corner. Most programs redraw after a resize; the others have their
// text there.
func (t *textScreen) resize(rows, cols int) {
	next := newTextScreen(rows, cols)
	for row := range min(t.rows, next.rows) {
		copy(next.cells[row*next.cols:(row+1)*next.cols], t.cells[row*t.cols:(row+1)*t.cols])
	}
	t.rows, t.cols, t.cells, t.top, t.end = next.rows, next.cols, next.cells, next.top, next.end
	t.moveTo(t.row, t.col)
}

// write updates the screen for output, which may come in pieces.
func (t *textScreen) write(b []byte) {
	for len(b) > 0 {
		token, n := t.parser.Next(b)
		switch token {
		case ecma48.Text:
			t.writeText(b[:n])
		case ecma48.Control:
			t.handleCharacter(b[n-1])
		case ecma48.EscapeSequence:
			t.handleEscape(t.parser.Final())
		case ecma48.ControlSequence:
			if marker := t.parser.Marker(); marker == '?' {
				t.handleMode(t.parser.Params(), t.parser.Final())
			} else if marker == 0 {
				t.handleControl(t.parser.Params(), t.parser.Final())
			}
		}
		b = b[n:]
	}
}

func (t *textScreen) writeText(b []byte) {
	for _, c := range b {
		if c < ' ' {
			t.handleCharacter(c)
		} else {
			t.writeByte(c)
		}
	}
}

func (t *textScreen) handleCharacter(c byte) {
	switch c {
	case '\r':
		t.col = 0
	case '\n', '\v', '\f':
		t.nextRow()
	case '\b':
		t.moveTo(t.row, t.col-1)
	case '\t':
		t.moveTo(t.row, t.col|7+1)
	}
}

func (t *textScreen) handleEscape(c byte) {
	switch c {
	case '7':
		t.savedRow, t.savedCol = t.row, t.col
	case '8':
		t.moveTo(t.savedRow, t.savedCol)
	case 'D', 'E':
		t.nextRow()
	case 'M':
		if t.row == t.top {
			t.scroll(t.top, -1)
		} else {
			t.moveTo(t.row-1, t.col)
		}
	case 'c':
		t.reset()
	}
}

// reset makes the screen blank.
func (t *textScreen) reset() {
	t.top, t.end = 0, t.rows
	t.clear(0, len(t.cells))
	t.moveTo(0, 0)
}

// writeByte reads a byte of a character and writes the character once it is complete.
func (t *textScreen) writeByte(c byte) {
	if c >= utf8.RuneSelf || t.partialLen > 0 {
		if utf8.RuneStart(c) {
			t.partialLen = 0
		}
		t.partialRune[t.partialLen] = c
		t.partialLen++
		if !utf8.FullRune(t.partialRune[:t.partialLen]) {
			return
		}
	} else {
		t.partialRune[0], t.partialLen = c, 1
	}
	r, _ := utf8.DecodeRune(t.partialRune[:t.partialLen])
	t.partialLen = 0
	if t.col >= t.cols {
		t.col = 0
		t.nextRow()
	}
	t.cells[t.row*t.cols+t.col] = r
	t.col++
}

// nextRow moves to the next row. At the end of the rows that scroll, it scrolls.
func (t *textScreen) nextRow() {
	if t.row+1 == t.end {
		t.scroll(t.top, 1)
	} else {
		t.row = min(t.row+1, t.rows-1)
	}
}

// scroll moves the rows from the given one to the end of those that scroll up by n rows, or down if
// n is negative. Rows that become free are blank.
func (t *textScreen) scroll(from, n int) {
	if from < t.top || from >= t.end {
		return
	}
	cells := t.cells[from*t.cols : t.end*t.cols]
	moved := min(max(n, -n)*t.cols, len(cells))
	if n > 0 {
		copy(cells, cells[moved:])
		clear(cells[len(cells)-moved:])
	} else {
		copy(cells[moved:], cells)
		clear(cells[:moved])
	}
}

// shift moves the rest of the row from the cursor on by n cells to the right, or to the left if n
// is negative. Cells that become free are blank.
func (t *textScreen) shift(n int) {
	begin := t.row*t.cols + min(t.col, t.cols-1)
	cells := t.cells[begin : (t.row+1)*t.cols]
	moved := min(max(n, -n), len(cells))
	if n > 0 {
		copy(cells[moved:], cells)
		clear(cells[:moved])
	} else {
		copy(cells, cells[moved:])
		clear(cells[len(cells)-moved:])
	}
}

func (t *textScreen) moveTo(row, col int) {
	t.row, t.col = min(max(row, 0), t.rows-1), min(max(col, 0), t.cols-1)
}

func (t *textScreen) clear(from, to int) { clear(t.cells[max(from, 0):min(to, len(t.cells))]) }

// handleMode handles the switch to another screen, which is blank.
func (t *textScreen) handleMode(params ecma48.Params, final byte) {
	if mode := params.At(0); (final == 'h' || final == 'l') && (mode == 1049 || mode == 1047 || mode == 47) {
		t.reset()
	}
}

func (t *textScreen) handleControl(params ecma48.Params, final byte) {
	first := params.At(0)
	count := max(first, 1)
	here := t.row*t.cols + min(t.col, t.cols-1)
	begin := t.row * t.cols
	switch final {
	case 'A':
		t.moveTo(t.row-count, t.col)
	case 'B':
		t.moveTo(t.row+count, t.col)
	case 'C':
		t.moveTo(t.row, t.col+count)
	case 'D':
		t.moveTo(t.row, t.col-count)
	case 'E':
		t.moveTo(t.row+count, 0)
	case 'F':
		t.moveTo(t.row-count, 0)
	case 'G':
		t.moveTo(t.row, count-1)
	case 'H', 'f':
		t.moveTo(count-1, max(params.At(1), 1)-1)
	case 'd':
		t.moveTo(count-1, t.col)
	case 'J':
		t.erase(first, here, 0, len(t.cells))
	case 'K':
		t.erase(first, here, begin, begin+t.cols)
	case 'L':
		t.scroll(t.row, -count)
	case 'M':
		t.scroll(t.row, count)
	case 'S':
		t.scroll(t.top, count)
	case 'T':
		t.scroll(t.top, -count)
	case '@':
		t.shift(count)
	case 'P':
		t.shift(-count)
	case 'r':
		t.setScrolledRows(first, params.At(1))
	case 'X':
		t.clear(here, min(here+count, begin+t.cols))
	}
}

// setScrolledRows sets the first and the last of the rows that scroll, counted from 1; 0 is the
// first, or the last, of the screen. An empty range is ignored (DECSTBM).
func (t *textScreen) setScrolledRows(first, last int) {
	first, last = max(first, 1), min(last, t.rows)
	if last == 0 {
		last = t.rows
	}
	if first < last {
		t.top, t.end = first-1, last
		t.moveTo(0, 0)
	}
}

// erase clears the cells between from and to: those from here on, those up to here, or all.
func (t *textScreen) erase(which, here, from, to int) {
	switch which {
	case 0:
		from = here
	case 1:
		to = here + 1
	case 3: // scrollback
		return
	}
	t.clear(from, to)
}

package transcript

import (
	"slices"
	"sync/atomic"

	"github.com/charmbracelet/x/ansi"
)

// These limits bound the memory that a few bytes from an agent can allocate.
const (
	// columns that the cursor can be moved to, and characters that can be moved or repeated at once
	maxColumn  = 500
	maxLine    = 4 << 10  // cells of a line that can be overwritten; a longer line is emitted in parts
	maxRows    = 200      // lines that can be overwritten
	maxCells   = 1 << 18  // cells in them
	maxPending = 32 << 10 // bytes that are buffered before they are written
	maxMarks   = 64       // bytes of the marks that combine with one character
	// rows of the screen until the agent is seen to use more: a session has this many while no client
	// is attached
	minHeight = 40
)

// screen holds the lines that an agent can still overwrite. The last ones are those that its
// terminal shows. Lines that scroll off the screen are emitted to the output.
type screen struct {
	out         *output
	lines       []*line // non-nil lines between length and capacity are reused
	cells       int     // cells in lines, approximately: erased cells count until their line is emitted
	row, column int     // of the cursor; row is an index into lines
	savedCursor [2]int
	width       int     // columns of the terminal; 0 if unknown: lines are then not wrapped
	height      int     // rows of the terminal, as far as they are known
	heightKnown bool    // resize has set the height: it is not an estimate
	noWrap      bool    // characters that do not fit into a line overwrite its last column (DECAWM is off)
	top, bottom int     // the scroll region, in rows of the terminal; bottom is 0 if there is none
	removed     []*line // scratch memory of deleteLines and insertLines: the lines that were removed
}

// newScreen returns an empty screen. It reuses the memory of lines, those of an earlier screen, if
// any.
func newScreen(out *output, lines []*line) screen {
	s := screen{out: out, lines: lines[:0], height: minHeight}
	s.ensureLines(0)
	return s
}

// base returns the index of the line in the terminal's first row.
func (s *screen) base() int { return max(0, len(s.lines)-s.height) }

// region returns the indices of the first and the last line of the scroll region.
func (s *screen) region() (first, last int) {
	if s.bottom == 0 {
		return s.base(), s.base() + s.height - 1
	}
	return s.base() + s.top, s.base() + s.bottom
}

// emit writes a line to the output, unless it was emitted before and has not changed since.
func (s *screen) emit(l *line) {
	if l.emitted && !l.changed {
		return
	}
	if l.emitted && (l.isBlank() || string(l.text(nil)) == l.emittedText) {
		return
	}
	s.out.endLine(l)
	s.out.add(l)
	if l.wrapped {
		s.out.unterminated = l
	} else {
		s.out.newline()
	}
	s.out.flushIfLarge()
}

// cursorLine returns the line that the cursor is in and marks it as changed.
func (s *screen) cursorLine() *line {
	l := s.lines[s.row]
	l.changed = true
	return l
}

// emitFirst emits the first n lines and removes them from the screen.
func (s *screen) emitFirst(n int) {
	s.removed = append(s.removed[:0], s.lines[:n]...)
	copy(s.lines, s.lines[n:])
	s.lines = s.lines[:len(s.lines)-n]
	for i, l := range s.removed {
		s.emit(l)
		s.cells -= len(l.cells)
		if l.wrapped { // its continuation refers to it
			l = nil
		}
		s.lines[len(s.lines) : len(s.lines)+n][i] = l
	}
	s.row -= n
}

// emitAbove emits all lines above the cursor. A line that changes after that is emitted once more.
func (s *screen) emitAbove() {
	for _, l := range s.lines[:s.row] {
		if !l.emitted || l.changed {
			s.emit(l)
			l.emitted, l.changed, l.emittedText = true, false, string(l.text(nil))
		}
	}
}

// usedLines returns the number of lines without trailing blank ones.
func (s *screen) usedLines() int {
	n := len(s.lines)
	for n > 0 && s.lines[n-1].isBlank() {
		n--
	}
	return n
}

// finish emits all remaining lines, the last one without a newline and only if its text was not
// emitted already.
func (s *screen) finish() {
	last := max(s.usedLines()-1, s.row)
	for _, l := range s.lines[:last] {
		s.emit(l)
	}
	if text := s.lines[last].text(nil); string(text) != s.lines[last].emittedText {
		s.out.endLine(s.lines[last])
		s.out.add(s.lines[last])
	}
	s.out.endLine(nil)
	if s.out.emitLine != nil && len(s.out.pending) > 0 {
		s.out.newline()
	}
	s.lines, s.row, s.column, s.cells = []*line{{}}, 0, 0, 0
}

// moveToRow moves the cursor to a line, and appends lines until that line exists.
func (s *screen) moveToRow(row int) {
	s.row = max(row, 0)
	s.ensureLines(s.row)
	s.enforceLimits()
}

// enforceLimits emits lines until the screen is within its limits. The cursor's line always stays.
func (s *screen) enforceLimits() {
	if n := len(s.lines) - maxRows; n > 0 {
		s.emitFirst(min(n, s.row))
		s.lines = s.lines[:min(len(s.lines), maxRows)]
	}
	if s.cells <= maxCells {
		return
	}
	s.cells = 0
	for _, l := range s.lines {
		s.cells += len(l.cells)
	}
	if s.cells > maxCells {
		s.emitFirst(s.row)
	}
}

// resize sets the terminal's size for what the program writes from now on. Existing lines are not
// changed.
func (s *screen) resize(columns, rows int) {
	s.heightKnown = rows > 0
	if s.heightKnown {
		s.height = min(rows, maxRows)
	}
	if s.width = max(columns, 0); s.width > maxColumn {
		s.width = 0
	}
	if s.width > 0 {
		s.column = min(s.column, s.width)
	}
	s.top, s.bottom = 0, 0
}

// moveToCell moves the cursor to a cell of the terminal. If the terminal's height is unknown, a row
// below the assumed height raises it. A row beyond maxRows does not: programs address such a row to
// learn the size of the terminal.
func (s *screen) moveToCell(row, column int) {
	if row >= s.height && row < maxRows && !s.heightKnown {
		s.height = row + 1
	}
	s.moveToRow(s.base() + min(row, s.height-1))
	s.moveToColumn(column)
}

func (s *screen) moveToColumn(column int) {
	last := maxColumn
	if s.width > 0 {
		last = s.width - 1
	}
	s.column = min(max(column, 0), last)
	s.cursorLine().moved = true
}

// up and down move the cursor without scrolling.
func (s *screen) up(n int) { s.moveToRow(s.row - n) }

func (s *screen) down(n int) { s.moveToRow(max(s.row, min(s.row+n, s.base()+s.height-1))) }

// lineFeed moves the cursor to the next line. At the end of the scroll region it scrolls.
func (s *screen) lineFeed() {
	if first, last := s.region(); s.bottom != 0 && s.row == last {
		s.scroll(first, last, 1)
		return
	}
	s.moveToRow(s.row + 1)
}

// reverseLineFeed moves the cursor to the previous line. At the beginning of the scroll region it
// scrolls down.
func (s *screen) reverseLineFeed() {
	if first, last := s.region(); s.row == first {
		s.insertLines(first, last, 1)
		return
	}
	s.up(1)
}

// scroll emits the first n of the lines from first to last, after those above the screen, and
// appends blank lines at the end of the region.
func (s *screen) scroll(first, last, n int) {
	if left := min(s.base(), s.row, first); left > 0 {
		s.emitFirst(left)
		first, last = first-left, last-left
	}
	n = min(n, last-first+1)
	s.ensureLines(last)
	for _, l := range s.lines[first : first+n] {
		s.emit(l)
	}
	s.deleteLines(first, last, n)
}

// deleteLines removes n lines at index at. The lines from there to last move up, and blank lines
// take their places.
func (s *screen) deleteLines(at, last, n int) {
	s.ensureLines(last)
	n = min(n, last-at+1)
	if n <= 0 {
		return
	}
	lines := s.lines[at : last+1]
	s.removed = append(s.removed[:0], lines[:n]...)
	copy(lines, lines[n:])
	s.reuse(lines[len(lines)-n:])
}

// insertLines inserts n blank lines at index at. The lines from there to last move down, and the
// last n of them are removed.
func (s *screen) insertLines(at, last, n int) {
	s.ensureLines(last)
	n = min(n, last-at+1)
	if n <= 0 {
		return
	}
	lines := s.lines[at : last+1]
	s.removed = append(s.removed[:0], lines[len(lines)-n:]...)
	copy(lines[n:], lines)
	s.reuse(lines[:n])
}

// reuse stores the removed lines in lines, as blank ones.
func (s *screen) reuse(lines []*line) {
	for i, l := range s.removed {
		s.cells -= len(l.cells)
		l.reset()
		lines[i] = l
	}
}

// ensureLines appends lines until index last exists.
func (s *screen) ensureLines(last int) {
	for n := len(s.lines); n <= last; n++ {
		if n < cap(s.lines) && s.lines[:n+1][n] != nil {
			s.lines = s.lines[:n+1]
			s.lines[n].reset()
		} else {
			s.lines = append(s.lines, &line{})
		}
	}
}

// clear emits what the screen shows and starts a blank screen. The cursor keeps its position.
func (s *screen) clear() {
	row, column := s.row-s.base(), s.column
	for _, l := range s.lines[:s.usedLines()] {
		s.emit(l)
	}
	s.lines, s.cells = s.lines[:min(max(row, 0)+1, len(s.lines))], 0
	for _, l := range s.lines {
		l.reset()
	}
	s.moveToRow(row)
	s.column = column
	s.cursorLine().moved = true
}

// eraseBelow and eraseAbove erase the lines below and above the cursor.
func (s *screen) eraseBelow() {
	if s.row <= s.base() && s.column == 0 {
		s.clear()
		return
	}
	s.erase(s.column, maxLine)
	s.lines = s.lines[:s.row+1]
}

func (s *screen) eraseAbove() {
	for _, l := range s.lines[min(s.base(), s.row):s.row] {
		l.cells, l.moved, l.changed, l.wrapped = l.cells[:0], true, true, false
	}
	s.erase(0, s.column+1)
}

// width returns the number of columns that a character takes: 0 for one that combines with the
// character before it.
func width(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case int(r) >= len(knownWidths):
		return ansi.StringWidth(string(r))
	}
	known := &knownWidths[r]
	if known.Load() == 0 {
		known.Store(uint32(ansi.StringWidth(string(r))) + 1)
	}
	return int(known.Load()) - 1
}

// knownWidths are the widths of the characters of the Basic Multilingual Plane, plus 1; 0 if width
// was not called for the character yet. Several transcripts may be written at the same time.
var knownWidths [1 << 16]atomic.Uint32

// put writes a character at the cursor.
func (s *screen) put(r rune) { s.putWide(r, width(r)) }

// putASCII writes printable ASCII characters at the cursor, like put for each of them.
func (s *screen) putASCII(text []byte) {
	for len(text) > 0 {
		end := maxLine
		if s.width > 0 {
			s.wrapFor(1)
			end = s.width
		}
		l := s.cursorLine()
		l.printed = s.out.now
		before := len(l.cells)
		s.column = min(s.column, before+maxColumn)
		n := min(len(text), end-s.column)
		end = s.column + n
		l.grow(s.column)
		l.splitWide(s.column)
		l.splitWide(end)
		if end > len(l.cells) {
			l.cells = slices.Grow(l.cells, end-len(l.cells))[:end]
		}
		cells := l.cells[s.column:end]
		for i, c := range text[:n] {
			cells[i] = cell{r: rune(c)}
		}
		s.column = end
		s.cells += len(l.cells) - before
		if len(l.cells) >= maxLine {
			s.emitPart(l)
		}
		text = text[n:]
	}
}

// putRepeated writes a character n times, but not beyond the end of the line, as tmux does. It
// ignores characters that combine with another, because repeating them changes nothing visible.
func (s *screen) putRepeated(r rune, n int) {
	last := maxColumn
	if s.width > 0 {
		last = s.width
	}
	for width := width(r); width > 0 && n > 0 && s.column < last; n-- {
		s.putWide(r, width)
	}
}

func (s *screen) putWide(r rune, width int) {
	if s.width > 0 && r != '\t' && width > 0 {
		s.wrapFor(width)
	}
	l := s.cursorLine()
	l.printed = s.out.now
	switch {
	case r == '\t':
		if width = s.tabWidth(); width == 0 {
			return
		}
	case width == 0:
		l.combine(s.column, r)
		return
	}
	if r == '\t' && s.column < len(l.cells) { // a tab moves the cursor over existing characters
		s.column = min(s.column+width, maxLine-1)
		return
	}
	before := len(l.cells)
	s.column = min(s.column, before+maxColumn)
	l.grow(s.column + width)
	l.splitWide(s.column)
	l.splitWide(s.column + width)
	l.cells[s.column] = cell{r: r}
	for i := 1; i < width; i++ {
		l.cells[s.column+i] = cell{}
	}
	s.column += width
	s.cells += len(l.cells) - before
	if len(l.cells) >= maxLine {
		s.emitPart(l)
	}
}

// wrapFor moves the cursor to the next line if a character of that width does not fit into this
// one. Like the terminal, it does so when that character arrives and not before.
func (s *screen) wrapFor(width int) {
	switch {
	case s.column+width <= s.width || width > s.width:
	case s.noWrap:
		s.column = s.width - width
	default:
		from := s.cursorLine()
		from.wrapped = true
		s.lineFeed()
		s.column = 0
		s.cursorLine().continues = from
	}
}

// tabWidth returns the number of columns to the next tab stop or to the last column.
func (s *screen) tabWidth() int {
	width := 8 - s.column%8
	if s.width > 0 {
		width = max(0, min(width, s.width-1-s.column))
	}
	return width
}

// emitPart emits the text so far of a line that is too long to keep.
func (s *screen) emitPart(l *line) {
	s.emitFirst(s.row)
	l.moved = false
	s.out.add(l)
	s.out.flushIfLarge()
	s.cells -= len(l.cells)
	*l = line{}
	s.column = 0
}

// erase blanks the columns [from, to) of the cursor's line.
func (s *screen) erase(from, to int) {
	l := s.cursorLine()
	l.moved = true
	l.splitWide(from)
	l.splitWide(to)
	if to >= len(l.cells) {
		l.cells, l.wrapped = l.cells[:min(from, len(l.cells))], false
		return
	}
	for i := from; i < to; i++ {
		l.cells[i] = cell{r: ' '}
	}
}

var blanks = slices.Repeat([]cell{{r: ' '}}, maxColumn)

// deleteCells removes n cells at the cursor, insertCells inserts n blank ones.
func (s *screen) deleteCells(n int) {
	l := s.cursorLine()
	from := min(s.column, len(l.cells))
	to := min(from+n, len(l.cells))
	l.splitWide(from)
	l.splitWide(to)
	l.cells = slices.Delete(l.cells, from, to)
	l.moved = true
}

func (s *screen) insertCells(n int) {
	l := s.cursorLine()
	if s.column >= len(l.cells) || len(l.cells) > maxColumn {
		return
	}
	l.splitWide(s.column)
	l.cells = slices.Insert(l.cells, s.column, blanks[:n]...)
	if s.width > 0 && len(l.cells) > s.width {
		l.splitWide(s.width)
		l.cells = l.cells[:s.width]
	}
	l.moved = true
	s.cells += n
}

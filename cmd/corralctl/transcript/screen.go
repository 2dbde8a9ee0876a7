package transcript

import (
	"io"
	"slices"

	"github.com/charmbracelet/x/ansi"
)

// The bounds of what a few bytes of an agent may make grow.
const (
	maxColumn  = 500      // where the cursor can be moved to, and characters be moved and repeated
	maxLine    = 4 << 10  // cells of a line that are kept to be written over; a longer one is passed on in parts
	maxRows    = 200      // lines that are kept to be written over
	maxCells   = 1 << 18  // cells in them
	maxPending = 32 << 10 // bytes that are gathered before they are passed on
	maxMarks   = 64       // bytes of what combines with one character
	minHeight  = 40       // rows of the screen, until the agent is seen to use more: a session has these while nobody is attached
)

// output is where lines go that are passed on: together, at the end of what was read together.
type output struct {
	writer       io.Writer
	pending      []byte
	unterminated *line // the last one that was passed on, if it goes on in another: it got no end yet
	err          error // of to; sticky
}

// endLine ends what is open, unless l is what it goes on in.
func (o *output) endLine(l *line) {
	if o.unterminated != nil && (l == nil || l.continues != o.unterminated) {
		o.pending = append(o.pending, '\n')
	}
	o.unterminated = nil
}

func (o *output) flush() error {
	if o.err == nil && len(o.pending) > 0 {
		_, o.err = o.writer.Write(o.pending)
	}
	o.pending = o.pending[:0]
	return o.err
}

func (o *output) flushIfLarge() {
	if len(o.pending) > maxPending {
		_ = o.flush() // the error is kept
	}
}

// screen is the lines that an agent can still write over, of which the last are what its terminal
// shows. Lines that leave it are passed on.
type screen struct {
	out         *output
	lines       []*line // those between its length and its capacity, as far as there are any, are used again
	cells       int     // in lines, about: what was erased is counted until the line leaves
	row, column int     // of the cursor; row is an index of lines
	savedCursor [2]int
	width       int     // columns of the terminal, 0 if that is not known: then no line is too long
	height      int     // rows of the terminal, as far as it is known
	heightKnown bool    // it is known for sure
	noWrap      bool    // what does not fit into a line stays in its last column (DECAWM is off)
	top, bottom int     // of the scroll region, in rows of the terminal; bottom is 0 if there is none
	removed     []*line // out of those that are moved
}

// newScreen takes the lines of a screen that nobody needs any more, if there was one.
func newScreen(out *output, lines []*line) screen {
	s := screen{out: out, lines: lines[:0], height: minHeight}
	s.ensureLines(0)
	return s
}

// base is the line that is in the terminal's first row.
func (s *screen) base() int { return max(0, len(s.lines)-s.height) }

// region returns the lines between which is scrolled, the last one included.
func (s *screen) region() (first, last int) {
	if s.bottom == 0 {
		return s.base(), s.base() + s.height - 1
	}
	return s.base() + s.top, s.base() + s.bottom
}

// emit passes a line on, unless that was done and it has not changed since.
func (s *screen) emit(l *line) {
	if l.emitted && !l.changed {
		return
	}
	before, open := len(s.out.pending), s.out.unterminated
	s.out.endLine(l)
	begin := len(s.out.pending)
	text := l.text(s.out.pending)
	switch {
	case l.emitted && (string(text[begin:]) == l.emittedText || l.isBlank()):
		s.out.pending, s.out.unterminated = s.out.pending[:before], open
	case l.wrapped:
		s.out.pending, s.out.unterminated = text, l
	default:
		s.out.pending = append(text, '\n')
	}
	s.out.flushIfLarge()
}

// cursorLine is the cursor's line, to be changed.
func (s *screen) cursorLine() *line {
	l := s.lines[s.row]
	l.changed = true
	return l
}

// emitFirst passes the first n lines on and forgets them.
func (s *screen) emitFirst(n int) {
	for _, l := range s.lines[:n] {
		s.emit(l)
		s.cells -= len(l.cells)
	}
	s.lines = slices.Delete(s.lines, 0, n)
	s.row -= n
}

// emitAbove passes on all lines above the cursor. What is changed later of them is passed on once
// more.
func (s *screen) emitAbove() {
	for _, l := range s.lines[:s.row] {
		if !l.emitted || l.changed {
			s.emit(l)
			l.emitted, l.changed, l.emittedText = true, false, string(l.text(nil))
		}
	}
}

// usedLines returns how many lines there are, without blank ones at the end.
func (s *screen) usedLines() int {
	n := len(s.lines)
	for n > 0 && s.lines[n-1].isBlank() {
		n--
	}
	return n
}

// finish passes on all that is left, the last line without an end if it has none.
func (s *screen) finish() {
	last := max(s.usedLines()-1, s.row)
	for _, l := range s.lines[:last] {
		s.emit(l)
	}
	s.emitRest(s.lines[last])
	s.out.endLine(nil)
	s.lines, s.row, s.column, s.cells = []*line{{}}, 0, 0, 0
}

// emitRest passes on a line that has no end, unless that was done.
func (s *screen) emitRest(l *line) {
	if text := l.text(nil); string(text) != l.emittedText {
		s.out.endLine(l)
		s.out.pending = append(s.out.pending, text...)
	}
}

// moveToRow moves the cursor to a line, which is made if there is none yet.
func (s *screen) moveToRow(row int) {
	s.row = max(row, 0)
	s.ensureLines(s.row)
	s.enforceLimits()
}

// flushIfLarge keeps no more lines than can be kept, and the cursor's in any case.
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

// resize gives the terminal another size, as it is for the program from now on. What was written
// before stays as it is.
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

// moveToCell moves the cursor to a place on the terminal. Programs that ask for a far one want to know
// how large it is.
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

// lineFeed moves the cursor to the next line, and scrolls at the end of the region.
func (s *screen) lineFeed() {
	if first, last := s.region(); s.bottom != 0 && s.row == last {
		s.scroll(first, last, 1)
		return
	}
	s.moveToRow(s.row + 1)
}

// reverseLineFeed moves the cursor to the line before, and scrolls at the begin of the region.
func (s *screen) reverseLineFeed() {
	if first, last := s.region(); s.row == first {
		s.insertLines(first, last, 1)
		return
	}
	s.up(1)
}

// scroll passes on the first n of the lines from first to last, after those that have left the
// screen, and makes room at their end.
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

// deleteLines takes n lines at row at out of those up to last, and makes room at their end.
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

// insertLines makes room at row at, by as much of the lines up to last.
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

// reuse puts the lines that are gone in the place of others, as new ones.
func (s *screen) reuse(lines []*line) {
	for i, l := range s.removed {
		s.cells -= len(l.cells)
		l.reset()
		lines[i] = l
	}
}

// ensureLines makes the lines up to last.
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

// clear passes on what the screen shows, and begins an empty one with the cursor where it is.
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

// below and above erase the lines after and before the cursor's.
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

// width is how many columns a character takes; none is that of one that combines with the one
// before.
func width(r rune) int {
	if r < 0x300 {
		return 1
	}
	return ansi.StringWidth(string(r))
}

// put writes a character at the cursor.
func (s *screen) put(r rune) { s.putWide(r, width(r)) }

// putRepeated writes a character n times, to the end of the line at most, as tmux does. Of one that
// combines with another, more would not be seen.
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
	switch {
	case r == '\t':
		if width = s.tabWidth(); width == 0 {
			return
		}
	case width == 0:
		l.combine(s.column, r)
		return
	}
	if r == '\t' && s.column < len(l.cells) { // it moves over what is there
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

// wrapFor goes on in the next line if a character does not fit into this one, as the terminal
// does: once there is such a character, and not before.
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

// tabWidth is how many columns it is to the next tab stop, or to the last column.
func (s *screen) tabWidth() int {
	width := 8 - s.column%8
	if s.width > 0 {
		width = max(0, min(width, s.width-1-s.column))
	}
	return width
}

// emitPart passes on what there is of a line that is too long to be kept.
func (s *screen) emitPart(l *line) {
	s.emitFirst(s.row)
	l.moved = false
	s.out.pending = l.text(s.out.pending)
	s.out.flushIfLarge()
	s.cells -= len(l.cells)
	*l = line{}
	s.column = 0
}

// erase blanks the columns of the cursor's line from and up to, but not including, to.
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

// deleteCells takes n characters out of the cursor's line, insertCells makes room for n.
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

package transcript

import (
	"io"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// The bounds of what a few bytes of an agent may make grow.
const (
	maxColumn = 500      // where the cursor can be moved to, and characters be moved and repeated
	maxLine   = 16 << 10 // cells of a line that are kept to be written over; a longer one is passed on in parts
	maxRows   = 200      // lines that are kept to be written over
	maxCells  = 1 << 18  // cells in them
	maxMarks  = 64       // bytes of what combines with one character
	minHeight = 40       // rows of the screen, until the agent is seen to use more: a session has these while nobody is attached
)

// cell is one column of a line.
type cell struct {
	r     rune  // 0 for the other columns of a wide character or a tab
	marks int32 // the place in line.marks, from 1 on, of what combines with it; 0 for nothing
}

// line is one line that can still be written over.
type line struct {
	cells []cell
	marks []string
	moved bool   // the cursor was moved in it, so blanks at its end mean nothing
	shown string // what was passed on of it already
	told  bool   // something was
}

func (l *line) text() string {
	var b strings.Builder
	for _, c := range l.cells {
		if c.r != 0 {
			b.WriteRune(c.r)
			if c.marks > 0 {
				b.WriteString(l.marks[c.marks-1])
			}
		}
	}
	if l.moved {
		return strings.TrimRight(b.String(), " ")
	}
	return b.String()
}

// screen is the lines that an agent can still write over, of which the last are what its terminal shows. Lines that leave it are passed on.
type screen struct {
	out         io.Writer
	err         error // of out; sticky
	lines       []*line
	cells       int // in lines, about: what was erased is counted until the line leaves
	row, column int // of the cursor; row is an index of lines
	saved       [2]int
	height      int // rows of the terminal, as far as it is known
	top, bottom int // of the scroll region, in rows of the terminal; bottom is 0 if there is none
}

func newScreen(out io.Writer) screen {
	return screen{out: out, lines: []*line{{}}, height: minHeight}
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

func (s *screen) write(text string) {
	if s.err == nil && text != "" {
		_, s.err = io.WriteString(s.out, text)
	}
}

// tell passes a line on, unless that was done and it has not changed since.
func (s *screen) tell(l *line) {
	text := l.text()
	if !l.told || text != l.shown && strings.TrimSpace(text) != "" {
		s.write(text + "\n")
	}
	l.told, l.shown = true, text
}

// drop passes the first n lines on and forgets them.
func (s *screen) drop(n int) {
	for _, l := range s.lines[:n] {
		s.tell(l)
		s.cells -= len(l.cells)
	}
	s.lines = slices.Delete(s.lines, 0, n)
	s.row -= n
}

// flush passes on all lines above the cursor.
func (s *screen) flush() {
	for _, l := range s.lines[:s.row] {
		s.tell(l)
	}
}

// used returns how many lines there are, without blank ones at the end.
func (s *screen) used() int {
	n := len(s.lines)
	for n > 0 && strings.TrimSpace(s.lines[n-1].text()) == "" {
		n--
	}
	return n
}

// finish passes on all that is left, the last line without an end if it has none.
func (s *screen) finish() {
	last := max(s.used()-1, s.row)
	for _, l := range s.lines[:last] {
		s.tell(l)
	}
	if l := s.lines[last]; l.text() != l.shown {
		s.write(l.text())
	}
	s.lines, s.row, s.column, s.cells = []*line{{}}, 0, 0, 0
}

// goTo moves the cursor to a line, which is made if there is none yet.
func (s *screen) goTo(row int) {
	s.row = max(row, 0)
	for len(s.lines) <= s.row {
		s.lines = append(s.lines, &line{})
	}
	s.bound()
}

// bound keeps no more lines than can be kept, and the cursor's in any case.
func (s *screen) bound() {
	if n := len(s.lines) - maxRows; n > 0 {
		s.drop(min(n, s.row))
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
		s.drop(s.row)
	}
}

// address moves the cursor to a place on the terminal. Programs that ask for a far one want to know how large it is.
func (s *screen) address(row, column int) {
	if row >= s.height && row < maxRows {
		s.height = row + 1
	}
	s.goTo(s.base() + min(row, s.height-1))
	s.moveTo(column)
}

func (s *screen) moveTo(column int) {
	s.column = min(max(column, 0), maxColumn)
	s.lines[s.row].moved = true
}

// up and down move the cursor without scrolling.
func (s *screen) up(n int) { s.goTo(s.row - n) }

func (s *screen) down(n int) { s.goTo(max(s.row, min(s.row+n, s.base()+s.height-1))) }

// feed moves the cursor to the next line, and scrolls at the end of the region.
func (s *screen) feed() {
	if first, last := s.region(); s.bottom != 0 && s.row == last {
		s.scroll(first, last, 1)
		return
	}
	s.goTo(s.row + 1)
}

// reverse moves the cursor to the line before, and scrolls at the begin of the region.
func (s *screen) reverse() {
	if first, last := s.region(); s.row == first {
		s.insertLines(first, last, 1)
		return
	}
	s.up(1)
}

// scroll passes on the first n of the lines from first to last, after those that have left the screen, and makes room at their end.
func (s *screen) scroll(first, last, n int) {
	if left := min(s.base(), s.row, first); left > 0 {
		s.drop(left)
		first, last = first-left, last-left
	}
	n = min(n, last-first+1)
	s.fill(last)
	for _, l := range s.lines[first : first+n] {
		s.tell(l)
	}
	s.deleteLines(first, last, n)
}

// deleteLines takes n lines at row at out of those up to last, and makes room at their end.
func (s *screen) deleteLines(at, last, n int) {
	s.fill(last)
	n = min(n, last-at+1)
	if n <= 0 {
		return
	}
	s.lines = slices.Insert(slices.Delete(s.lines, at, at+n), last+1-n, blank(n)...)
}

// insertLines makes room at row at, by as much of the lines up to last.
func (s *screen) insertLines(at, last, n int) {
	s.fill(last)
	n = min(n, last-at+1)
	if n <= 0 {
		return
	}
	s.lines = slices.Insert(slices.Delete(s.lines, last+1-n, last+1), at, blank(n)...)
}

func blank(n int) []*line {
	lines := make([]*line, n)
	for i := range lines {
		lines[i] = &line{}
	}
	return lines
}

// fill makes the lines up to last.
func (s *screen) fill(last int) {
	for len(s.lines) <= last {
		s.lines = append(s.lines, &line{})
	}
}

// clear passes on what the screen shows, and begins an empty one with the cursor where it is.
func (s *screen) clear() {
	row, column := s.row-s.base(), s.column
	for _, l := range s.lines[:s.used()] {
		s.tell(l)
	}
	s.lines, s.cells, s.row = []*line{{}}, 0, 0
	s.goTo(row)
	s.column = column
	s.lines[s.row].moved = true
}

// below and above erase the lines after and before the cursor's.
func (s *screen) below() {
	if s.row <= s.base() && s.column == 0 {
		s.clear()
		return
	}
	s.erase(s.column, maxLine)
	s.lines = s.lines[:s.row+1]
}

func (s *screen) above() {
	for _, l := range s.lines[min(s.base(), s.row):s.row] {
		l.cells, l.moved = l.cells[:0], true
	}
	s.erase(0, s.column+1)
}

// put writes a character at the cursor.
func (s *screen) put(r rune) {
	width := 1
	switch {
	case r == '\t':
		width = 8 - s.column%8
	case r >= 0x300:
		width = ansi.StringWidth(string(r))
	}
	l := s.lines[s.row]
	if width == 0 {
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
	l.split(s.column)
	l.split(s.column + width)
	l.cells[s.column] = cell{r: r}
	for i := 1; i < width; i++ {
		l.cells[s.column+i] = cell{}
	}
	s.column += width
	s.cells += len(l.cells) - before
	if len(l.cells) >= maxLine {
		s.passPart(l)
	}
}

// passPart passes on what there is of a line that is too long to be kept.
func (s *screen) passPart(l *line) {
	s.drop(s.row)
	l.moved = false
	s.write(l.text())
	s.cells -= len(l.cells)
	*l = line{}
	s.column = 0
}

// combine adds a mark to the character before a column.
func (l *line) combine(column int, r rune) {
	for i := min(column, len(l.cells)) - 1; i >= 0; i-- {
		if c := &l.cells[i]; c.r != 0 {
			l.mark(c, r)
			return
		}
	}
}

func (l *line) mark(c *cell, r rune) {
	switch {
	case c.r == ' ' || c.r == '\t':
	case c.marks > 0:
		if m := &l.marks[c.marks-1]; len(*m) < maxMarks {
			*m += string(r)
		}
	case len(l.marks) < maxColumn:
		l.marks = append(l.marks, string(r))
		c.marks = int32(len(l.marks))
	}
}

// grow makes blanks up to a column.
func (l *line) grow(to int) {
	for len(l.cells) < to {
		l.cells = append(l.cells, cell{r: ' '})
	}
}

// split makes blanks of a wide character that would be cut at a column.
func (l *line) split(column int) {
	if column >= len(l.cells) || l.cells[column].r != 0 {
		return
	}
	i := column
	for i > 0 && l.cells[i].r == 0 {
		l.cells[i], i = cell{r: ' '}, i-1
	}
	l.cells[i] = cell{r: ' '}
	for i = column + 1; i < len(l.cells) && l.cells[i].r == 0; i++ {
		l.cells[i] = cell{r: ' '}
	}
}

// erase blanks the columns of the cursor's line from and up to, but not including, to.
func (s *screen) erase(from, to int) {
	l := s.lines[s.row]
	l.moved = true
	l.split(from)
	l.split(to)
	if to >= len(l.cells) {
		l.cells = l.cells[:min(from, len(l.cells))]
		return
	}
	for i := from; i < to; i++ {
		l.cells[i] = cell{r: ' '}
	}
}

// deleteCells takes n characters out of the cursor's line, insertCells makes room for n.
func (s *screen) deleteCells(n int) {
	l := s.lines[s.row]
	from := min(s.column, len(l.cells))
	to := min(from+n, len(l.cells))
	l.split(from)
	l.split(to)
	l.cells = slices.Delete(l.cells, from, to)
	l.moved = true
}

func (s *screen) insertCells(n int) {
	l := s.lines[s.row]
	if s.column >= len(l.cells) || len(l.cells) > maxColumn {
		return
	}
	l.split(s.column)
	l.cells = slices.Insert(l.cells, s.column, slices.Repeat([]cell{{r: ' '}}, n)...)
	l.moved = true
	s.cells += n
}

package transcript

import (
	"slices"
	"unicode"
	"unicode/utf8"
)

// cell is one column of a line.
type cell struct {
	r     rune  // 0 for the other columns of a wide character or a tab
	marks int32 // the place in line.marks, from 1 on, of what combines with it; 0 for nothing
}

// line is one line that can still be written over.
type line struct {
	cells       []cell
	marks       []string
	moved       bool   // the cursor was moved in it, so blanks at its end mean nothing
	emittedText string // what was passed on of it already
	emitted     bool   // something was
	changed     bool   // since then, perhaps
	wrapped     bool   // it goes on in the next one, for it was longer than the terminal is wide
	continues   *line  // the one that it goes on from, nil if it begins anew
}

// text appends what the line says to b.
func (l *line) text(b []byte) []byte {
	begin := len(b)
	for _, c := range l.cells {
		if c.r != 0 {
			b = utf8.AppendRune(b, c.r)
			if c.marks > 0 {
				b = append(b, l.marks[c.marks-1]...)
			}
		}
	}
	for l.moved && !l.wrapped && len(b) > begin && b[len(b)-1] == ' ' {
		b = b[:len(b)-1]
	}
	return b
}

// isBlank tells whether nothing is to be seen in the line.
func (l *line) isBlank() bool {
	for _, c := range l.cells {
		if c.marks > 0 || c.r != 0 && !unicode.IsSpace(c.r) {
			return false
		}
	}
	return true
}

// reset makes a new line of one that nobody needs any more. To make room is what the shortest
// sequences can ask for the most of.
func (l *line) reset() {
	cells := l.cells[:0]
	if cap(cells) > 2*maxColumn {
		cells = nil
	}
	*l = line{cells: cells}
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
	l.cells = slices.Grow(l.cells, max(0, to-len(l.cells)))
	for len(l.cells) < to {
		l.cells = append(l.cells, cell{r: ' '})
	}
}

// splitWide makes blanks of a wide character that would be cut at a column.
func (l *line) splitWide(column int) {
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

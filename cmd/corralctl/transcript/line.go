package transcript

import (
	"slices"
	"unicode"
	"unicode/utf8"
)

// cell is one column of a line.
type cell struct {
	r     rune  // 0 for the further columns of a wide character or a tab
	marks int32 // index in line.marks, from 1, of the marks that combine with r; 0 for none
}

// line is a line of the screen, which the program can still overwrite.
type line struct {
	cells       []cell
	marks       []string
	printed     int64  // when the last character was written to it: see Transcript.SetTime
	moved       bool   // the cursor was moved within it: trailing blanks are not the program's own text
	emittedText string // the text that was last emitted
	emitted     bool   // emittedText is valid
	changed     bool   // the line may have changed since it was emitted
	wrapped     bool   // it was longer than the terminal is wide and continues in the next line
	continues   *line  // the line whose continuation this is, nil if it is the start of a line
}

// text appends the line's text to b.
func (l *line) text(b []byte) []byte {
	begin := len(b)
	b = slices.Grow(b, len(l.cells))
	ascii := b[begin : begin+len(l.cells)]
	n := 0
	for n < len(ascii) && l.cells[n].r < utf8.RuneSelf && l.cells[n].r != 0 && l.cells[n].marks == 0 {
		ascii[n] = byte(l.cells[n].r)
		n++
	}
	b = b[:begin+n]
	for _, c := range l.cells[n:] {
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

// isBlank returns whether the line has no visible character.
func (l *line) isBlank() bool {
	for _, c := range l.cells {
		if c.marks > 0 || c.r != 0 && !unicode.IsSpace(c.r) {
			return false
		}
	}
	return true
}

// reset turns a line that is no longer used into an empty one. It keeps the memory of the cells:
// the shortest sequences can request the most new lines.
func (l *line) reset() {
	cells := l.cells[:0]
	if cap(cells) > 2*maxColumn {
		cells = nil
	}
	*l = line{cells: cells}
}

// combine adds a combining mark to the character before a column.
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

// grow appends blanks until the line has the given number of cells.
func (l *line) grow(to int) {
	n := len(l.cells)
	if to <= n {
		return
	}
	l.cells = slices.Grow(l.cells, to-n)[:to]
	for i := n; i < to; i++ {
		l.cells[i] = cell{r: ' '}
	}
}

// splitWide replaces a wide character that extends across a column boundary by blanks.
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

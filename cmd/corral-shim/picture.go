package main

import "unicode/utf8"

// picture is what a terminal shows, as far as its text goes: no colours, no modes, every character
// as wide as any other. What it does not know it passes over. It is no terminal for people, only
// one in which a line of text can be found, however it came to be there.
type picture struct {
	rows, cols int
	cells      []rune // row by row; 0 is blank
	row, col   int
	savedRow   int
	savedCol   int

	state   int // as a scanner's
	private bool
	params  [4]int
	n       int // of params that were begun
	part    [utf8.UTFMax]byte
	partLen int
}

// maxSide bounds both sides of a picture, in cells.
const maxSide = 500

func newPicture(rows, cols int) picture {
	p := picture{rows: min(max(rows, 1), maxSide), cols: min(max(cols, 1), maxSide)}
	p.cells = make([]rune, p.rows*p.cols)
	return p
}

// resize keeps what there is in the upper left corner. A program draws anew, and one that does not
// has its lines there.
func (p *picture) resize(rows, cols int) {
	next := newPicture(rows, cols)
	for row := range min(p.rows, next.rows) {
		copy(next.cells[row*next.cols:(row+1)*next.cols], p.cells[row*p.cols:(row+1)*p.cols])
	}
	p.rows, p.cols, p.cells = next.rows, next.cols, next.cells
	p.move(p.row, p.col)
}

// write follows an output, which may come in pieces.
func (p *picture) write(b []byte) {
	for _, c := range b {
		switch {
		case p.state == inString || p.state == inStringEnd:
			p.skip(c)
		case c == charEscape:
			p.state = inEscape
		case c < ' ':
			p.control(c)
		case p.state == inEscape:
			p.escape(c)
		case p.state == inControl:
			p.parameter(c)
		default:
			p.text(c)
		}
	}
}

// skip passes over a string.
func (p *picture) skip(c byte) {
	switch {
	case c == charBell || c == charCancel || c == charSubstitute || p.state == inStringEnd && c == '\\':
		p.state = inText
	case c == charEscape:
		p.state = inStringEnd
	case p.state == inStringEnd: // it was broken off
		p.state = inEscape
		p.escape(c)
	}
}

func (p *picture) control(c byte) {
	switch c {
	case '\r':
		p.col = 0
	case '\n', '\v', '\f':
		p.down()
	case '\b':
		p.move(p.row, p.col-1)
	case '\t':
		p.move(p.row, p.col|7+1)
	case charCancel, charSubstitute:
		p.state = inText
	}
}

func (p *picture) escape(c byte) {
	p.state = inText
	switch c {
	case '[':
		p.state, p.private, p.n, p.params = inControl, false, 0, [4]int{}
	case ']', 'P', 'X', '^', '_', 'k':
		p.state = inString
	case '7':
		p.savedRow, p.savedCol = p.row, p.col
	case '8':
		p.move(p.savedRow, p.savedCol)
	case 'D', 'E':
		p.down()
	case 'M':
		p.move(p.row-1, p.col)
	case 'c':
		p.clear(0, len(p.cells))
		p.move(0, 0)
	}
}

// text takes a byte of a character.
func (p *picture) text(c byte) {
	if c >= utf8.RuneSelf || p.partLen > 0 {
		if utf8.RuneStart(c) {
			p.partLen = 0
		}
		p.part[p.partLen] = c
		p.partLen++
		if !utf8.FullRune(p.part[:p.partLen]) {
			return
		}
	} else {
		p.part[0], p.partLen = c, 1
	}
	r, _ := utf8.DecodeRune(p.part[:p.partLen])
	p.partLen = 0
	if p.col >= p.cols {
		p.col = 0
		p.down()
	}
	p.cells[p.row*p.cols+p.col] = r
	p.col++
}

// down goes to the next row, and scrolls where there is none.
func (p *picture) down() {
	if p.row++; p.row < p.rows {
		return
	}
	p.row = p.rows - 1
	copy(p.cells, p.cells[p.cols:])
	p.clear(p.row*p.cols, len(p.cells))
}

func (p *picture) move(row, col int) {
	p.row, p.col = min(max(row, 0), p.rows-1), min(max(col, 0), p.cols-1)
}

func (p *picture) clear(from, to int) { clear(p.cells[max(from, 0):min(to, len(p.cells))]) }

// parameter takes a byte of a control sequence.
func (p *picture) parameter(c byte) {
	switch {
	case c == '?' || c == '>' || c == '<' || c == '=':
		p.private = true
	case c >= '0' && c <= '9':
		p.n = max(p.n, 1)
		if v := &p.params[min(p.n, len(p.params))-1]; *v < maxSide {
			*v = *v*10 + int(c-'0')
		}
	case c == ';' || c == ':':
		p.n = max(p.n, 1) + 1
	case c >= 0x40:
		p.state = inText
		if p.private {
			p.mode(c)
		} else {
			p.obey(c)
		}
	}
}

// mode obeys the switch to another screen, which is blank.
func (p *picture) mode(c byte) {
	if first := p.params[0]; (c == 'h' || c == 'l') && (first == 1049 || first == 1047 || first == 47) {
		p.clear(0, len(p.cells))
		p.move(0, 0)
	}
}

// obey obeys a control sequence.
func (p *picture) obey(c byte) {
	count := max(p.params[0], 1)
	here := p.row*p.cols + min(p.col, p.cols-1)
	begin := p.row * p.cols
	switch c {
	case 'A':
		p.move(p.row-count, p.col)
	case 'B':
		p.move(p.row+count, p.col)
	case 'C':
		p.move(p.row, p.col+count)
	case 'D':
		p.move(p.row, p.col-count)
	case 'E':
		p.move(p.row+count, 0)
	case 'F':
		p.move(p.row-count, 0)
	case 'G':
		p.move(p.row, count-1)
	case 'H', 'f':
		p.move(count-1, max(p.params[1], 1)-1)
	case 'd':
		p.move(count-1, p.col)
	case 'J':
		p.erase(p.params[0], here, 0, len(p.cells))
	case 'K':
		p.erase(p.params[0], here, begin, begin+p.cols)
	case 'X':
		p.clear(here, min(here+count, begin+p.cols))
	}
}

// erase blanks what is between two places: behind here, before it, or all of it.
func (p *picture) erase(which, here, from, to int) {
	switch which {
	case 0:
		from = here
	case 1:
		to = here + 1
	case 3: // what has scrolled off
		return
	}
	p.clear(from, to)
}

// Package termsizes is the record of how large a terminal was while its log was written: a small
// file beside the log, without which lines that the terminal broke cannot be put together again.
//
// Its text is a line "AT" for the place at which each of the log's files begins, the older one
// first, and a line "AT COLUMNS ROWS" for each size, from that place on. Places are bytes of all
// that was ever written to the log. A log that no such file is beside is of a size that nobody
// knows.
package termsizes

import (
	"bytes"
	"errors"
	"strconv"
)

// FileName is the file's, in the directory of the log.
const FileName = "output.sizes"

// The limits of what is kept, and so of the file.
const (
	maxSizes    = 256
	MaxFileSize = 32 + maxSizes*32 // bytes
)

// Size is one that the terminal had from At on.
type Size struct {
	Offset        int64
	Columns, Rows uint16
}

// Sizes are those of a log in one or two files. The zero value is an empty log. It allocates
// nothing.
type Sizes struct {
	older, begin int64 // where the files begin; older is -1 if there is one file only
	all          [maxSizes]Size
	n            int
}

// New returns the sizes of a log in one file that begins at begin.
func New(begin int64) Sizes { return Sizes{older: -1, begin: begin} }

// Start is where the log's newer file begins.
func (s *Sizes) Start() int64 { return s.begin }

// OlderStart is where the one before it begins, and whether there is one.
func (s *Sizes) OlderStart() (at int64, ok bool) { return s.older, s.older >= 0 }

// All are the sizes in the order of their places.
func (s *Sizes) All() []Size { return s.all[:s.n] }

// Last is the size at the log's end; the zero value is for one that is not known.
func (s *Sizes) Last() Size {
	if s.n == 0 {
		return Size{}
	}
	return s.all[s.n-1]
}

// Rotate tells that another file begins at a place. What came before the one that is now the older
// one is forgotten.
func (s *Sizes) Rotate(at int64) {
	s.older, s.begin = s.begin, at
	s.forget(s.older)
}

// TrimStarts tells that bytes were taken away at the files' beginnings.
func (s *Sizes) TrimStarts(older, newer int64) {
	if s.older >= 0 {
		s.older = min(s.older+older, s.begin)
	}
	s.begin += newer
	if s.older >= 0 {
		s.forget(s.older)
	} else {
		s.forget(s.begin)
	}
}

// forget leaves out what ends before a place.
func (s *Sizes) forget(at int64) {
	first := 0
	for first+1 < s.n && s.all[first+1].Offset <= at {
		first++
	}
	s.n = copy(s.all[:], s.all[first:s.n])
}

// Set tells that the terminal has a size from a place on. Of too many sizes the oldest are
// forgotten.
func (s *Sizes) Set(size Size) {
	for s.n > 0 && s.Last().Offset >= size.Offset {
		s.n-- // nothing was written at it
	}
	if last := s.Last(); s.n > 0 && last.Columns == size.Columns && last.Rows == size.Rows {
		return
	}
	if s.n == maxSizes {
		s.n = copy(s.all[:], s.all[1:])
	}
	s.all[s.n] = size
	s.n++
}

// Append appends the text of the file.
func (s *Sizes) Append(text []byte) []byte {
	if s.older >= 0 {
		text = append(strconv.AppendInt(text, s.older, 10), '\n')
	}
	text = append(strconv.AppendInt(text, s.begin, 10), '\n')
	for _, size := range s.All() {
		text = append(strconv.AppendInt(text, size.Offset, 10), ' ')
		text = append(strconv.AppendUint(text, uint64(size.Columns), 10), ' ')
		text = append(strconv.AppendUint(text, uint64(size.Rows), 10), '\n')
	}
	return text
}

var errBroken = errors.New("the sizes of the log cannot be read")

// Parse reads the text of the file.
func Parse(text []byte) (Sizes, error) {
	s := New(-1)
	for len(text) > 0 {
		line, rest, whole := bytes.Cut(text, []byte("\n"))
		if !whole || !s.add(line) {
			return Sizes{}, errBroken
		}
		text = rest
	}
	if s.begin < 0 {
		return Sizes{}, errBroken
	}
	return s, nil
}

// add reads one line.
func (s *Sizes) add(line []byte) bool {
	first, rest, sized := bytes.Cut(line, []byte(" "))
	at, ok := number(first, 1<<62)
	if !ok {
		return false
	}
	if !sized {
		if s.n > 0 || s.older >= 0 || at < s.begin {
			return false
		}
		s.older, s.begin = s.begin, at
		return true
	}
	columns, rows, _ := bytes.Cut(rest, []byte(" "))
	c, ok1 := number(columns, 1<<16-1)
	r, ok2 := number(rows, 1<<16-1)
	if !ok1 || !ok2 || s.begin < 0 || s.n == maxSizes || s.n > 0 && at <= s.Last().Offset {
		return false
	}
	s.all[s.n] = Size{at, uint16(c), uint16(r)}
	s.n++
	return true
}

// number reads digits, and nothing else.
func number(text []byte, most int64) (int64, bool) {
	if len(text) == 0 || len(text) > 19 || len(text) > 1 && text[0] == '0' {
		return 0, false
	}
	n := int64(0)
	for _, c := range text {
		if c < '0' || c > '9' || n > (most-int64(c-'0'))/10 {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
}

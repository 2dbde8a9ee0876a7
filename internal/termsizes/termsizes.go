// Package termsizes records the sizes that a terminal had while its output was logged, in a small
// file beside the log. A reader of the log needs them to rejoin lines that the terminal wrapped.
//
// The file has a line "OFFSET" for the start of each log file, the older one first, and a line
// "OFFSET COLUMNS ROWS" for each size, valid from that offset. Offsets count all bytes ever written
// to the log. If the file does not exist the sizes are unknown.
package termsizes

import (
	"bytes"
	"errors"
	"strconv"
)

// FileName is the file's name in the directory of the log.
const FileName = "output.sizes"

// Limits of the file.
const (
	maxSizes    = 256
	MaxFileSize = 32 + maxSizes*32 // bytes
)

// Size is the size of the terminal from Offset.
type Size struct {
	Offset        int64
	Columns, Rows uint16
}

// Sizes are the terminal sizes for a log that consists of one or two files. None of the methods
// allocates memory, except that Append may grow its argument.
type Sizes struct {
	older, start int64 // offsets of the files' starts; older is -1 if there is only one file
	sizes        [maxSizes]Size
	n            int
}

// New returns the sizes for a log in one file that starts at the offset start.
func New(start int64) Sizes { return Sizes{older: -1, start: start} }

// Start returns the offset at which the log's newer file starts.
func (s *Sizes) Start() int64 { return s.start }

// OlderStart returns the offset at which the older file starts; ok is false if there is none.
func (s *Sizes) OlderStart() (offset int64, ok bool) { return s.older, s.older >= 0 }

// All returns the sizes in the order of their offsets. The slice is valid until the next change.
func (s *Sizes) All() []Size { return s.sizes[:s.n] }

// Last returns the size at the end of the log, or the zero value if it is unknown.
func (s *Sizes) Last() Size {
	if s.n == 0 {
		return Size{}
	}
	return s.sizes[s.n-1]
}

// Rotate records that a new file starts at the offset at. It drops the sizes that are no longer
// valid at the start of the file that is now the older one.
func (s *Sizes) Rotate(at int64) {
	s.older, s.start = s.start, at
	s.dropBefore(s.older)
}

// TrimStarts records that the first bytes of the two files were removed: older and newer are how
// many.
func (s *Sizes) TrimStarts(older, newer int64) {
	if s.older >= 0 {
		s.older = min(s.older+older, s.start)
	}
	s.start += newer
	if s.older >= 0 {
		s.dropBefore(s.older)
	} else {
		s.dropBefore(s.start)
	}
}

// dropBefore drops the sizes that another one has replaced at or before the offset at.
func (s *Sizes) dropBefore(at int64) {
	first := 0
	for first+1 < s.n && s.sizes[first+1].Offset <= at {
		first++
	}
	s.n = copy(s.sizes[:], s.sizes[first:s.n])
}

// Set records that the terminal has a size from an offset. If there are too many it drops the
// oldest.
func (s *Sizes) Set(size Size) {
	for s.n > 0 && s.Last().Offset >= size.Offset {
		s.n-- // nothing was written at that size
	}
	if last := s.Last(); s.n > 0 && last.Columns == size.Columns && last.Rows == size.Rows {
		return
	}
	if s.n == maxSizes {
		s.n = copy(s.sizes[:], s.sizes[1:])
	}
	s.sizes[s.n] = size
	s.n++
}

// Append appends the content of the file to text and returns the result.
func (s *Sizes) Append(text []byte) []byte {
	if s.older >= 0 {
		text = append(strconv.AppendInt(text, s.older, 10), '\n')
	}
	text = append(strconv.AppendInt(text, s.start, 10), '\n')
	for _, size := range s.All() {
		text = append(strconv.AppendInt(text, size.Offset, 10), ' ')
		text = append(strconv.AppendUint(text, uint64(size.Columns), 10), ' ')
		text = append(strconv.AppendUint(text, uint64(size.Rows), 10), '\n')
	}
	return text
}

var errInvalid = errors.New("the sizes of the log cannot be read")

// Parse decodes the content of the file.
func Parse(text []byte) (Sizes, error) {
	s := New(-1)
	for len(text) > 0 {
		line, rest, whole := bytes.Cut(text, []byte("\n"))
		if !whole || !s.parseLine(line) {
			return Sizes{}, errInvalid
		}
		text = rest
	}
	if s.start < 0 {
		return Sizes{}, errInvalid
	}
	return s, nil
}

// parseLine decodes one line. It returns false if the line is invalid.
func (s *Sizes) parseLine(line []byte) bool {
	first, rest, sized := bytes.Cut(line, []byte(" "))
	at, ok := parseNumber(first, 63)
	if !ok {
		return false
	}
	if !sized {
		if s.n > 0 || s.older >= 0 || at < s.start {
			return false
		}
		s.older, s.start = s.start, at
		return true
	}
	columns, rows, _ := bytes.Cut(rest, []byte(" "))
	c, ok1 := parseNumber(columns, 17)
	r, ok2 := parseNumber(rows, 17)
	if !ok1 || !ok2 || s.start < 0 || s.n == maxSizes || s.n > 0 && at <= s.Last().Offset {
		return false
	}
	s.sizes[s.n] = Size{at, uint16(c), uint16(r)}
	s.n++
	return true
}

// parseNumber decodes a decimal number of fewer than bits bits, without a sign or leading zeros.
func parseNumber(text []byte, bits int) (int64, bool) {
	n, err := strconv.ParseInt(string(text), 10, bits)
	return n, err == nil && (len(text) == 1 || text[0] > '0')
}

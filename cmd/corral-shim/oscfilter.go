package main

import "bytes"

// statusStart begins an operating system command with a program's status, wrappedStatusStart a
// passthrough wrapper whose content begins with one.
const (
	statusStart        = "\x1b]7501;"
	wrappedStatusStart = "\x1bP" + wrapperPrefix + "\x1b" + statusStart
)

// statusMark is contained in every output in which such a command begins.
var statusMark = []byte(statusStart[1:])

// maxHeld is the maximum number of bytes that can be held.
const maxHeld = len(wrappedStatusStart) - 1

// oscFilter removes OSC 7501 sequences from the output, because neither tmux nor the terminals that
// show tmux know them. It removes each OSC 7501 that begins outside of other sequences, from its
// ESC to its end, and each passthrough wrapper (DCS tmux;) whose content begins with one. If such a
// sequence is aborted by another sequence, that one is kept. An OSC 7501 in the middle of another
// sequence aborts that sequence, and has to be kept in place.
//
// The filter works in place. If a piece of output ends with a possible start of an OSC 7501, or
// with an ESC in one or in a wrapper, these bytes are held: they are neither shown nor scanned
// until the next piece arrives, and become its first bytes.
type oscFilter struct {
	piece      []byte
	kept       int  // number of final bytes at the start of the piece
	from       int  // position of the first byte that was neither kept nor removed
	held       int  // number of bytes at the end of the piece that are held
	isRemoving bool // a sequence is being removed
}

// isNeeded reports whether the piece may have to be changed. If not, it can be shown before it is
// scanned.
func (f *oscFilter) isNeeded(piece []byte) bool {
	return f.held > 0 || f.isRemoving || bytes.Contains(piece, statusMark) ||
		bytes.IndexByte(piece[max(len(piece)-maxHeld, 0):], charEscape) >= 0
}

func (f *oscFilter) begin(piece []byte) { f.piece, f.kept, f.from = piece, 0, 0 }

// beginSequence is called at each ESC outside of other sequences, with its position. It reports
// whether the piece ends before it is known whether the sequence is to be removed.
func (f *oscFilter) beginSequence(at int) (isUnknown bool) {
	rest := f.piece[at:]
	if len(rest) > 1 && rest[1] != statusStart[1] && rest[1] != wrappedStatusStart[1] {
		return false
	}
	for _, start := range [...]string{statusStart, wrappedStatusStart} {
		n := min(len(rest), len(start))
		if string(rest[:n]) != start[:n] {
			continue
		}
		if n < len(start) {
			return true
		}
		f.keepUntil(at)
		f.isRemoving = true
	}
	return false
}

// endSequence is called after each sequence, with the position after it.
func (f *oscFilter) endSequence(end int) {
	if f.isRemoving {
		f.from, f.isRemoving = end, false
	}
}

// keepUntil keeps the bytes that were neither kept nor removed, up to the position end.
func (f *oscFilter) keepUntil(end int) {
	if f.kept != f.from {
		copy(f.piece[f.kept:], f.piece[f.from:end])
	}
	f.kept += end - f.from
	f.from = end
}

// finish returns the rest of the piece, which was scanned up to the position end. The bytes after
// it are held.
func (f *oscFilter) finish(end int) []byte {
	if f.isRemoving {
		f.from = end
	}
	f.held = len(f.piece) - end
	f.keepUntil(len(f.piece))
	kept := f.piece[:f.kept]
	f.piece = nil
	return kept
}

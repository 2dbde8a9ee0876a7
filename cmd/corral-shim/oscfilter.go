package main

import "bytes"

// statusPrefix is the start of an operating system command with a program's status.
const statusPrefix = "7501;"

// statusMark is contained in every output in which such a command starts.
var statusMark = []byte("]" + statusPrefix)

// maxHeld is the maximum number of bytes that can be held: the longest prefix of anything that is
// removed, without its last byte.
const maxHeld = len("\x1bP"+wrapperPrefix+"\x1b\x1b]"+statusPrefix) - 1

// noPosition is the value of candidate if there is no candidate.
const noPosition = -1

// oscFilter removes OSC 7501 sequences from the output, because neither tmux nor the terminals that
// show tmux know them. It removes each OSC 7501 that starts outside of other sequences, from its
// ESC to its end, and each passthrough wrapper (DCS tmux;) whose content starts with one. If such a
// sequence is aborted by another sequence, that one is kept. An OSC 7501 in the middle of another
// sequence aborts that sequence, and has to be kept in place.
//
// The filter works in place. If a piece of output ends with a possible start of an OSC 7501 these
// bytes are held until the next piece arrives, and become its first bytes.
type oscFilter struct {
	piece      []byte
	kept       int  // number of final bytes at the start of the piece
	from       int  // position of the first byte that was neither kept nor removed
	held       int  // number of bytes at the start of the next piece that were scanned already
	candidate  int  // position of the sequence that may have to be removed, or noPosition
	isRemoving bool // that sequence has to be removed
	escapeAt   int  // position of an ESC in it, with which another sequence may start
}

// isNeeded reports whether the piece, which includes the held bytes, may have to be changed. If
// not, it can be shown before it is scanned.
func (f *oscFilter) isNeeded(piece []byte) bool {
	return f.candidate != noPosition || f.isRemoving || bytes.Contains(piece, statusMark) ||
		bytes.IndexByte(piece[max(len(piece)-maxHeld, 0):], charEscape) >= 0
}

func (f *oscFilter) begin(piece []byte) {
	f.piece, f.kept, f.from = piece, 0, 0
	if f.candidate != noPosition {
		f.candidate, f.escapeAt = 0, 0
	}
}

// beginCandidate records an ESC outside of other sequences.
func (f *oscFilter) beginCandidate(at int) { f.candidate, f.isRemoving = at, false }

// dropCandidate records that the candidate is another sequence.
func (f *oscFilter) dropCandidate() {
	if !f.isRemoving {
		f.candidate = noPosition
	}
}

// noteEscape records the position of an ESC in a sequence that is being removed.
func (f *oscFilter) noteEscape(at int) { f.escapeAt = at }

// handleAbort is called if that ESC starts another sequence.
func (f *oscFilter) handleAbort() {
	if !f.isRemoving {
		f.candidate = noPosition
		return
	}
	f.removeUntil(f.escapeAt)
	f.beginCandidate(f.escapeAt)
}

// handleEnd is called at the end of a sequence, with the position after it.
func (f *oscFilter) handleEnd(end int) {
	if f.isRemoving {
		f.removeUntil(end)
	}
	f.candidate, f.isRemoving = noPosition, false
}

// removeUntil removes the bytes from the candidate up to the position end.
func (f *oscFilter) removeUntil(end int) {
	f.keepUntil(f.candidate)
	f.from = end
}

// keepUntil keeps the bytes that were neither kept nor removed, up to the position end.
func (f *oscFilter) keepUntil(end int) {
	if f.kept != f.from {
		copy(f.piece[f.kept:], f.piece[f.from:end])
	}
	f.kept += end - f.from
	f.from = end
}

// finish returns the rest of the piece. Its last bytes may be held: they must not be shown yet. If
// escaping is true, one of them is the last ESC of a sequence that is being removed.
func (f *oscFilter) finish(escaping bool) []byte {
	f.held = 0
	switch {
	case f.isRemoving:
		f.keepUntil(f.candidate)
		if f.from = len(f.piece); escaping {
			f.from, f.held = f.escapeAt, 1
			f.keepUntil(len(f.piece))
		}
	case f.candidate != noPosition:
		f.held = len(f.piece) - f.candidate
		fallthrough
	default:
		f.keepUntil(len(f.piece))
	}
	kept := f.piece[:f.kept]
	f.piece = nil
	return kept
}

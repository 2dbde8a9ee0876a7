package main

import "bytes"

// statusCommand is how the command begins that tells a program's status.
const statusCommand = "7501;"

// statusBegins is what is in every output that such a command begins in.
var statusBegins = []byte("]" + statusCommand)

// maxHeld is how many bytes of an output can be held back at most: all but the last of the longest
// beginning that something has which is cut out.
const maxHeld = len("\x1bP"+wrapper+"\x1b\x1b]"+statusCommand) - 1

// none is no place.
const none = -1

// cut takes out of an output what is not for tmux, which does not know it, nor for whatever
// terminal shows tmux: each OSC 7501 that begins where no other sequence is, from its ESC to its
// end, and each wrapper whose content begins with one. Where another sequence begins before its
// end, that is shown. An OSC 7501 in the middle of another sequence breaks that off, and has to be
// left where it is.
//
// It works in place. What may be the beginning of one at the end of a piece is held back until the
// next piece comes, and begins that.
type cut struct {
	piece []byte
	kept  int  // bytes at the front of the piece that are final
	from  int  // where what was neither kept nor cut begins
	held  int  // bytes at the front of the next piece that were read already
	start int  // where what may have to be cut out begins, or none
	going bool // it does have to be
	next  int  // where an ESC was in it, which may begin something else
}

// needed tells whether the piece, of which so much was held back, may have to be changed. A piece
// that has not can be shown before it is read.
func (c *cut) needed(piece []byte) bool {
	return c.start != none || c.going || bytes.Contains(piece, statusBegins) || bytes.IndexByte(piece[max(len(piece)-maxHeld, 0):], charEscape) >= 0
}

func (c *cut) begin(piece []byte) {
	c.piece, c.kept, c.from = piece, 0, 0
	if c.start != none {
		c.start, c.next = 0, 0
	}
}

// mayBegin: an ESC is at this place, and no other sequence is around it.
func (c *cut) mayBegin(at int) { c.start, c.going = at, false }

// cannotBegin: what begins at start is something else.
func (c *cut) cannotBegin() {
	if !c.going {
		c.start = none
	}
}

// escape notes where an ESC is in what is being cut out.
func (c *cut) escape(at int) { c.next = at }

// brokenOff: with that ESC something else begins.
func (c *cut) brokenOff() {
	if !c.going {
		c.start = none
		return
	}
	c.out(c.next)
	c.mayBegin(c.next)
}

// ended: a sequence has ended, and this is the place behind it.
func (c *cut) ended(behind int) {
	if c.going {
		c.out(behind)
	}
	c.start, c.going = none, false
}

// out cuts out what is between start and to.
func (c *cut) out(to int) {
	c.keep(c.start)
	c.from = to
}

func (c *cut) keep(to int) {
	if c.kept != c.from {
		copy(c.piece[c.kept:], c.piece[c.from:to])
	}
	c.kept += to - c.from
	c.from = to
}

// end returns what is left of the piece. Its last bytes may be held back: they are not to be shown
// yet. One of them is an ESC that was seen last in what is being cut out, where escaping tells so.
func (c *cut) end(escaping bool) []byte {
	c.held = 0
	switch {
	case c.going:
		c.keep(c.start)
		if c.from = len(c.piece); escaping {
			c.from, c.held = c.next, 1
			c.keep(len(c.piece))
		}
	case c.start != none:
		c.held = len(c.piece) - c.start
		fallthrough
	default:
		c.keep(len(c.piece))
	}
	kept := c.piece[:c.kept]
	c.piece = nil
	return kept
}

package main

import (
	"bytes"

	"github.com/corrald/corral/internal/ecma48"
)

// maxCommand is the size limit of an operating system command, in bytes. Longer ones, as for images
// or the clipboard, are ignored.
const maxCommand = 4 << 10

const (
	charBell   = 0x07
	charEscape = 0x1b
)

// scanner reads the agent's output as a terminal does, as far as the shim needs it: modes, bells
// and operating system commands. It reads every byte, in pieces of any size. It reads the content
// of tmux passthrough sequences (DCS tmux;) as if it were not wrapped, except that it ignores modes
// there. It removes program status (OSC 7501) from the output: see oscfilter.go.
type scanner struct {
	parser    ecma48.Parser
	isWrapped bool // inside a wrapper, whose content the parser reads

	command       [maxCommand]byte // the content of a string: of an OSC, or the start of a possible wrapper
	commandSize   int              // greater than maxCommand if the string does not fit
	isEndedByBell bool             // what onCommand is called with was terminated by a bell, not by ST

	filter oscFilter

	modes   modes
	hasBell bool // a bell rang; the caller clears it

	// onCommand is called with each operating system command, such as "0;title"; the bytes are valid
	// until it returns. onReset is called at each full reset of the terminal (RIS).
	onCommand func(command []byte)
	onReset   func()
}

func (s *scanner) init(osc func([]byte), reset func()) {
	s.modes, s.onCommand, s.onReset = newModes(), osc, reset
}

// scan reads b, whose first bytes may be held ones: see oscFilter. It returns b without the
// sequences to be removed. Most output is plain text, for which scan only searches for single
// bytes.
func (s *scanner) scan(b []byte) (kept []byte) {
	s.filter.begin(b)
	hasBell := bytes.IndexByte(b, charBell) >= 0
	at := 0
	for at < len(b) {
		if b[at] == charEscape && s.mustHold(at, b) {
			break
		}
		if s.isWrapped {
			at += s.readWrapped(b[at:], hasBell)
		} else {
			at += s.read(b[at:], hasBell)
		}
		if s.isOutside() {
			s.filter.endSequence(at)
		}
	}
	return s.filter.finish(at)
}

// mustHold is called at each ESC, with its position in b. It reports whether the rest of b has to
// be held, because what it is depends on bytes that have not arrived yet.
func (s *scanner) mustHold(at int, b []byte) bool {
	if s.isOutside() {
		return s.filter.beginSequence(at)
	}
	return at+1 == len(b) && (s.isWrapped || s.filter.isRemoving)
}

// isOutside reports whether the scanner is outside of all sequences.
func (s *scanner) isOutside() bool { return !s.isWrapped && s.parser.InText() }

// read reads one token and returns its length. A bell in text is only searched for if hasBell is
// true.
func (s *scanner) read(b []byte, hasBell bool) int {
	token, n := s.parser.Next(b)
	switch token {
	case ecma48.Text:
		if hasBell && !s.hasBell {
			s.hasBell = bytes.IndexByte(b[:n], charBell) >= 0
		}
	case ecma48.Control:
		s.hasBell = s.hasBell || b[n-1] == charBell
	case ecma48.EscapeSequence:
		s.handleEscape(s.parser.Final())
	case ecma48.ControlSequence:
		if !s.isWrapped {
			s.modes.handleControl(s.parser.Marker(), s.parser.Params(), s.parser.Final())
		}
	case ecma48.StringPart:
		return s.readString(b[:n])
	case ecma48.StringEnd:
		s.isEndedByBell = b[n-1] == charBell
		s.endString()
	case ecma48.StringAbort:
		s.commandSize = 0
		if s.filter.isRemoving && !s.isWrapped && b[n-1] == charEscape {
			s.parser.Reset() // the sequence that begins there is kept
			return n - 1
		}
	}
	return n
}

func (s *scanner) handleEscape(c byte) {
	if s.isWrapped {
		return
	}
	s.modes.handleEscape(c)
	if c == 'c' && s.onReset != nil {
		s.onReset()
	}
}

// wrapperPrefix starts the content of a passthrough sequence, in which every ESC is doubled.
const wrapperPrefix = "tmux;"

// readString reads a part of the content of a string, and returns how many bytes it read.
func (s *scanner) readString(part []byte) int {
	canBeWrapper := s.parser.Introducer() == 'P' && !s.isWrapped
	if missing := len(wrapperPrefix) - s.commandSize; canBeWrapper && missing > 0 {
		part = part[:min(len(part), missing)]
	}
	copy(s.command[min(s.commandSize, maxCommand):], part)
	s.commandSize += len(part)
	if canBeWrapper && s.commandSize == len(wrapperPrefix) && string(s.command[:s.commandSize]) == wrapperPrefix {
		s.setWrapped(true)
	}
	return len(part)
}

func (s *scanner) endString() {
	size := s.commandSize
	s.commandSize = 0
	if s.parser.Introducer() == ']' && size > 0 && size <= maxCommand && s.onCommand != nil {
		s.onCommand(s.command[:size])
	}
}

// setWrapped is called at the start and at the end of a wrapper's content. A sequence that is
// incomplete there has no effect.
func (s *scanner) setWrapped(is bool) {
	s.isWrapped, s.commandSize = is, 0
	s.parser.Reset()
}

// readWrapped reads a part of a wrapper, which contains more bytes if the first one is ESC. It
// returns how many bytes it read. CAN, SUB and an ESC that begins another sequence abort the
// wrapper.
func (s *scanner) readWrapped(b []byte, hasBell bool) int {
	switch n := bytes.IndexAny(b, "\x1b\x18\x1a"); {
	case n < 0:
		s.readContent(b, hasBell)
		return len(b)
	case n > 0:
		s.readContent(b[:n], hasBell)
		return n
	case b[0] != charEscape:
		s.setWrapped(false)
		return 1
	case b[1] == charEscape:
		s.readContent(b[:1], hasBell)
		return 2
	case b[1] == '\\':
		s.setWrapped(false)
		return 2
	}
	s.setWrapped(false)
	if s.filter.isRemoving { // the sequence that begins there is kept
		return 0
	}
	_, n := s.parser.Next(b[:1])
	return n
}

// readContent reads a part of a wrapper's content.
func (s *scanner) readContent(b []byte, hasBell bool) {
	for len(b) > 0 {
		b = b[s.read(b, hasBell):]
	}
}

package main

import "bytes"

const (
	// maxParams bounds the parameters of a control sequence, in bytes. A longer one means nothing
	// here.
	maxParams = 64
	// maxCommand bounds an operating system command, in bytes. A longer one, as of an image or the
	// clipboard, is passed over.
	maxCommand = 4 << 10
)

const (
	charBell       = 0x07
	charCancel     = 0x18
	charSubstitute = 0x1a
	charEscape     = 0x1b
)

// scanner reads the agent's output as a terminal does, as far as somebody here wants to know of it:
// which modes it sets, that it rings the bell, and what it tells the terminal by operating system
// commands. It sees every byte, in pieces of any size. Its rules are those of ECMA-48, and xterm's
// for what is between OSC, DCS, APC, PM or SOS and its end: a bell in there rings nothing. What is
// passed through tmux (DCS tmux;) it reads as if it was not wrapped. Program status (OSC 7501) it
// cuts out of what is shown: see cut.go.
type scanner struct {
	state  int
	inner  int // of what is wrapped, while it is not known yet whether an ESC is part of it
	wrap   int // how many bytes of the beginning of a wrapper were read; all of them while in one
	params [maxParams]byte
	n      int
	long   bool // the sequence has more parameters than are kept

	command []byte // of the OSC that is being read: in room
	room    [maxCommand]byte
	tooLong bool // for room

	cut cut

	modes modes
	rang  bool                 // a bell was heard; whoever takes note of it sets it back
	osc   func(command []byte) // told of each operating system command, "0;title"; the bytes are its only until it returns
	reset func()               // told of each full reset of the terminal (RIS)
}

// Where in a sequence the scanner is.
const (
	inText       = iota
	inEscape     // behind ESC
	inControl    // in a control sequence
	inCommand    // in an operating system command
	inCommandEnd // behind ESC in it
	inString     // in any other string
	inStringEnd  // behind ESC in it
	inWrapperEnd // behind ESC in a wrapper: one more makes it one of what is wrapped, a backslash ends the wrapper
)

// wrapper is how a sequence begins that tmux is to pass through. In it every ESC is doubled.
const wrapper = "tmux;"

func (s *scanner) init(osc func([]byte), reset func()) {
	s.modes, s.osc, s.reset, s.cut.start = newModes(), osc, reset, none
}

// scan follows the output b, of which the first bytes were read before and held back: see cut. Most
// of it is text, which is looked at by nothing slower than a search for one byte.
func (s *scanner) scan(b []byte) (kept []byte) {
	s.cut.begin(b)
	bells := bytes.IndexByte(b, charBell) >= 0
	for at := s.cut.held; at < len(b); {
		rest := b[at:]
		switch s.state {
		case inText:
			n := untilEscape(rest)
			if s.wrapped() {
				n = s.wrappedText(rest[:n], at)
			}
			if bells && !s.rang {
				s.rang = bytes.IndexByte(rest[:n], charBell) >= 0
			}
			if at += n; n < len(rest) && rest[n] == charEscape {
				s.escaped(at)
				at++
			}
		case inCommand, inString:
			at += s.readString(rest, at)
		case inControl:
			if at += s.readParams(rest); at < len(b) {
				s.next(b[at], at)
				at++
			}
		default:
			s.next(rest[0], at)
			at++
		}
	}
	return s.cut.end(s.state == inWrapperEnd || !s.wrapped() && (s.state == inCommandEnd || s.state == inStringEnd))
}

// wrappedText takes text in a wrapper, and returns how much of it that is: CAN and SUB break the
// wrapper off.
func (s *scanner) wrappedText(b []byte, at int) int {
	if i := bytes.IndexAny(b, cancels); i >= 0 {
		s.brokenWrapper(at + i + 1)
		return i + 1
	}
	if len(b) > 0 {
		s.cut.cannotBegin()
	}
	return len(b)
}

// brokenWrapper is called where a wrapper was broken off, with the place behind it.
func (s *scanner) brokenWrapper(behind int) {
	s.wrap = noWrapper
	s.ended(behind)
}

// cancels are the characters that break off whatever is being read.
const cancels = "\x18\x1a"

// untilEscape returns how many bytes there are before the first ESC.
func untilEscape(b []byte) int {
	if n := bytes.IndexByte(b, charEscape); n >= 0 {
		return n
	}
	return len(b)
}

// escaped takes the ESC at this place.
func (s *scanner) escaped(at int) {
	if s.state == inCommand {
		s.cut.cannotBegin() // a command that is over before it says what it is
	}
	switch {
	case s.wrapped():
		s.cut.escape(at)
		s.inner, s.state = s.state, inWrapperEnd
	case s.state == inCommand || s.state == inString:
		s.cut.escape(at)
		s.state++
	default:
		s.cut.cannotBegin()
		if s.state == inText {
			s.cut.mayBegin(at)
		}
		s.state = inEscape
	}
}

// wrapped tells whether this is inside of a wrapper.
func (s *scanner) wrapped() bool { return s.wrap == len(wrapper) }

// readString reads on in a string, which goes on at this place of the output, and returns how many
// bytes it took. It ends with ST, which is ESC \, and a command also with the bell; CAN and SUB
// break it off, and so does any other escape sequence.
func (s *scanner) readString(b []byte, at int) int {
	n := untilEscape(b)
	ended := byte(0)
	if n < len(b) {
		ended = charEscape
	}
	for _, c := range []byte{charBell, charCancel, charSubstitute} {
		if c == charBell && s.state != inCommand {
			continue
		}
		if i := bytes.IndexByte(b[:n], c); i >= 0 {
			n, ended = i, c
		}
	}
	if s.state == inCommand {
		s.collect(b[:n])
	} else if s.mayWrap() {
		if taken := s.beginWrapper(b[:n]); s.wrapped() {
			return taken
		}
	}
	switch ended {
	case 0: // it goes on in the next piece
		return n
	case charEscape:
		s.escaped(at + n)
		return n + 1
	case charBell:
		s.obeyCommand()
	default:
		s.wrap = noWrapper
	}
	s.ended(at + n + 1)
	return n + 1
}

// ended is called at the end of a sequence, with the place behind it.
func (s *scanner) ended(behind int) {
	s.state = inText
	if !s.wrapped() {
		s.cut.ended(behind)
	}
}

// mayWrap tells whether what was read of the string so far is the beginning of a wrapper.
func (s *scanner) mayWrap() bool { return s.wrap >= 0 && !s.wrapped() }

// beginWrapper reads on in a string that may be one, and returns how many bytes it took.
func (s *scanner) beginWrapper(b []byte) int {
	for i, c := range b {
		if c != wrapper[s.wrap] {
			s.wrap = noWrapper
			s.cut.cannotBegin()
			return i
		}
		if s.wrap++; s.wrapped() {
			s.state = inText
			return i + 1
		}
	}
	return len(b)
}

// noWrapper is the state of wrap in anything else.
const noWrapper = -1

func (s *scanner) collect(part []byte) {
	if len(s.command)+len(part) > len(s.room) {
		s.tooLong = true
		part = part[:len(s.room)-len(s.command)]
	}
	s.command = append(s.command, part...)
	if s.cut.start == none || s.cut.going {
		return
	}
	switch n := min(len(s.command), len(statusCommand)); {
	case string(s.command[:n]) != statusCommand[:n]:
		s.cut.cannotBegin()
	case n == len(statusCommand):
		s.cut.going = true
	}
}

func (s *scanner) obeyCommand() {
	if !s.tooLong && len(s.command) > 0 && s.osc != nil {
		s.osc(s.command)
	}
}

// next takes one byte of a sequence, which is at this place of the output.
func (s *scanner) next(c byte, at int) {
	switch {
	case s.state == inWrapperEnd:
		s.wrapperEscaped(c, at)
		return
	case s.state == inCommandEnd && c == '\\':
		s.obeyCommand()
		s.ended(at + 1)
		return
	case s.state == inStringEnd && c == '\\':
		s.ended(at + 1)
		return
	case s.state == inCommandEnd || s.state == inStringEnd:
		s.brokenOff()
	}
	switch {
	case c == charEscape:
		s.escaped(at)
	case c == charCancel || c == charSubstitute:
		s.cut.cannotBegin()
		s.brokenWrapper(at + 1)
	case c < ' ': // other control characters are obeyed in the middle of it
		s.rang = s.rang || c == charBell
		s.cut.cannotBegin()
	case s.state == inEscape:
		s.escape(c)
	case c >= 0x40:
		s.state = inText
		if !s.long && !s.wrapped() {
			s.modes.control(s.params[:s.n], c)
		}
	}
}

// readParams reads the parameters of a control sequence, and returns how many bytes they are.
func (s *scanner) readParams(b []byte) int {
	for i, c := range b {
		switch {
		case c < ' ' || c >= 0x40:
			return i
		case s.n == len(s.params):
			s.long = true
		default:
			s.params[s.n] = c
			s.n++
		}
	}
	return len(b)
}

// brokenOff is called behind an ESC that does not end a string but breaks it off. If the string is
// being cut out, what begins there is shown.
func (s *scanner) brokenOff() {
	s.state = inEscape
	if !s.wrapped() {
		s.cut.brokenOff()
	}
}

// wrapperEscaped takes the byte behind an ESC in a wrapper.
func (s *scanner) wrapperEscaped(c byte, at int) {
	switch c {
	case charEscape:
		s.state = s.inner
		if s.state == inCommand || s.state == inString {
			s.state++
		} else {
			s.state = inEscape
		}
	case '\\':
		s.brokenWrapper(at + 1)
	default:
		s.wrap = noWrapper
		s.brokenOff()
		s.next(c, at)
	}
}

func (s *scanner) escape(c byte) {
	s.state = inText
	switch c {
	case '[':
		s.state, s.n, s.long = inControl, 0, false
		s.cut.cannotBegin()
	case ']':
		s.state, s.command, s.tooLong = inCommand, s.room[:0], false
	case 'P', 'X', '^', '_', 'k': // DCS, SOS, PM, APC, and tmux's own title
		s.state = inString
		if c == 'P' && !s.wrapped() {
			s.wrap = 0
			return
		}
		s.cut.cannotBegin()
		if !s.wrapped() {
			s.wrap = noWrapper
		}
	default:
		s.cut.cannotBegin()
		if s.wrapped() {
			return
		}
		s.modes.escape(c)
		if c == 'c' && s.reset != nil {
			s.reset()
		}
	}
}

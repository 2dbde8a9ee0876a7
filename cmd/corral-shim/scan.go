package main

import "bytes"

const (
	// maxParams bounds the parameters of a control sequence, in bytes. A longer one means nothing here.
	maxParams = 64
	// maxCommand bounds an operating system command, in bytes. A longer one, as of an image or the clipboard, is passed over.
	maxCommand = 4 << 10
)

const (
	charBell       = 0x07
	charCancel     = 0x18
	charSubstitute = 0x1a
	charEscape     = 0x1b
)

// scanner reads the agent's output as a terminal does, as far as somebody here wants to know of it: which modes it sets, that it rings the bell, and
// what it tells the terminal by operating system commands. It sees every byte, in pieces of any size. Its rules are those of ECMA-48, and xterm's
// for what is between OSC, DCS, APC, PM or SOS and its end: a bell in there rings nothing.
type scanner struct {
	state  int
	params [maxParams]byte
	n      int
	long   bool // the sequence has more parameters than are kept

	command []byte // of the OSC that is being read: in room
	room    [maxCommand]byte
	tooLong bool // for room

	modes modes
	rang  bool                 // a bell was heard; whoever takes note of it sets it back
	osc   func(command []byte) // told of each operating system command, "0;title"; the bytes are its only until it returns
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
)

func (s *scanner) init(osc func([]byte)) {
	s.modes, s.osc = newModes(), osc
}

// scan follows the output b. Most of it is text, which is looked at by nothing slower than a search for one byte.
func (s *scanner) scan(b []byte) {
	bells := bytes.IndexByte(b, charBell) >= 0
	for len(b) > 0 {
		switch s.state {
		case inText:
			text, rest := upToEscape(b)
			if bells && !s.rang {
				s.rang = bytes.IndexByte(text, charBell) >= 0
			}
			if len(text) < len(b) {
				s.state = inEscape
			}
			b = rest
		case inCommand, inString:
			b = s.readString(b)
		default:
			s.next(b[0])
			b = b[1:]
		}
	}
}

// upToEscape returns what is before the first ESC, and what is behind it.
func upToEscape(b []byte) (before, behind []byte) {
	before, behind, _ = bytes.Cut(b, []byte{charEscape})
	return before, behind
}

// readString reads on in a string, and returns what is behind the part of it that is in b. It ends with ST, which is ESC \, and a command also with the
// bell; CAN and SUB break it off, and so does any other escape sequence.
func (s *scanner) readString(b []byte) []byte {
	part, rest := upToEscape(b)
	ended := byte(0)
	if len(part) < len(b) {
		ended = charEscape
	}
	for _, c := range []byte{charBell, charCancel, charSubstitute} {
		if c == charBell && s.state != inCommand {
			continue
		}
		if i := bytes.IndexByte(part, c); i >= 0 {
			part, rest, ended = part[:i], b[i+1:], c
		}
	}
	if s.state == inCommand {
		s.collect(part)
	}
	switch ended {
	case 0: // it goes on in the next piece
		return rest
	case charEscape:
		s.state++
		return rest
	case charBell:
		s.obeyCommand()
	}
	s.state = inText
	return rest
}

func (s *scanner) collect(part []byte) {
	if len(s.command)+len(part) > len(s.room) {
		s.tooLong = true
		return
	}
	s.command = append(s.command, part...)
}

func (s *scanner) obeyCommand() {
	if !s.tooLong && len(s.command) > 0 && s.osc != nil {
		s.osc(s.command)
	}
}

// next takes one byte of a sequence.
func (s *scanner) next(c byte) {
	if s.state == inCommandEnd || s.state == inStringEnd {
		whole := s.state == inCommandEnd
		s.state = inEscape
		if c == '\\' {
			s.state = inText
			if whole {
				s.obeyCommand()
			}
			return
		}
	}
	switch {
	case c == charEscape:
		s.state = inEscape
	case c == charCancel || c == charSubstitute:
		s.state = inText
	case c < ' ': // other control characters are obeyed in the middle of it
		s.rang = s.rang || c == charBell
	case s.state == inEscape:
		s.escape(c)
	case c >= 0x40:
		s.state = inText
		if !s.long {
			s.modes.control(s.params[:s.n], c)
		}
	case s.n == len(s.params):
		s.long = true
	default:
		s.params[s.n] = c
		s.n++
	}
}

func (s *scanner) escape(c byte) {
	s.state = inText
	switch c {
	case '[':
		s.state, s.n, s.long = inControl, 0, false
	case ']':
		s.state, s.command, s.tooLong = inCommand, s.room[:0], false
	case 'P', 'X', '^', '_', 'k': // DCS, SOS, PM, APC, and tmux's own title
		s.state = inString
	default:
		s.modes.escape(c)
	}
}

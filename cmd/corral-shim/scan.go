package main

import "bytes"

const (
	// maxParams is the size limit for the parameters of a control sequence, in bytes. Longer sequences
	// are ignored.
	maxParams = 64
	// maxCommand is the size limit of an operating system command, in bytes. Longer ones, as for
	// images or the clipboard, are ignored.
	maxCommand = 4 << 10
)

const (
	charBell       = 0x07
	charCancel     = 0x18
	charSubstitute = 0x1a
	charEscape     = 0x1b
)

// scanner parses the agent's output as a terminal does, as far as the shim needs it: modes, bells
// and operating system commands. It reads every byte, in pieces of any size. It follows ECMA-48,
// and xterm for the content of OSC, DCS, APC, PM and SOS: a bell within them does not ring. It
// reads the content of tmux passthrough sequences (DCS tmux;) as if it were not wrapped. It removes
// program status (OSC 7501) from the output: see oscfilter.go.
type scanner struct {
	state        int
	wrappedState int // state within a wrapper before an ESC that may belong to the content

	// How many bytes of wrapperPrefix were read; all of them while inside a wrapper, or notWrapper.
	wrapperRead   int
	params        [maxParams]byte
	paramCount    int
	paramsTooLong bool // the sequence exceeds params

	command        []byte // the OSC that is being read, in commandBuffer
	commandBuffer  [maxCommand]byte
	commandTooLong bool // the OSC exceeds commandBuffer

	filter oscFilter

	modes   modes
	hasBell bool // a bell rang; the caller clears it

	// onCommand is called with each operating system command, such as "0;title"; the bytes are valid
	// until it returns. onReset is called at each full reset of the terminal (RIS).
	onCommand func(command []byte)
	onReset   func()
}

// The states of the scanner.
const (
	inText       = iota
	inEscape     // after ESC
	inControl    // in a control sequence
	inCommand    // in an operating system command
	inCommandEnd // after ESC in it
	inString     // in any other string
	inStringEnd  // after ESC in it
	inWrapperEnd // after ESC in a wrapper; a second ESC belongs to the content, a backslash ends it
)

// wrapperPrefix starts the content of a passthrough sequence, in which every ESC is doubled.
const wrapperPrefix = "tmux;"

func (s *scanner) init(osc func([]byte), reset func()) {
	s.modes, s.onCommand, s.onReset, s.filter.candidate = newModes(), osc, reset, noPosition
}

// scan parses b, whose first bytes were held and already scanned: see oscFilter. It returns b
// without the sequences to be removed. Most output is plain text, for which scan only searches for
// single bytes.
func (s *scanner) scan(b []byte) (kept []byte) {
	s.filter.begin(b)
	hasBell := bytes.IndexByte(b, charBell) >= 0
	for at := s.filter.held; at < len(b); {
		rest := b[at:]
		switch s.state {
		case inText:
			n := untilEscape(rest)
			if s.isWrapped() {
				n = s.readWrappedText(rest[:n], at)
			}
			if hasBell && !s.hasBell {
				s.hasBell = bytes.IndexByte(rest[:n], charBell) >= 0
			}
			if at += n; n < len(rest) && rest[n] == charEscape {
				s.handleEscape(at)
				at++
			}
		case inCommand, inString:
			at += s.readString(rest, at)
		case inControl:
			if at += s.readParams(rest); at < len(b) {
				s.readByte(b[at], at)
				at++
			}
		default:
			s.readByte(rest[0], at)
			at++
		}
	}
	inEnd := s.state == inCommandEnd || s.state == inStringEnd
	return s.filter.finish(s.state == inWrapperEnd || !s.isWrapped() && inEnd)
}

// readWrappedText reads text in a wrapper and returns how many bytes it read: CAN and SUB abort the
// wrapper.
func (s *scanner) readWrappedText(b []byte, at int) int {
	if i := bytes.IndexAny(b, cancels); i >= 0 {
		s.endWrapper(at + i + 1)
		return i + 1
	}
	if len(b) > 0 {
		s.filter.dropCandidate()
	}
	return len(b)
}

// endWrapper is called at the end of a wrapper, and when a wrapper or a sequence was aborted, with
// the position after it.
func (s *scanner) endWrapper(end int) {
	s.wrapperRead = notWrapper
	s.handleEnd(end)
}

// cancels are the characters that abort any sequence.
const cancels = "\x18\x1a"

// untilEscape returns the number of bytes before the first ESC.
func untilEscape(b []byte) int {
	if n := bytes.IndexByte(b, charEscape); n >= 0 {
		return n
	}
	return len(b)
}

// handleEscape handles the ESC at this position.
func (s *scanner) handleEscape(at int) {
	if s.state == inCommand {
		s.filter.dropCandidate() // a command that ends before its number is complete
	}
	switch {
	case s.isWrapped():
		s.filter.noteEscape(at)
		s.wrappedState, s.state = s.state, inWrapperEnd
	case s.state == inCommand || s.state == inString:
		s.filter.noteEscape(at)
		s.state++
	default:
		s.filter.dropCandidate()
		if s.state == inText {
			s.filter.beginCandidate(at)
		}
		s.state = inEscape
	}
}

// isWrapped reports whether the scanner is inside a wrapper.
func (s *scanner) isWrapped() bool { return s.wrapperRead == len(wrapperPrefix) }

// readString continues to read a string at this position of the output and returns how many bytes
// it read. A string ends with ST, which is ESC \, and a command also with a bell. CAN, SUB and any
// other escape sequence abort it.
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
		s.appendCommand(b[:n])
	} else if s.canBeWrapper() {
		if taken := s.readWrapperPrefix(b[:n]); s.isWrapped() {
			return taken
		}
	}
	switch ended {
	case 0: // the string continues in the next piece
		return n
	case charEscape:
		s.handleEscape(at + n)
		return n + 1
	case charBell:
		s.dispatchCommand()
	default:
		s.wrapperRead = notWrapper
	}
	s.handleEnd(at + n + 1)
	return n + 1
}

// handleEnd is called at the end of a sequence, with the position after it.
func (s *scanner) handleEnd(end int) {
	s.state = inText
	if !s.isWrapped() {
		s.filter.handleEnd(end)
	}
}

// canBeWrapper reports whether the part of the string read so far is a prefix of a wrapper.
func (s *scanner) canBeWrapper() bool { return s.wrapperRead >= 0 && !s.isWrapped() }

// readWrapperPrefix continues to read a string that may be a wrapper and returns how many bytes it
// read.
func (s *scanner) readWrapperPrefix(b []byte) int {
	for i, c := range b {
		if c != wrapperPrefix[s.wrapperRead] {
			s.wrapperRead = notWrapper
			s.filter.dropCandidate()
			return i
		}
		if s.wrapperRead++; s.isWrapped() {
			s.state = inText
			return i + 1
		}
	}
	return len(b)
}

// notWrapper is the value of wrapperRead in any other string.
const notWrapper = -1

func (s *scanner) appendCommand(part []byte) {
	if len(s.command)+len(part) > len(s.commandBuffer) {
		s.commandTooLong = true
		part = part[:len(s.commandBuffer)-len(s.command)]
	}
	s.command = append(s.command, part...)
	if s.filter.candidate == noPosition || s.filter.isRemoving {
		return
	}
	switch n := min(len(s.command), len(statusPrefix)); {
	case string(s.command[:n]) != statusPrefix[:n]:
		s.filter.dropCandidate()
	case n == len(statusPrefix):
		s.filter.isRemoving = true
	}
}

func (s *scanner) dispatchCommand() {
	if !s.commandTooLong && len(s.command) > 0 && s.onCommand != nil {
		s.onCommand(s.command)
	}
}

// readByte reads one byte of a sequence, at this position of the output.
func (s *scanner) readByte(c byte, at int) {
	switch {
	case s.state == inWrapperEnd:
		s.readWrapperEscape(c, at)
		return
	case s.state == inCommandEnd && c == '\\':
		s.dispatchCommand()
		s.handleEnd(at + 1)
		return
	case s.state == inStringEnd && c == '\\':
		s.handleEnd(at + 1)
		return
	case s.state == inCommandEnd || s.state == inStringEnd:
		s.abortString()
	}
	switch {
	case c == charEscape:
		s.handleEscape(at)
	case c == charCancel || c == charSubstitute:
		s.filter.dropCandidate()
		s.endWrapper(at + 1)
	case c < ' ': // other control characters act within a sequence
		s.hasBell = s.hasBell || c == charBell
		s.filter.dropCandidate()
	case s.state == inEscape:
		s.readEscape(c)
	case c >= 0x40:
		s.state = inText
		if !s.paramsTooLong && !s.isWrapped() {
			s.modes.handleControl(s.params[:s.paramCount], c)
		}
	}
}

// readParams reads parameters of a control sequence and returns how many bytes it read.
func (s *scanner) readParams(b []byte) int {
	for i, c := range b {
		switch {
		case c < ' ' || c >= 0x40:
			return i
		case s.paramCount == len(s.params):
			s.paramsTooLong = true
		default:
			s.params[s.paramCount] = c
			s.paramCount++
		}
	}
	return len(b)
}

// abortString is called after an ESC that aborts a string instead of ending it. If the string is
// being removed, the sequence that starts there is kept.
func (s *scanner) abortString() {
	s.state = inEscape
	if !s.isWrapped() {
		s.filter.handleAbort()
	}
}

// readWrapperEscape reads the byte after an ESC in a wrapper.
func (s *scanner) readWrapperEscape(c byte, at int) {
	switch c {
	case charEscape:
		s.state = s.wrappedState
		if s.state == inCommand || s.state == inString {
			s.state++
		} else {
			s.state = inEscape
		}
	case '\\':
		s.endWrapper(at + 1)
	default:
		s.wrapperRead = notWrapper
		s.abortString()
		s.readByte(c, at)
	}
}

func (s *scanner) readEscape(c byte) {
	s.state = inText
	switch c {
	case '[':
		s.state, s.paramCount, s.paramsTooLong = inControl, 0, false
		s.filter.dropCandidate()
	case ']':
		s.state, s.command, s.commandTooLong = inCommand, s.commandBuffer[:0], false
	case 'P', 'X', '^', '_', 'k': // DCS, SOS, PM, APC, and tmux's title sequence
		s.state = inString
		if c == 'P' && !s.isWrapped() {
			s.wrapperRead = 0
			return
		}
		s.filter.dropCandidate()
		if !s.isWrapped() {
			s.wrapperRead = notWrapper
		}
	default:
		s.filter.dropCandidate()
		if s.isWrapped() {
			return
		}
		s.modes.handleEscape(c)
		if c == 'c' && s.onReset != nil {
			s.onReset()
		}
	}
}

// Package ecma48 divides what a program writes to its terminal into text and control functions:
// escape sequences, control sequences and control strings, as ECMA-48 and xterm's ctlseqs define
// them. In what these leave open, it follows tmux, in which every agent runs.
package ecma48

import "bytes"

// Control characters that a Parser interprets.
const (
	bell       = 0x07
	cancel     = 0x18
	substitute = 0x1a
	escape     = 0x1b
)

// Token is the kind of what a Parser has read.
type Token uint8

const (
	// Nothing is a part of a sequence that is not complete, or that has no effect: it was cancelled,
	// is invalid or too long, or contains an intermediate byte.
	Nothing Token = iota
	// Text is what is between sequences, including all control characters except ESC.
	Text
	// Control is a part of an incomplete sequence whose last byte is a control character, which takes
	// effect within the sequence.
	Control
	// EscapeSequence is the end of an escape sequence of two bytes: see Final.
	EscapeSequence
	// ControlSequence is the end of a control sequence (CSI): see Marker, Params and Final.
	ControlSequence
	// StringPart is a part of the content of a control string: see Introducer.
	StringPart
	// StringEnd is the end of a control string: ST, or a bell for an OSC.
	StringEnd
	// StringAbort ends a control string without effect: CAN, SUB, or an ESC that begins another
	// sequence. The latter is the token's last byte, unless it was read before.
	StringAbort
)

// Parser reads the output of a program, in pieces of any size. Its zero value expects text. It does
// not allocate, and it does not decode characters: bytes from 0x80 on are text, or content of a
// string, and are ignored within other sequences.
type Parser struct {
	state      state
	isIgnored  bool // the sequence has no effect
	introducer byte
	final      byte
	params     [maxParams]byte // with the private marker
	paramCount int
}

// maxParams is the size limit for the parameters of a control sequence, in bytes. Longer sequences
// have no effect.
const maxParams = 64

type state uint8

const (
	inText         state = iota
	inEscape             // after ESC
	inControl            // after CSI
	inString             // in a control string
	inStringEscape       // after ESC in a control string
)

// Next reads the token that b begins with, and returns its length. The length is 0 only for a
// StringAbort. b must not be empty.
func (p *Parser) Next(b []byte) (Token, int) {
	switch p.state {
	case inText:
		if b[0] != escape {
			return Text, lengthUntil(b, escape)
		}
	case inString:
		return p.readString(b)
	case inStringEscape:
		if b[0] == '\\' {
			p.state = inText
			return StringEnd, 1
		}
		p.beginEscape()
		return StringAbort, 0
	}
	return p.readSequence(b)
}

// Reset makes the parser expect text.
func (p *Parser) Reset() { p.state = inText }

// InText reports whether the parser is outside of any sequence.
func (p *Parser) InText() bool { return p.state == inText }

// Final returns the byte that has ended the last EscapeSequence or ControlSequence.
func (p *Parser) Final() byte { return p.final }

// Marker returns the private marker of the last ControlSequence, one of "<=>?", or 0 if it has
// none.
func (p *Parser) Marker() byte {
	if p.paramCount > 0 && p.params[0] >= '<' {
		return p.params[0]
	}
	return 0
}

// Params returns the parameters of the last ControlSequence. They are valid until Next is called.
func (p *Parser) Params() Params {
	first := 0
	if p.Marker() != 0 {
		first = 1
	}
	return p.params[first:p.paramCount]
}

// Introducer returns the byte after ESC that has begun the current control string: ']' for OSC, 'P'
// for DCS, 'X' for SOS, '^' for PM, '_' for APC, 'k' for a title as screen and tmux know it.
func (p *Parser) Introducer() byte { return p.introducer }

func (p *Parser) beginEscape() { p.state, p.isIgnored = inEscape, false }

// readSequence reads bytes of an escape sequence or control sequence.
func (p *Parser) readSequence(b []byte) (Token, int) {
	for i, c := range b {
		switch {
		case c >= '0' && c < '@' && p.state == inControl:
			p.addParam(c)
		case c >= '0' && c <= '~':
			if token := p.endSequence(c); p.state != inControl {
				return token, i + 1
			}
		case c == escape:
			p.beginEscape()
		case c == cancel || c == substitute:
			p.state = inText
			return Nothing, i + 1
		case c < ' ':
			return Control, i + 1
		case c < '0':
			p.isIgnored = true // an intermediate byte
		}
	}
	return Nothing, len(b)
}

// endSequence reads the final byte of a sequence, or the byte after ESC that begins a longer one.
func (p *Parser) endSequence(c byte) Token {
	token := EscapeSequence
	switch {
	case p.state == inControl:
		token = ControlSequence
	case p.isIgnored:
	case c == '[':
		p.state, p.paramCount = inControl, 0
		return Nothing
	case c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_' || c == 'k':
		p.state, p.introducer = inString, c
		return Nothing
	}
	p.state, p.final = inText, c
	if p.isIgnored {
		return Nothing
	}
	return token
}

// addParam appends a byte to the parameters. A private marker is only valid at their beginning.
func (p *Parser) addParam(c byte) {
	if p.paramCount == maxParams || c >= '<' && p.paramCount > 0 {
		p.isIgnored = true
		return
	}
	p.params[p.paramCount] = c
	p.paramCount++
}

// readString reads content of a control string, or what ends it.
func (p *Parser) readString(b []byte) (Token, int) {
	if n := p.contentLength(b); n > 0 {
		return StringPart, n
	}
	switch b[0] {
	case bell:
		p.state = inText
		return StringEnd, 1
	case escape:
		p.state = inStringEscape
		if len(b) == 1 {
			return Nothing, 1
		}
		token, n := p.Next(b[1:])
		return token, 1 + n
	}
	p.state = inText
	return StringAbort, 1
}

// contentLength returns the number of bytes before the first one that may end the string.
func (p *Parser) contentLength(b []byte) int {
	for _, c := range [...]byte{escape, cancel, substitute, bell} {
		if c == bell && p.introducer != ']' {
			break
		}
		b = b[:lengthUntil(b, c)]
	}
	return len(b)
}

// lengthUntil returns the number of bytes before the first c.
func lengthUntil(b []byte, c byte) int {
	if i := bytes.IndexByte(b, c); i >= 0 {
		return i
	}
	return len(b)
}

// Params are the parameters of a control sequence, separated by semicolons.
type Params []byte

// maxParam is the greatest value of a parameter, as in xterm. Greater numbers are reduced to it.
const maxParam = 1<<16 - 1

// Cut returns the value of the first parameter, and the parameters after it. The value is 0 if the
// parameter is omitted or not a number.
func (p Params) Cut() (n int, rest Params) {
	first, rest, _ := bytes.Cut(p, []byte{';'})
	for _, c := range first {
		if c < '0' || c > '9' {
			return 0, rest
		}
		n = min(n*10+int(c-'0'), maxParam)
	}
	return n, rest
}

// At returns the value of the i-th parameter, beginning with 0.
func (p Params) At(i int) int {
	for range i {
		_, p = p.Cut()
	}
	n, _ := p.Cut()
	return n
}

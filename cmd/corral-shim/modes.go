package main

import (
	"bytes"
	"strconv"
)

// maxParams bounds the parameters of a control sequence, in bytes. A longer one changes no mode that is followed here.
const maxParams = 64

// followed are the private modes of the terminal (DECSET) that a program switches on once and never again: a pane that joins later has to be
// told them. The order is the one in which they are restored.
var followed = [...]int{1049, 1047, 47, 1, 7, 25, 12, 66, 1000, 1002, 1003, 1005, 1006, 1007, 1015, 1004, 2004, 2031}

// initial are the modes of a terminal that was reset: autowrap, and a cursor that can be seen.
const initial = 1<<4 | 1<<5

// modes follows what the agent's output does to the modes of a terminal. It sees every byte, in pieces of any size.
type modes struct {
	state  int
	params [maxParams]byte
	n      int
	long   bool // the sequence has more parameters than are kept

	private  uint32 // by index in followed
	keypad   bool   // DECKPAM
	paste    bool   // bracketed paste
	other    int    // XTMODKEYS: modifyOtherKeys
	keyboard []int  // flags of the kitty keyboard protocol, the last ones valid
}

const (
	ground = iota
	escape
	control
)

func newModes() modes { return modes{private: initial} }

// scan follows the output b.
func (m *modes) scan(b []byte) {
	for len(b) > 0 {
		if m.state == ground {
			i := bytes.IndexByte(b, 0x1b)
			if i < 0 {
				return
			}
			m.state = escape
			b = b[i+1:]
			continue
		}
		m.next(b[0])
		b = b[1:]
	}
}

func (m *modes) next(c byte) {
	switch {
	case c == 0x1b:
		m.state = escape
	case c == 0x18 || c == 0x1a: // CAN and SUB abort a sequence
		m.state = ground
	case c < ' ': // other control characters are obeyed in the middle of it
	case m.state == escape:
		m.escape(c)
	case c >= 0x40:
		m.state = ground
		if !m.long {
			m.control(c)
		}
	case m.n == len(m.params):
		m.long = true
	default:
		m.params[m.n] = c
		m.n++
	}
}

func (m *modes) escape(c byte) {
	m.state = ground
	switch c {
	case '[':
		m.state, m.n, m.long = control, 0, false
	case 'c': // RIS
		*m = newModes()
	case '=', '>':
		m.keypad = c == '='
	}
}

// control obeys the control sequence that ends with c.
func (m *modes) control(c byte) {
	if m.n == 0 {
		return
	}
	prefix, p := m.params[0], m.params[1:m.n]
	switch {
	case prefix == '?' && (c == 'h' || c == 'l'):
		m.set(p, c == 'h')
	case c == 'u':
		m.setKeyboard(prefix, p)
	case prefix == '>' && c == 'm':
		if kind, rest := param(p); kind == 4 {
			m.other, _ = param(rest)
		}
	}
}

func (m *modes) set(p []byte, on bool) {
	for len(p) > 0 {
		var mode int
		mode, p = param(p)
		if mode == 2004 {
			m.paste = on
		}
		for i, f := range followed {
			switch {
			case f != mode:
			case on:
				m.private |= 1 << i
			default:
				m.private &^= 1 << i
			}
		}
	}
}

// setKeyboard follows the kitty keyboard protocol: > pushes flags, < pops some, = changes the current ones.
func (m *modes) setKeyboard(prefix byte, p []byte) {
	n, rest := param(p)
	switch prefix {
	case '>':
		if len(m.keyboard) < 16 {
			m.keyboard = append(m.keyboard, n)
		}
	case '<':
		m.keyboard = m.keyboard[:max(len(m.keyboard)-max(n, 1), 0)]
	case '=':
		how, _ := param(rest)
		if len(m.keyboard) == 0 {
			m.keyboard = append(m.keyboard, 0)
		}
		flags := &m.keyboard[len(m.keyboard)-1]
		switch how {
		case 2:
			*flags |= n
		case 3:
			*flags &^= n
		default:
			*flags = n
		}
	}
}

// param reads the first of the parameters p, 0 if it is left out, and returns those that follow.
func param(p []byte) (n int, rest []byte) {
	first, rest, _ := bytes.Cut(p, []byte{';'})
	for _, c := range first {
		if c < '0' || c > '9' || n > 1<<16 {
			return 0, rest
		}
		n = n*10 + int(c-'0')
	}
	return n, rest
}

// restore appends what puts a terminal that was just reset into these modes.
func (m *modes) restore(b []byte) []byte {
	for i, f := range followed {
		on := m.private&(1<<i) != 0
		if on == (initial&(1<<i) != 0) {
			continue
		}
		b = strconv.AppendInt(append(b, "\x1b[?"...), int64(f), 10)
		if on {
			b = append(b, 'h')
		} else {
			b = append(b, 'l')
		}
	}
	if m.keypad {
		b = append(b, "\x1b="...)
	}
	if m.other != 0 {
		b = append(strconv.AppendInt(append(b, "\x1b[>4;"...), int64(m.other), 10), 'm')
	}
	for _, flags := range m.keyboard {
		b = append(strconv.AppendInt(append(b, "\x1b[>"...), int64(flags), 10), 'u')
	}
	return b
}

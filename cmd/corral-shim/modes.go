package main

import (
	"bytes"
	"strconv"
)

// followed are the private modes of the terminal (DECSET) that a program switches on once and never
// again: a pane that joins later has to be told them. The order is the one in which they are
// restored.
var followed = [...]int{1049, 1047, 47, 1, 7, 25, 12, 66, 1000, 1002, 1003, 1005, 1006, 1007, 1015, 1004, 2004, 2031}

// initial are the modes of a terminal that was reset: autowrap, and a cursor that can be seen.
const initial = 1<<4 | 1<<5

// cursorKeys is DECCKM: arrow keys send SS3 instead of CSI.
const cursorKeys = 1 << 3

// modes is what the agent's output has done to the modes of its terminal.
type modes struct {
	private  uint32 // by index in followed
	keypad   bool   // DECKPAM
	paste    bool   // bracketed paste
	other    int    // XTMODKEYS: modifyOtherKeys
	keyboard []int  // flags of the kitty keyboard protocol, the last ones valid
}

func newModes() modes { return modes{private: initial} }

// escape obeys the escape sequence of one byte.
func (m *modes) escape(c byte) {
	switch c {
	case 'c': // RIS
		*m = newModes()
	case '=', '>':
		m.keypad = c == '='
	}
}

// control obeys the control sequence that has these parameters and ends with c.
func (m *modes) control(params []byte, c byte) {
	if len(params) == 0 {
		return
	}
	prefix, p := params[0], params[1:]
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

// setKeyboard follows the kitty keyboard protocol: > pushes flags, < pops some, = changes the
// current ones.
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

// restore returns what puts a terminal that was just reset into these modes.
func (m *modes) restore() []byte {
	var b []byte
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

package main

import (
	"strconv"

	"github.com/corrald/corral/internal/ecma48"
)

// trackedModes are the private modes of the terminal (DECSET) that a program sets once, so that the
// shim has to set them in a pane that joins later. They are restored in this order.
var trackedModes = [...]int{
	1049, 1047, 47, 1, 7, 25, 12, 66, 1000, 1002, 1003, 1005, 1006, 1007, 1015, 1004, 2004, 2031,
}

// initialModes are the modes of a terminal after a reset: autowrap and a visible cursor.
const initialModes = 1<<4 | 1<<5

// cursorKeys is DECCKM: arrow keys send SS3 instead of CSI.
const cursorKeys = 1 << 3

// modes are the modes that the agent's output has set in its terminal.
type modes struct {
	private         uint32 // bit set, by index in trackedModes
	keypad          bool   // DECKPAM
	paste           bool   // bracketed paste
	modifyOtherKeys int    // XTMODKEYS: modifyOtherKeys
	keyboard        []int  // stack of flags of the kitty keyboard protocol; the last entry is current
}

func newModes() modes { return modes{private: initialModes} }

// handleEscape handles an escape sequence of one byte.
func (m *modes) handleEscape(c byte) {
	switch c {
	case 'c': // RIS
		*m = newModes()
	case '=', '>':
		m.keypad = c == '='
	}
}

// handleControl handles a control sequence with this private marker, these parameters and this
// final byte.
func (m *modes) handleControl(marker byte, params ecma48.Params, final byte) {
	switch {
	case marker == '?' && (final == 'h' || final == 'l'):
		m.set(params, final == 'h')
	case final == 'u':
		m.setKeyboard(marker, params)
	case marker == '>' && final == 'm' && params.At(0) == 4:
		m.modifyOtherKeys = params.At(1)
	}
}

func (m *modes) set(params ecma48.Params, on bool) {
	for len(params) > 0 {
		var mode int
		mode, params = params.Cut()
		if mode == 2004 {
			m.paste = on
		}
		for i, f := range trackedModes {
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

// setKeyboard handles the kitty keyboard protocol: > pushes flags, < pops entries, = changes the
// current one.
func (m *modes) setKeyboard(marker byte, params ecma48.Params) {
	n := params.At(0)
	switch marker {
	case '>':
		if len(m.keyboard) < 16 {
			m.keyboard = append(m.keyboard, n)
		}
	case '<':
		m.keyboard = m.keyboard[:max(len(m.keyboard)-max(n, 1), 0)]
	case '=':
		if len(m.keyboard) == 0 {
			m.keyboard = append(m.keyboard, 0)
		}
		flags := &m.keyboard[len(m.keyboard)-1]
		switch params.At(1) {
		case 2:
			*flags |= n
		case 3:
			*flags &^= n
		default:
			*flags = n
		}
	}
}

// restore returns the sequences that set these modes in a terminal after a reset.
func (m *modes) restore() []byte {
	var b []byte
	for i, f := range trackedModes {
		on := m.private&(1<<i) != 0
		if on == (initialModes&(1<<i) != 0) {
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
	if m.modifyOtherKeys != 0 {
		b = append(strconv.AppendInt(append(b, "\x1b[>4;"...), int64(m.modifyOtherKeys), 10), 'm')
	}
	for _, flags := range m.keyboard {
		b = append(strconv.AppendInt(append(b, "\x1b[>"...), int64(flags), 10), 'u')
	}
	return b
}

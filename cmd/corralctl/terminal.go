package main

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
)

// terminal is a stream that is a terminal.
type terminal struct {
	width  int // columns
	height int
	colour bool
	dumb   bool // it knows no sequences: what is on it cannot be written over
}

// openTerminal returns what f's terminal is like, nil if it is none.
func openTerminal(f *os.File) *terminal {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return nil
	}
	t := &terminal{width: int(size.Col), height: int(size.Row)}
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && columns > 0 {
		t.width = columns
	}
	if t.width == 0 {
		t.width = 80
	}
	t.dumb = os.Getenv("TERM") == "dumb"
	t.colour = os.Getenv("NO_COLOR") == "" && !t.dumb
	return t
}

// paint puts a colour around text, if colours are wanted.
func (c *ctl) paint(colour, text string) string {
	if !c.hasColour() || colour == "" || text == "" {
		return text
	}
	return colour + text + wording.Normal
}

// statusDot is the sign that a session's status begins with, in the colour of its state.
func (c *ctl) statusDot(s client.Session) string {
	sign, colour := wording.Mark(s)
	return c.paint(colour, sign)
}

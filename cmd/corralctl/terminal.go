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
	dumb   bool // it has no escape sequences: printed text cannot be overwritten
}

// openTerminal returns the properties of f's terminal, nil if f is not a terminal.
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

// paint returns text in a colour, if stdout accepts colours.
func (c *ctl) paint(colour, text string) string {
	if !c.hasColour() || colour == "" || text == "" {
		return text
	}
	return colour + text + wording.Normal
}

// statusDot returns the sign at the beginning of a session's status, in the colour of its state.
func (c *ctl) statusDot(s client.Session) string {
	sign, colour := wording.Mark(s)
	return c.paint(colour, sign)
}

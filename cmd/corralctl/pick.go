package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
)

// picker lets the user choose a session on the terminal: arrow keys move, letters filter.
type picker struct {
	sessions []client.Session
	filter   string
	selected int // index of the selected one among the matching sessions
	height   int // number of sessions that are shown
	width    int // of the terminal
}

// key is a pressed key: a character, or one of the constants below.
type key rune

const (
	keyUp key = -1 - iota
	keyDown
	keyEnter
	keyCancel
	keyBackspace
	keyClear
	keyNone
)

// matching returns the sessions that match the filter: each of its words is in the id, the agent,
// the workspace or the description.
func (p *picker) matching() []client.Session {
	words := strings.Fields(strings.ToLower(p.filter))
	return slices.DeleteFunc(slices.Clone(p.sessions), func(s client.Session) bool {
		text := strings.ToLower(strings.Join([]string{s.Id, s.Agent, s.WorkingDirectory, s.Description}, " "))
		return slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
	})
}

// press handles a key. When over is true, id is the chosen session, "" for none.
func (p *picker) press(k key) (over bool, id string) {
	matching := p.matching()
	switch k {
	case keyUp:
		p.selected = max(0, p.selected-1)
	case keyDown:
		p.selected = max(0, min(len(matching)-1, p.selected+1))
	case keyEnter:
		if len(matching) > 0 {
			return true, matching[p.selected].Id
		}
	case keyCancel:
		return true, ""
	case keyBackspace:
		_, size := utf8.DecodeLastRuneInString(p.filter)
		p.filter, p.selected = p.filter[:len(p.filter)-size], 0
	case keyClear:
		p.filter, p.selected = "", 0
	case keyNone:
	default:
		p.filter, p.selected = p.filter+string(k), 0
	}
	return false, ""
}

// lines returns the picker as lines of the terminal: the question, and the sessions around the
// selected one.
func (p *picker) lines(c *ctl, now time.Time) []string {
	matching := p.matching()
	first := max(0, min(p.selected-p.height/2, len(matching)-p.height))
	shown := matching[first:min(len(matching), first+p.height)]
	t := table{columns: []column{{}, {minWidth: 6, cut: wording.Ellipsize}, {minWidth: 9, cut: wording.EllipsizeDetail},
		{}, {minWidth: 10, cut: wording.EllipsizePath}}}
	for _, s := range shown {
		activity, colour := wording.Detail(s)
		if activity == "-" || s.State != word.Running {
			activity, colour = s.State, wording.StateColour(s)
		}
		t.rows = append(t.rows, []cell{
			{text: s.Id}, {text: s.Agent}, {activity, colour}, {text: wording.Since(s, now)},
			{text: wording.OnBranch(wording.AbbreviateHome(s.WorkingDirectory), s.Worktree)},
		})
	}
	widths := t.widths(false)
	t.fit(widths, p.width-3)
	lines := []string{wording.Ellipsize("Attach to? "+wording.Printable(p.filter), p.width-1)}
	for i, row := range t.rows {
		sign := "  "
		if first+i == p.selected {
			sign = c.paint(wording.Bold, "> ")
		}
		lines = append(lines, sign+t.line(c, row, widths))
	}
	if len(matching) == 0 {
		lines = append(lines, "  no session matches")
	} else if more := len(matching) - len(shown); more > 0 {
		lines = append(lines, c.paint(wording.Dim, fmt.Sprintf("  and %d more", more)))
	}
	return lines
}

// pick asks the user to choose one of the sessions. It returns "" if they choose none.
func (c *ctl) pick(sessions []client.Session) (string, error) {
	restore, err := rawTerminal(int(c.in.Fd()))
	if err != nil {
		return "", fmt.Errorf("cannot ask on the terminal: %w", err)
	}
	fmt.Fprint(c.out, "\x1b[?7l") // DECAWM off: long lines are cut off instead of wrapped
	defer func() {
		fmt.Fprint(c.out, "\x1b[?7h")
		_ = c.out.Flush()
		restore()
	}()
	p := &picker{sessions: sessions, height: max(1, min(10, c.outTTY.height-3)), width: c.outTTY.width}
	keys := make([]byte, 256)
	for {
		lines := p.lines(c, time.Now())
		// Redraw from the line of the question, where the cursor stays.
		fmt.Fprintf(c.out, "\r\x1b[J%s", strings.Join(lines, "\r\n"))
		fmt.Fprintf(c.out, "\x1b[%dA\r\x1b[%dC", len(lines)-1, wording.Width(lines[0]))
		if err := c.out.Flush(); err != nil {
			return "", err
		}
		n, err := c.in.Read(keys)
		over, id := false, ""
		if errors.Is(err, io.EOF) {
			over, err = true, nil
		}
		for _, k := range readKeys(keys[:n]) {
			if !over {
				over, id = p.press(k)
			}
		}
		if over || err != nil {
			fmt.Fprint(c.out, "\r\x1b[J")
			return id, errors.Join(c.out.Flush(), err)
		}
	}
}

// readKeys decodes pressed keys. An escape sequence arrives in one read, and the Escape key alone.
func readKeys(read []byte) []key {
	text := string(read)
	if text == "\x1b" {
		return []key{keyCancel}
	}
	var keys []key
	for text != "" {
		if sequence := escapeSequence.FindString(text); sequence != "" {
			switch sequence {
			case "\x1b[A", "\x1bOA":
				keys = append(keys, keyUp)
			case "\x1b[B", "\x1bOB":
				keys = append(keys, keyDown)
			}
			text = text[len(sequence):]
			continue
		}
		r, size := utf8.DecodeRuneInString(text)
		text = text[size:]
		switch r {
		case '\r', '\n':
			keys = append(keys, keyEnter)
		case 0x03, 0x04, 0x11: // ^C, ^D, and ^Q, which detaches from a session
			keys = append(keys, keyCancel)
		case 0x7f, 0x08:
			keys = append(keys, keyBackspace)
		case 0x15, 0x17: // ^U, ^W
			keys = append(keys, keyClear)
		case 0x10: // ^P
			keys = append(keys, keyUp)
		case 0x0e, '\t': // ^N
			keys = append(keys, keyDown)
		default:
			if r >= ' ' && r != utf8.RuneError {
				keys = append(keys, key(r))
			}
		}
	}
	return keys
}

// escapeSequence is what a terminal sends for a key without a character.
var escapeSequence = regexp.MustCompile(`^\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.?)`)

// rawTerminal sets a terminal to pass on each key when it is pressed, and returns a function that
// restores it. See termios(3).
func rawTerminal(fd int) (restore func(), err error) {
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	raw := *before
	raw.Lflag &^= unix.ICANON | unix.ECHO | unix.ISIG | unix.IEXTEN
	raw.Iflag &^= unix.ICRNL | unix.IXON
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &raw); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETSW, before) }, nil
}

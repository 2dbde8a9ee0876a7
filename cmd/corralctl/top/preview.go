package top

import (
	"strings"
	"time"

	"charm.land/bubbles/v2/viewport"
	"github.com/charmbracelet/x/ansi"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

// The screen is read again at most once in lookPause, sooner after a key was sent to it; another
// session's is read once the selection has rested on it.
const (
	lookPause   = 500 * time.Millisecond
	keyPause    = 60 * time.Millisecond
	selectPause = 80 * time.Millisecond
)

// historyLines is how many lines are read once a person scrolls.
const historyLines = 2000

// preview is the screen of the selected session. It is read when another session is selected and
// when a signal says that it may have changed; of a session that works, or that keys are sent to,
// again after each pause. While a person scrolls in it, it stays as it is.
type preview struct {
	id       string // whose screen it is, "" for none
	lines    int    // that were asked for
	text     string
	fault    string // why there is none
	asked    bool   // it is being read, or will be after the pause
	old      bool   // it is to be read again
	soon     bool   // a key was sent: what it does is worth a look sooner
	scrolled bool
	pending  int // lines to scroll back by once the history has been read
	view     viewport.Model
}

// stale has the screen read again, if it is this session's.
func (p *preview) stale(id string) {
	if id == p.id {
		p.old = true
	}
}

// bottom shows the last lines, live.
func (p *preview) bottom() {
	if p.scrolled {
		p.scrolled, p.pending, p.old = false, 0, true
		p.view.GotoBottom()
	}
}

// wantPreview returns what is to be done to show the screen of the selected session.
func (m *model) wantPreview() []effect {
	p, r, height := &m.preview, m.selected(), m.previewHeight()
	if r == nil || height <= 0 {
		*p = preview{}
		return nil
	}
	after := lookPause
	if r.Id != p.id {
		*p = preview{id: r.Id, old: true, view: viewport.New()}
		after = selectPause
	}
	if !r.hasScreen() {
		p.old = true // once there is one again; what was there last may still be looked at
		return nil
	}
	if p.scrolled {
		if p.lines >= historyLines || p.asked {
			return nil
		}
		p.old, after = true, 0
	}
	p.old = p.old || height > p.lines || r.Activity == "working" && r.AgentAlive || m.through != nil && m.through.over == ""
	if p.asked || !p.old {
		return nil
	}
	if p.soon {
		p.soon, after = false, keyPause
	}
	p.asked = true
	return []effect{pause{r.Id, after}}
}

// hasScreen reports whether the session's screen can be read. The tmux server of a frozen session
// does not answer.
func (r *row) hasScreen() bool { return r.SessionAlive && !r.Frozen }

// due reads the screen of the session after the pause, if it is still the one that is shown.
func (m *model) due(id string) []effect {
	p := &m.preview
	if id != p.id || !p.asked {
		return nil
	}
	if r := m.rows[id]; r == nil || !r.hasScreen() {
		p.asked = false
		return nil
	}
	p.old, p.lines = false, m.previewHeight()
	if p.scrolled {
		p.lines = historyLines
	}
	return []effect{capture{id, p.lines}}
}

func (m *model) captured(c captured) {
	p := &m.preview
	if c.id != p.id {
		return // another one was selected meanwhile
	}
	p.asked = false
	switch r := m.rows[c.id]; {
	case c.err == nil && p.scrolled && p.lines < historyLines: // it was asked for before the person scrolled
	case c.err == nil:
		p.text, p.fault = c.text, ""
		p.view.SetContentLines(screenLines(p.text, m.width))
		p.view.GotoBottom()
		p.view.ScrollUp(p.pending)
		p.pending = 0
	case r != nil && r.hasScreen(): // what could be read before is better than nothing
		p.fault = m.explain("show the screen of", c.id, c.err)
	}
}

// scrollPreview scrolls by lines, up where they are negative. At the bottom it is live again.
func (m *model) scrollPreview(lines int) {
	p := &m.preview
	if p.id == "" || p.text == "" {
		return
	}
	if !p.scrolled && lines < 0 {
		p.scrolled, p.pending = true, -lines // the history is read first
		return
	}
	if p.pending > 0 {
		p.pending = max(0, p.pending-lines)
		return
	}
	p.view.ScrollDown(max(0, lines))
	p.view.ScrollUp(max(0, -lines))
	if p.view.AtBottom() {
		p.bottom()
	}
}

// screenLines returns the lines of a screen, of at most width columns. Of escape sequences only
// colours and other looks of text are left, and each line begins with those that its first
// character has: it can be put anywhere.
func screenLines(screen string, width int) []string {
	lines := strings.Split(strings.TrimRight(screen, "\n"), "\n")
	var looks string // the sequences that are in force, as they came
	for i, line := range lines {
		var clean string
		clean, looks = harmless(line, looks)
		lines[i] = clean
	}
	for len(lines) > 0 && strings.TrimSpace(ansi.Strip(lines[len(lines)-1])) == "" {
		lines = lines[:len(lines)-1]
	}
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, width, "") + ansi.ResetStyle
	}
	return lines
}

const (
	tabWidth = 8
	maxLooks = 256 // bytes of sequences that are carried from line to line; who has more has not reset for too long
)

// harmless returns a line with nothing in it but text and SGR sequences, beginning with those of
// looks, and those that are in force at its end.
func harmless(line, looks string) (clean, after string) {
	var b strings.Builder
	b.WriteString(looks)
	var state byte
	column := 0
	for len(line) > 0 {
		seq, width, n, next := ansi.DecodeSequence(line, state, nil)
		line, state = line[n:], next
		switch {
		case width > 0:
			if wording.Printable(seq) != seq {
				seq, width = "?", 1
			}
			b.WriteString(seq)
			column += width
		case seq == "\t":
			blanks := tabWidth - column%tabWidth
			b.WriteString(strings.Repeat(" ", blanks))
			column += blanks
		case isSGR(seq):
			b.WriteString(seq)
			if resets(seq) || len(looks)+len(seq) > maxLooks {
				looks = ""
			}
			looks += seq
		}
	}
	return b.String(), looks
}

// isSGR reports whether it is a sequence "CSI numbers m", ECMA-48 8.3.117.
func isSGR(seq string) bool {
	numbers, ok := strings.CutPrefix(seq, "\x1b[")
	if !ok || !strings.HasSuffix(numbers, "m") {
		return false
	}
	return strings.Trim(numbers[:len(numbers)-1], "0123456789;:") == ""
}

// resets reports whether an SGR sequence begins with a reset, so that what came before it does not
// matter.
func resets(seq string) bool {
	first, _, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(seq, "\x1b["), "m"), ";")
	return strings.Trim(first, "0") == ""
}

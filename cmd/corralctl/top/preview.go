package top

import (
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

// Two looks at the same screen are lookPause apart at least, and another session's is looked at once the selection has rested on it.
const (
	lookPause   = 500 * time.Millisecond
	selectPause = 80 * time.Millisecond
)

// preview is the screen of the selected session. It is read when another one is selected and when something tells that it has changed; of one that
// works, as soon as the pause is over.
type preview struct {
	hidden bool
	id     string // whose it is, "" for none
	height int    // for which it was read
	text   string
	fault  string // why there is none
	asked  bool   // it is being read, or will be after the pause
	old    bool   // it is to be read again
}

// stale has the screen read again, if it is this session's.
func (p *preview) stale(id string) {
	if id == p.id {
		p.old = true
	}
}

// want returns what is to be done to show the screen of the selected session in this many lines.
func (p *preview) want(r *row, height int) []effect {
	if r == nil || height <= 0 {
		*p = preview{hidden: p.hidden}
		return nil
	}
	after := lookPause
	if r.Id != p.id {
		*p = preview{hidden: p.hidden, id: r.Id, old: true}
		after = selectPause
	}
	if !r.hasScreen() {
		p.old = true // once there is one again; what was there last may still be looked at
		return nil
	}
	p.old = p.old || height > p.height || r.Activity == "working" && r.AgentAlive
	if p.asked || !p.old {
		return nil
	}
	p.asked = true
	return []effect{pause{r.Id, after}}
}

// hasScreen tells whether the session's screen can be read. The tmux of one that is frozen answers nobody.
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
	p.old, p.height = false, m.previewHeight()
	return []effect{capture{id, p.height}}
}

func (m *model) captured(c captured) {
	p := &m.preview
	if c.id != p.id {
		return // another one was selected meanwhile
	}
	p.asked = false
	switch r := m.rows[c.id]; {
	case c.err == nil:
		p.text, p.fault = c.text, ""
	case r != nil && r.hasScreen(): // what could be read before is better than nothing
		p.fault = m.explain("show the screen of", c.id, c.err)
	}
}

// lastLines returns the last lines of a screen that fit into width and height. Of escape sequences only colours and other looks of text are left, and
// each line begins with those that its first character has: it can be put anywhere.
func lastLines(screen string, width, height int) []string {
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
	lines = lines[max(0, len(lines)-height):]
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, width, "") + ansi.ResetStyle
	}
	return lines
}

const (
	tabWidth = 8
	maxLooks = 256 // bytes of sequences that are carried from line to line; who has more has not reset for too long
)

// harmless returns a line with nothing in it but text and SGR sequences, beginning with those of looks, and those that are in force at its end.
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

// isSGR tells of a sequence "CSI numbers m", ECMA-48 8.3.117.
func isSGR(seq string) bool {
	numbers, ok := strings.CutPrefix(seq, "\x1b[")
	if !ok || !strings.HasSuffix(numbers, "m") {
		return false
	}
	return strings.Trim(numbers[:len(numbers)-1], "0123456789;:") == ""
}

// resets tells whether an SGR sequence begins with a reset, so that what came before it does not matter.
func resets(seq string) bool {
	first, _, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(seq, "\x1b["), "m"), ";")
	return strings.Trim(first, "0") == ""
}

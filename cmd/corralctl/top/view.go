package top

import (
	"fmt"
	"strings"
	"time"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

// The heights below which parts are left out.
const (
	leastForPreview = 14
	leastForThrough = 6  // the preview in pass-through mode, in which it is what a person looks at
	leastForMessage = 12 // a line for messages of its own, above that of the keys
	leastTable      = 3  // lines
)

// The colours that only a full screen has, beside those of wording.
const (
	reverse = "\x1b[0;7m"
	alert   = "\x1b[0;1;30;43m" // keys go to an agent
	cyan    = "\x1b[0;36m"
)

// bottomHeight is how many lines there are below everything else.
func (m *model) bottomHeight() int {
	if m.height >= leastForMessage {
		return 2
	}
	return 1
}

// bodyHeight is how many lines list and preview have together, between the two lines of header and
// titles and those at the bottom.
func (m *model) bodyHeight() int { return max(1, m.height-2-m.bottomHeight()) }

// hasPreview reports whether the preview is shown.
func (m *model) hasPreview() bool {
	if m.through != nil {
		return m.height >= leastForThrough
	}
	return !m.view.Hidden && m.height >= leastForPreview
}

// previewHeight is how many lines of a screen are shown below its title, 0 for no preview.
func (m *model) previewHeight() int {
	if !m.hasPreview() {
		return 0
	}
	return max(0, m.bodyHeight()-m.tableHeight()-1)
}

// tableHeight is how many lines of the list there is room for: if there is a preview, what that
// leaves, less if there are not so many sessions.
func (m *model) tableHeight() int {
	body := m.bodyHeight()
	switch {
	case !m.hasPreview():
		return body
	case m.through != nil:
		return max(1, min(len(m.lines), leastTable, body-4))
	}
	return max(leastTable, min(len(m.lines), body*(100-m.view.share())/100))
}

// screen is what is on the terminal, a string of lines.
func (m *model) screen() string {
	if m.width <= 0 || m.height <= 0 {
		return ""
	}
	lines := make([]string, 0, m.height)
	lines = append(lines, m.header())
	lines = append(lines, m.table()...)
	if m.previewHeight() > 0 {
		lines = append(lines, m.previewLines()...)
	}
	if m.gone {
		for i, line := range lines {
			lines[i] = wording.Dim + ansi.Strip(line) + wording.Normal
		}
	}
	lines = append(lines, m.bottom()...)
	text := strings.Join(lines[:min(len(lines), m.height)], "\n")
	if m.dialog != nil && m.dialog.kind != filtering {
		return m.over(text)
	}
	return text
}

// cursor is where the terminal's cursor is while a filter is typed.
func (m *model) cursor() *tea.Cursor {
	if m.dialog == nil || m.dialog.kind != filtering {
		return nil
	}
	before := ansi.StringWidth(string([]rune(m.dialog.line.Value())[:m.dialog.line.Position()]))
	return tea.NewCursor(min(m.width-1, len(filterTitle)+before), m.height-1)
}

const turnEnded = "turn ended"

// header says which Corral this is and how its sessions are, the most urgent first.
func (m *model) header() string {
	counts := map[string]int{}
	for _, r := range m.rows {
		if r.State == "archived" {
			continue
		}
		counts["session"]++
		counts[r.State]++
		switch {
		case wording.IsTurnEnded(r.Session):
			counts[turnEnded]++
		case wording.IsWaiting(r.Session):
			counts["waiting"]++
		}
	}
	left := paint(wording.Bold, "corral "+m.manager.Version) + " on " + wording.Printable(m.host)
	add := func(colour, text string) {
		if ansi.StringWidth(left)+2+ansi.StringWidth(text) <= m.width {
			left += "  " + paint(colour, text)
		}
	}
	if n := len(m.marked); n > 0 {
		add(wording.Yellow, fmt.Sprintf("%d marked", n))
	}
	add("", wording.Plural(counts["session"], "session"))
	for _, count := range []struct{ word, colour string }{
		{"waiting", wording.Yellow}, {turnEnded, wording.Cyan}, {"failed", wording.Red}, {"stale", wording.Yellow}, {"orphaned", wording.Yellow},
		{"running", wording.Green}, {"suspended", ""},
	} {
		n := counts[count.word]
		switch {
		case n == 0:
		case count.word == turnEnded:
			add(count.colour, wording.TurnsEnded(n))
		default:
			add(count.colour, fmt.Sprintf("%d %s", n, count.word))
		}
	}
	var right string
	switch {
	case m.manager.ShuttingDown:
		right = "Shutting down."
	case !m.manager.Lingering:
		right = "Lingering is off."
	}
	if room := m.width - ansi.StringWidth(left) - len(right); right != "" && room >= 2 {
		return left + strings.Repeat(" ", room) + paint(wording.Dim, right)
	}
	return ansi.Truncate(left, m.width, "…")
}

// previewLines are the preview with its title.
func (m *model) previewLines() []string {
	height := m.previewHeight()
	r := m.selected()
	if r == nil {
		return make([]string, height+1)
	}
	lines := []string{m.previewTitle(r)}
	if text, colour := m.why(r); text != "" && height > 2 {
		lines = append(lines, paint(colour, cut(wording.Printable(text), m.width)))
	}
	p := &m.preview
	switch {
	case p.text != "":
		p.view.SetWidth(m.width)
		p.view.SetHeight(height + 1 - len(lines))
		if !p.scrolled {
			p.view.GotoBottom()
		}
		lines = append(lines, strings.Split(p.view.View(), "\n")...)
	case !r.hasScreen():
		lines = append(lines, paint(wording.Dim, cut(m.noScreen(r), m.width)))
	case p.fault != "":
		lines = append(lines, paint(wording.Dim, cut(wording.Printable(p.fault), m.width)))
	}
	for len(lines) < height+1 {
		lines = append(lines, "")
	}
	return lines[:height+1]
}

// previewTitle is the line above the preview.
func (m *model) previewTitle(r *row) string {
	if t := m.through; t != nil {
		text := " KEYS GO TO " + t.id + " "
		if t.over != "" {
			text = " KEYS GO NOWHERE: " + t.id + ": " + t.over + " "
		}
		return paint(alert, fit(wording.Printable(text), m.width, false))
	}
	title := "── " + wording.Printable(r.Id) + " ── " + wording.Printable(wording.Program(r.Session)+" in "+wording.Location(r.Session, wording.AbbreviateHome)) + " "
	if r.Description != "" {
		title += "── " + wording.Printable(r.Description) + " "
	}
	position := ""
	if p := m.preview; p.scrolled && p.pending == 0 {
		position = fmt.Sprintf(" line %d-%d of %d: Esc ends scrolling ──", p.view.YOffset()+1, p.view.YOffset()+p.view.VisibleLineCount(), p.view.TotalLineCount())
	}
	title = ansi.Truncate(title, max(0, m.width-ansi.StringWidth(position)), "…")
	return paint(wording.Dim, cut(title+strings.Repeat("─", max(0, m.width-ansi.StringWidth(title)-ansi.StringWidth(position)))+position, m.width))
}

// why says in a line of its own what there may be no room for in the list: what the agent asks and
// since when, or how it ended.
func (m *model) why(r *row) (text, colour string) {
	switch {
	case waitsForPerson(r):
		text, colour = m.activity(r)
		if at := r.AttentionTimestamp; at != 0 {
			text += " (" + wording.Age(at, m.now) + " ago)"
		}
		return text, colour
	case r.Reason != "" && (wording.IsEnded(r.State) || r.State == "stale" || r.State == "orphaned"):
		return r.State + ": " + wording.Reason(r.Session), wording.StateColour(r.Session)
	case wording.NeedsAttention(r.Session):
		return m.activity(r)
	}
	return "", ""
}

// noScreen says why there is no screen to preview, and which key helps.
func (m *model) noScreen(r *row) string {
	if r.Frozen {
		return "It is frozen, and its screen cannot be read: f thaws it."
	}
	switch r.State {
	case "created":
		return "It was never started: r starts it."
	case "stale":
		if r.AgentAlive {
			return "Its tmux server died; the agent is still running. r gives it a new terminal."
		}
		return "Its tmux server died. r resumes it."
	case "starting":
		return "It is starting."
	}
	return "It has no terminal any more: l shows its log."
}

// bottom are the lines for messages and for keys, which share one where there is little room.
func (m *model) bottom() []string {
	message, keys := m.message(), m.keyLine()
	if m.bottomHeight() == 1 {
		if message != "" && m.through == nil && (m.dialog == nil || m.dialog.kind != filtering) {
			return []string{message}
		}
		return []string{keys}
	}
	return []string{message, keys}
}

// message is what there is to say: a fault before anything else.
func (m *model) message() string {
	switch {
	case m.notice.fault:
		return paint(wording.Red, cut(wording.Printable(m.notice.text), m.width))
	case m.gone:
		text := "corrald is not running. Showing the last known state until it is back."
		if ansi.StringWidth(text) > m.width {
			text = "corrald is not running"
		}
		return paint(wording.Red, cut(text, m.width))
	case len(m.tasks) > 0:
		return paint(wording.Yellow, cut(m.taskLine(), m.width))
	case m.notice.text != "":
		return cut(wording.Printable(m.notice.text), m.width)
	}
	return ""
}

func (m *model) taskLine() string {
	var parts []string
	for _, t := range m.tasks {
		text := strings.TrimSpace(t.call.verb.doing() + " " + t.call.id)
		if elapsed := m.now.Sub(t.since); elapsed >= time.Second {
			text += " (" + wording.Span(elapsed) + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ") + "…"
}

const filterTitle = "Filter: "

// keyLine is the last line: what is typed into the filter, else the keys that fit, the most useful
// first.
func (m *model) keyLine() string {
	if t := m.through; t != nil {
		text := m.leaveName() + " leaves; every other key goes to " + t.id
		if t.over != "" {
			text = m.leaveName() + " leaves; keys go nowhere"
		}
		return paint(wording.Bold, cut(wording.Printable(text), m.width))
	}
	if m.dialog != nil && m.dialog.kind == filtering {
		return cut(filterTitle+wording.Printable(m.dialog.line.Value()), m.width)
	}
	line := ""
	if m.filter != "" {
		line = paint(wording.Yellow, cut("filter: "+wording.Printable(m.filter), m.width/2)) + "  "
	}
	return line + keysOf("  ", m.width-ansi.StringWidth(line), m.offered()...)
}

// keysOf is a line of those keys that there is room for, and what they do. A help.Model with a
// width would go on beyond it where its ellipsis has no room.
func keysOf(separator string, width int, keys ...key.Binding) string {
	n, used := 0, -len(separator)
	for _, k := range keys {
		used += len(separator) + ansi.StringWidth(k.Help().Key) + 1 + ansi.StringWidth(k.Help().Desc)
		if used > width {
			break
		}
		n++
	}
	return helper(separator).ShortHelpView(keys[:n])
}

func paint(colour, text string) string {
	if colour == "" || text == "" {
		return text
	}
	return colour + text + wording.Normal
}

// cut shortens plain text to width columns of the terminal.
func cut(text string, width int) string { return ansi.Truncate(text, max(0, width), "…") }

// fit makes plain text exactly width columns wide.
func fit(text string, width int, right bool) string {
	text = cut(text, width)
	blanks := strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
	if right {
		return blanks + text
	}
	return text + blanks
}

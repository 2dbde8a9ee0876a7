package top

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

// The heights of which parts are left out where there is no room for them.
const (
	leastForPreview = 14
	leastForMessage = 12 // a line for messages of its own, above that of the keys
	leastTable      = 3  // rows
)

// The colours that only a full screen has, beside those of wording.
const (
	reverse = "\x1b[0;7m"
	cyan    = "\x1b[0;36m"
)

// bottomHeight is how many lines there are below everything else.
func (m *model) bottomHeight() int {
	if m.height >= leastForMessage {
		return 2
	}
	return 1
}

// bodyHeight is how many lines rows and preview have together, between the two lines of header and titles and those at the bottom.
func (m *model) bodyHeight() int { return max(1, m.height-2-m.bottomHeight()) }

// previewHeight is how many lines of a screen are shown below its title, 0 for no preview.
func (m *model) previewHeight() int {
	if m.preview.hidden || m.height < leastForPreview {
		return 0
	}
	return m.bodyHeight() - m.tableHeight() - 1
}

// tableHeight is how many rows there is room for: half of the body if there is a preview, less if there are not so many sessions.
func (m *model) tableHeight() int {
	body := m.bodyHeight()
	if m.preview.hidden || m.height < leastForPreview {
		return body
	}
	return max(leastTable, min(len(m.order), body/2))
}

// view is the screen, a string of lines.
func (m *model) view() string {
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
	if m.dialog != nil && m.dialog.kind != filtering {
		lines = m.over(lines, m.box())
	}
	return strings.Join(lines[:min(len(lines), m.height)], "\n")
}

// cursor is where the terminal's cursor is while something is typed.
func (m *model) cursor() *tea.Cursor {
	if m.dialog == nil || m.dialog.kind != filtering {
		return nil
	}
	before := ansi.StringWidth(string(m.dialog.input.runes[:m.dialog.input.cursor]))
	return tea.NewCursor(min(m.width-1, len(filterTitle)+before), m.height-1)
}

// header says which Corral this is and how its sessions are, the worst first.
func (m *model) header() string {
	counts := map[string]int{}
	for _, r := range m.rows {
		if r.State == "archived" {
			continue
		}
		counts["session"]++
		counts[r.State]++
		switch {
		case wording.TurnEnded(r.Session):
			counts["turn ended"]++
		case wording.Waits(r.Session):
			counts["waiting"]++
		}
	}
	left := paint(wording.Bold, "corral "+m.manager.Version) + " on " + wording.Printable(m.host)
	add := func(colour, text string) {
		if ansi.StringWidth(left)+2+ansi.StringWidth(text) <= m.width {
			left += "  " + paint(colour, text)
		}
	}
	add("", wording.Plural(counts["session"], "session"))
	for _, count := range []struct{ word, colour string }{
		{"waiting", wording.Yellow}, {"turn ended", wording.Cyan}, {"failed", wording.Red}, {"stale", wording.Yellow}, {"orphaned", wording.Yellow},
		{"running", wording.Green}, {"suspended", ""},
	} {
		switch n := counts[count.word]; {
		case n > 0 && count.word == "turn ended":
			add(count.colour, wording.TurnsEnded(n))
		case n > 0:
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
	title := "── " + wording.Printable(r.Id) + " ── " + wording.Printable(r.Agent+" in "+workspace(r)) + " "
	if r.Description != "" {
		title += "── " + wording.Printable(r.Description) + " "
	}
	title = ansi.Truncate(title, m.width, "…")
	lines := []string{paint(wording.Dim, title+strings.Repeat("─", m.width-ansi.StringWidth(title)))}
	if text, colour := m.why(r); text != "" && height > 2 {
		lines = append(lines, paint(colour, cut(wording.Printable(text), m.width)))
	}
	switch {
	case m.preview.text != "":
		lines = append(lines, lastLines(m.preview.text, m.width, height+1-len(lines))...)
	case !r.hasScreen():
		lines = append(lines, paint(wording.Dim, cut(m.noScreen(r), m.width)))
	case m.preview.fault != "":
		lines = append(lines, paint(wording.Dim, cut(wording.Printable(m.preview.fault), m.width)))
	}
	for len(lines) < height+1 {
		lines = append(lines, "")
	}
	return lines[:height+1]
}

// why says in a line of its own what there may be no room for in the table: what the agent asks, or how it ended.
func (m *model) why(r *row) (text, colour string) {
	switch {
	case r.Reason != "" && (wording.Ended(r.State) || r.State == "stale" || r.State == "orphaned"):
		return r.State + ": " + wording.Reason(r.Session), wording.StateColour(r.Session)
	case wording.WantsAttention(r.Session):
		return m.activity(r)
	}
	return "", ""
}

// noScreen says why there is no screen to preview, and what there is instead.
func (m *model) noScreen(r *row) string {
	if r.Frozen {
		return "It is frozen, and its screen with it: f lets it go on."
	}
	switch r.State {
	case "created":
		return "It was never started: r starts it."
	case "stale":
		return "Its tmux session is dead, its agent may live on: r resumes it."
	case "starting":
		return "It is starting."
	}
	return "It has no screen any more: corralctl logs " + r.Id + " shows what was on it."
}

// bottom are the lines for messages and for keys, which share one where there is little room.
func (m *model) bottom() []string {
	message, keys := m.message(), m.keyLine()
	if m.bottomHeight() == 1 {
		if message != "" && (m.dialog == nil || m.dialog.kind != filtering) {
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
		text := "corrald is not running; this is how it was. Waiting for it to come back."
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
		text := t.call.verb.doing() + " " + t.call.id
		if elapsed := m.now.Sub(t.since); elapsed >= time.Second {
			text += " (" + wording.Span(elapsed) + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ") + "…"
}

const filterTitle = "Show: "

// keyLine is the last line: the filter while it is typed, else the keys that fit, the most wanted first.
func (m *model) keyLine() string {
	if m.dialog != nil && m.dialog.kind == filtering {
		return cut(filterTitle+wording.Printable(m.dialog.input.text()), m.width)
	}
	line := ""
	if m.filter != "" {
		line = paint(wording.Yellow, "Only "+wording.Printable(m.filter)) + "  "
	}
	width := ansi.StringWidth(line)
	for _, k := range []key{
		{"?", "help"}, {"q", "quit"}, {"Enter", "attach"}, {"s", "send"}, {"r", "resume"}, {"z", "suspend"}, {"S", "stop"}, {"/", "filter"},
		{"o", "order: " + m.sort.String()}, {"Space", "acknowledge"}, {"Tab", "preview"}, {"f", "freeze"}, {"K", "signal"}, {"A", "archive"}, {"d", "remove"},
	} {
		w := len(k.keys) + 1 + len(k.does) + 2
		if width+w-2 > m.width {
			break
		}
		width += w
		line += paint(wording.Bold, k.keys) + " " + paint(wording.Dim, k.does) + "  "
	}
	return ansi.Truncate(strings.TrimRight(line, " "), m.width, "…")
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

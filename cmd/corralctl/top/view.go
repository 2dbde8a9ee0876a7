package top

import (
	"fmt"
	"strings"
	"time"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
)

// Heights of the terminal below which parts of the screen are left out.
const (
	minHeightForPreview     = 14
	minHeightForPassThrough = 6  // for the preview in pass-through mode, which depends on it
	minHeightForMessage     = 12 // for a line of messages above the line of keys
)

// minTableHeight is the least height of the list above a preview, in lines.
const minTableHeight = 3

// Colours that only top needs, in addition to those of wording.
const (
	reverse     = "\x1b[0;7m"
	alertColour = "\x1b[0;1;30;43m" // while keys go to an agent
	cyan        = "\x1b[0;36m"
)

// bottomHeight returns the height of the lines for messages and keys.
func (m *model) bottomHeight() int {
	if m.height >= minHeightForMessage {
		return 2
	}
	return 1
}

// bodyHeight returns the height of list and preview together, between the two lines of header and
// titles and the lines at the bottom.
func (m *model) bodyHeight() int { return max(1, m.height-2-m.bottomHeight()) }

// hasPreview reports whether the preview is shown.
func (m *model) hasPreview() bool {
	if m.passThrough != nil {
		return m.height >= minHeightForPassThrough
	}
	return !m.settings.Hidden && m.height >= minHeightForPreview
}

// previewHeight returns the height of the preview without its title, 0 if it is not shown.
func (m *model) previewHeight() int {
	if !m.hasPreview() {
		return 0
	}
	return max(0, m.bodyHeight()-m.tableHeight()-1)
}

// tableHeight returns the height of the list. Above a preview it is the share of the body that the
// preview leaves, or less if the list is shorter, but at least minTableHeight. In pass-through mode
// it is at most minTableHeight.
func (m *model) tableHeight() int {
	body := m.bodyHeight()
	switch {
	case !m.hasPreview():
		return body
	case m.passThrough != nil:
		return max(1, min(len(m.lines), minTableHeight, body-4))
	}
	return max(minTableHeight, min(len(m.lines), body*(100-m.settings.previewShare())/100))
}

// screen returns the whole screen, as lines separated by newlines.
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
	if m.isAllGone() {
		for i, line := range lines {
			lines[i] = wording.Dim + ansi.Strip(line) + wording.Normal
		}
	}
	lines = append(lines, m.bottom()...)
	text := strings.Join(lines[:min(len(lines), m.height)], "\n")
	if m.dialog != nil && m.dialog.kind != enteringFilter {
		return m.overlayDialog(text)
	}
	return text
}

// cursor returns the position of the cursor while the user types a filter, nil otherwise.
func (m *model) cursor() *tea.Cursor {
	if m.dialog == nil || m.dialog.kind != enteringFilter {
		return nil
	}
	before := ansi.StringWidth(string([]rune(m.dialog.value())[:m.dialog.line.Position()]))
	return tea.NewCursor(min(m.width-1, len(filterTitle)+before), m.height-1)
}

// countStates returns the numbers of sessions in each state, and of those that need a person.
func (m *model) countStates() map[string]int {
	counts := map[string]int{}
	for _, r := range m.rows {
		if r.State == word.Archived {
			continue
		}
		counts["session"]++
		if m.isUnknown(r) {
			counts[word.Unknown]++
			continue
		}
		counts[r.State]++
		switch {
		case wording.IsTurnEnded(r.Session):
			counts[word.TurnEnded]++
		case wording.IsLimited(r.Session):
			counts[word.Limit]++
		case wording.IsWaiting(r.Session):
			counts[word.Waiting]++
		}
	}
	return counts
}

// header returns the first line: the version, the host, and the numbers of sessions, those of
// urgent states first.
func (m *model) header() string {
	counts := m.counts
	manager := m.managers[""]
	left := paint(wording.Bold, strings.TrimSpace("corral "+manager.Version)) + " on " + wording.Printable(m.host)
	if len(m.hosts) > 0 {
		left, manager = paint(wording.Bold, "corral")+" on "+wording.Printable(m.host), client.Manager{Lingering: true}
	}
	add := func(colour, text string) {
		if ansi.StringWidth(left)+2+ansi.StringWidth(text) <= m.width {
			left += "  " + paint(colour, text)
		}
	}
	if n := len(m.marked); n > 0 {
		add(wording.Yellow, fmt.Sprintf("%d marked", n))
	}
	add("", wording.Plural(counts["session"], "session"))
	for _, count := range []struct{ what, colour string }{
		{word.Waiting, wording.Yellow}, {word.TurnEnded, wording.Cyan}, {word.Limit, wording.Yellow},
		{word.Failed, wording.Red}, {word.Stale, wording.Yellow}, {word.Orphaned, wording.Yellow},
		{word.Running, wording.Green}, {word.Suspended, ""}, {word.Unknown, wording.Dim},
	} {
		n := counts[count.what]
		switch {
		case n == 0:
		case count.what == word.TurnEnded:
			add(count.colour, wording.TurnsEnded(n))
		case count.what == word.Limit:
			add(count.colour, wording.Limited(n))
		default:
			add(count.colour, fmt.Sprintf("%d %s", n, count.what))
		}
	}
	var right string
	switch {
	case manager.ShuttingDown:
		right = "Shutting down."
	case !manager.Lingering:
		right = "Lingering is off."
	}
	if room := m.width - ansi.StringWidth(left) - len(right); right != "" && room >= 2 {
		return left + strings.Repeat(" ", room) + paint(wording.Dim, right)
	}
	return ansi.Truncate(left, m.width, "…")
}

// previewLines returns the preview with its title.
func (m *model) previewLines() []string {
	height := m.previewHeight()
	r := m.selected()
	if r == nil {
		return make([]string, height+1)
	}
	lines := []string{m.previewTitle(r)}
	if text, colour := m.detailText(r); text != "" && height > 2 {
		lines = append(lines, paint(colour, cut(wording.Printable(text), m.width)))
	}
	p := &m.preview
	switch {
	case p.text != "":
		p.viewport.SetWidth(m.width)
		p.viewport.SetHeight(height + 1 - len(lines))
		if !p.scrolled {
			p.viewport.GotoBottom()
		}
		lines = append(lines, strings.Split(p.viewport.View(), "\n")...)
	case !r.hasScreen():
		lines = append(lines, paint(wording.Dim, cut(m.noScreenText(r), m.width)))
	case p.errorText != "":
		lines = append(lines, paint(wording.Dim, cut(wording.Printable(p.errorText), m.width)))
	}
	for len(lines) < height+1 {
		lines = append(lines, "")
	}
	return lines[:height+1]
}

// previewTitle returns the line above the preview.
func (m *model) previewTitle(r *row) string {
	if t := m.passThrough; t != nil {
		text := " KEYS GO TO " + t.id + " "
		if t.stopReason != "" {
			text = " KEYS GO NOWHERE: " + t.id + ": " + t.stopReason + " "
		}
		return paint(alertColour, fit(wording.Printable(text), m.width, false))
	}
	place := wording.Program(r.Session) + " in " + wording.Location(r.Session, wording.AbbreviateHome)
	title := "── " + wording.Printable(r.Id) + " ── " + wording.Printable(place) + " "
	if r.Description != "" {
		title += "── " + wording.Printable(r.Description) + " "
	}
	position := ""
	if p := m.preview; p.scrolled && p.pendingScroll == 0 {
		first := p.viewport.YOffset()
		position = fmt.Sprintf(" line %d-%d of %d: Esc ends scrolling ──",
			first+1, first+p.viewport.VisibleLineCount(), p.viewport.TotalLineCount())
	}
	title = ansi.Truncate(title, max(0, m.width-ansi.StringWidth(position)), "…")
	line := strings.Repeat("─", max(0, m.width-ansi.StringWidth(title)-ansi.StringWidth(position)))
	return paint(wording.Dim, cut(title+line+position, m.width))
}

// detailText returns a line that repeats what the list may have to shorten: what the agent asks and
// since when, or how it has ended.
func (m *model) detailText(r *row) (text, colour string) {
	switch {
	case waitsForPerson(r):
		text, colour = m.activity(r)
		if at := r.AttentionTimestamp; at != 0 {
			text += " (" + wording.Age(at, m.now) + " ago)"
		}
		return text, colour
	case r.Reason != "" && (wording.IsEnded(r.State) || r.State == word.Stale || r.State == word.Orphaned):
		return r.State + ": " + wording.Reason(r.Session), wording.StateColour(r.Session)
	case wording.NeedsAttention(r.Session):
		return m.activity(r)
	}
	return "", ""
}

// noScreenText returns why the session has no screen to preview, and which key helps.
func (m *model) noScreenText(r *row) string {
	if r.Frozen {
		return "It is frozen, and its screen cannot be read: f thaws it."
	}
	switch r.State {
	case word.Created:
		return "It was never started: r starts it."
	case word.Stale:
		if r.AgentAlive {
			return "Its tmux server died; the agent is still running. r gives it a new terminal."
		}
		return "Its tmux server died. r resumes it."
	case word.Starting:
		return "It is starting."
	}
	return "It has no terminal any more: l shows its log."
}

// bottom returns the lines for messages and keys, which share one line on a small terminal.
func (m *model) bottom() []string {
	message, keys := m.message(), m.keyLine()
	if m.bottomHeight() == 1 {
		if message != "" && m.passThrough == nil && (m.dialog == nil || m.dialog.kind != enteringFilter) {
			return []string{message}
		}
		return []string{keys}
	}
	return []string{message, keys}
}

// message returns the message line. An error precedes everything else.
func (m *model) message() string {
	switch {
	case m.notice.isError:
		return paint(wording.Red, cut(wording.Printable(m.notice.text), m.width))
	case len(m.gone) > 0:
		return paint(wording.Red, cut(m.goneText(), m.width))
	case len(m.tasks) > 0:
		return paint(wording.Yellow, cut(m.taskLine(), m.width))
	case m.notice.text != "":
		return cut(wording.Printable(m.notice.text), m.width)
	}
	return ""
}

// goneText returns which daemons cannot be reached.
func (m *model) goneText() string {
	if len(m.gone) > 1 {
		return fmt.Sprintf("%d of %d hosts cannot be reached: see the end of the list", len(m.gone), len(m.hosts))
	}
	text := ""
	for _, why := range m.gone {
		text = wording.Printable(why)
	}
	if long := text + ". Showing the last known state until it is back."; ansi.StringWidth(long) <= m.width {
		return long
	}
	return text
}

// isUnknown reports whether the state of a session is not known, because its host cannot be
// reached while others can.
func (m *model) isUnknown(r *row) bool { return m.goneReason(r.Id) != "" && !m.isAllGone() }

// taskLine returns the pending calls and how long they have taken.
func (m *model) taskLine() string {
	var parts []string
	for _, t := range m.tasks {
		text := strings.TrimSpace(verbTexts[t.call.verb].doing + " " + t.call.id)
		if elapsed := m.now.Sub(t.since); elapsed >= time.Second {
			text += " (" + wording.Span(elapsed) + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ") + "…"
}

const filterTitle = "Filter: "

// keyLine returns the last line: the filter while it is typed, else the keys that fit, the most
// useful first.
func (m *model) keyLine() string {
	if t := m.passThrough; t != nil {
		text := m.leaveKeyName() + " leaves; every other key goes to " + t.id
		if t.stopReason != "" {
			text = m.leaveKeyName() + " leaves; keys go nowhere"
		}
		return paint(wording.Bold, cut(wording.Printable(text), m.width))
	}
	if m.dialog != nil && m.dialog.kind == enteringFilter {
		return cut(filterTitle+wording.Printable(m.dialog.value()), m.width)
	}
	line := ""
	if m.filter != "" {
		line = paint(wording.Yellow, cut("filter: "+wording.Printable(m.filter), m.width/2)) + "  "
	}
	return line + keysOf("  ", m.width-ansi.StringWidth(line), m.offeredKeys()...)
}

// keysOf returns a line with as many keys and descriptions as fit the width. The width of a
// help.Model cannot be used for that: the model exceeds it if there is no space for its ellipsis.
func keysOf(separator string, width int, keys ...key.Binding) string {
	n, used := 0, -len(separator)
	for _, k := range keys {
		used += len(separator) + ansi.StringWidth(k.Help().Key) + 1 + ansi.StringWidth(k.Help().Desc)
		if used > width {
			break
		}
		n++
	}
	return newHelp(separator).ShortHelpView(keys[:n])
}

// paint returns a text in a colour.
func paint(colour, text string) string {
	if colour == "" || text == "" {
		return text
	}
	return colour + text + wording.Normal
}

// cut truncates plain text to width columns of the terminal.
func cut(text string, width int) string { return ansi.Truncate(text, max(0, width), "…") }

// fit truncates or pads plain text to exactly width columns.
func fit(text string, width int, alignRight bool) string {
	text = cut(text, width)
	blanks := strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
	if alignRight {
		return blanks + text
	}
	return text + blanks
}

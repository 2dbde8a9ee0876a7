package top

import (
	"fmt"
	"math"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

// column is one of the table's.
type column struct {
	title string
	least int  // columns of the terminal that it has to have to be of use
	most  int  // that it may grow to if its content asks for it; the same as least: it is always as wide
	right bool // numbers are
	cell  func(m *model, r *row) (text, colour string)
}

// columns are all that there are, in the order in which they are shown.
var columns = []column{
	{"ID", 10, 32, false, func(_ *model, r *row) (string, string) { return r.Id, "" }},
	{"AGENT", 6, 12, false, func(_ *model, r *row) (string, string) { return r.Agent, "" }},
	{"STATE", 9, 9, false, func(_ *model, r *row) (string, string) { return r.State, wording.StateColour(r.Session) }},
	{"ACTIVITY", 20, 64, false, (*model).activity},
	{"CPU", 6, 6, true, func(_ *model, r *row) (string, string) { return percent(r.usage.cpu, r.usage.there), "" }},
	{"", 6, 20, true, func(_ *model, r *row) (string, string) { return r.usage.sparkline(sparkWidth), cyan }},
	{"MEMORY", 7, 7, true, func(_ *model, r *row) (string, string) {
		return amount(r.usage.memory, r.usage.there, wording.Size), ""
	}},
	{"TASKS", 5, 5, true, func(_ *model, r *row) (string, string) {
		return amount(r.usage.tasks, r.usage.there, func(n uint64) string { return fmt.Sprint(n) }), ""
	}},
	{"SINCE", 7, 7, false, func(m *model, r *row) (string, string) {
		return wording.Since(r.Session, m.now), ""
	}},
	{"WORKSPACE", 12, 48, false, func(_ *model, r *row) (string, string) { return workspace(r), "" }},
}

// workspace is where the session works, and on which branch where that was made for it.
func workspace(r *row) string {
	return wording.OnBranch(wording.Workspace(r.WorkingDirectory), r.Worktree)
}

// sparkWidth is more than is ever shown: what does not fit is cut off at its left.
const sparkWidth = 20

// dropped are the titles of columns in the order in which they give way on a narrow terminal; those that are not named stay to the last.
var dropped = []string{"WORKSPACE", "TASKS", "", "SINCE", "AGENT", "MEMORY", "CPU", "ACTIVITY", "STATE"}

// growing are those that get the room that is left, in that order.
var growing = []string{"ID", "AGENT", "ACTIVITY", "WORKSPACE", ""}

const (
	dotWidth      = 2
	leastActivity = 10 // columns, before it is left out, too
)

// table is the line of titles and those of the rows.
func (m *model) table() []string {
	widths := m.widths()
	var titles strings.Builder
	titles.WriteString(strings.Repeat(" ", dotWidth))
	for i, c := range columns {
		if widths[i] > 0 {
			titles.WriteString(fit(c.title, widths[i], c.right) + " ")
		}
	}
	title := fit(strings.TrimRight(titles.String(), " "), m.width, false)
	lines := []string{paint(wording.Underline, title)}
	for _, r := range m.window() {
		lines = append(lines, m.line(r, widths))
	}
	if len(m.order) == 0 {
		lines = append(lines, paint(wording.Dim, cut(m.nothing(), m.width)))
	}
	for len(lines) < m.tableHeight()+1 {
		lines = append(lines, "")
	}
	return lines
}

func (m *model) nothing() string {
	if m.filter != "" {
		return "No session has this in it. Esc shows all."
	}
	return "There are no sessions. corralctl run starts one."
}

// line is one row, as wide as the terminal.
func (m *model) line(r *row, widths []int) string {
	selected := r.Id == m.chosen
	var b strings.Builder
	put := func(colour, text string) {
		if selected {
			b.WriteString(text)
		} else {
			b.WriteString(paint(colour, text))
		}
	}
	state := wording.StateColour(r.Session)
	sign, colour := wording.Mark(r.Session)
	put(colour, sign)
	b.WriteByte(' ')
	for i, c := range columns {
		if widths[i] == 0 {
			continue
		}
		text, colour := c.cell(m, r)
		if colour == "" && state == wording.Dim {
			colour = wording.Dim
		}
		text = wording.Printable(text)
		switch {
		case c.title == "ACTIVITY":
			text = wording.EllipsizeDetail(text, widths[i])
		case c.title == "":
			text = ansi.TruncateLeft(text, sparkWidth-widths[i], "")
		case c.title == "WORKSPACE" && ansi.StringWidth(text) > widths[i]:
			text = wording.Printable(wording.Workspace(r.WorkingDirectory)) // the preview's title has the branch
			if over := ansi.StringWidth(text) - widths[i]; over > 0 {
				text = ansi.TruncateLeft(text, over+1, "…")
			}
		}
		put(colour, fit(text, widths[i], c.right))
		b.WriteByte(' ')
	}
	line := fit(strings.TrimRight(b.String(), " "), m.width, false)
	if selected {
		return reverse + line + wording.Normal
	}
	return line
}

// widths are those of the columns, 0 for one that is left out.
func (m *model) widths() []int {
	widths := make([]int, len(columns))
	room := m.width - dotWidth
	for i, c := range columns {
		widths[i] = c.least
		room -= c.least + 1
	}
	room++ // none is needed behind the last
	for _, title := range dropped {
		if room >= 0 {
			break
		}
		i := columnOf(title)
		if squeezed := widths[i] + room; title == "ACTIVITY" && squeezed >= leastActivity {
			widths[i], room = squeezed, 0
			break
		}
		room += widths[i] + 1
		widths[i] = 0
	}
	if room < 0 {
		widths[0] = max(1, widths[0]+room)
	}
	for _, title := range growing {
		i := columnOf(title)
		if widths[i] == 0 || room <= 0 {
			continue
		}
		more := min(room, m.wanted(columns[i])-widths[i])
		if more > 0 {
			widths[i] += more
			room -= more
		}
	}
	return widths
}

// wanted is how wide a column would like to be.
func (m *model) wanted(c column) int {
	if c.title == "" {
		return c.most
	}
	width := c.least
	for _, r := range m.order {
		text, _ := c.cell(m, r)
		if len(text) > width { // no character takes more columns than bytes
			width = max(width, ansi.StringWidth(text))
		}
	}
	return min(width, c.most)
}

func columnOf(title string) int {
	for i, c := range columns {
		if c.title == title {
			return i
		}
	}
	panic("no column " + title)
}

// activity says what the agent does, for what it waits, or how it ended.
func (m *model) activity(r *row) (text, colour string) {
	switch {
	case r.Frozen:
		return "frozen", ""
	case wording.Ended(r.State) && r.State != "failed" && r.usage.left > 0:
		if r.usage.left == 1 {
			return "1 process left", wording.Yellow
		}
		return wording.Plural(r.usage.left, "processe") + " left", wording.Yellow
	}
	s := r.Session
	s.AttentionMessage = firstLine(r.question)
	return wording.Detail(s)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// percent is a part of a processor's time, as top(1) has it: 100% is one processor.
func percent(part float64, there bool) string {
	switch {
	case !there || part < 0:
		return "-"
	case part >= 9.995:
		return fmt.Sprintf("%.0f%%", math.Round(part*100))
	}
	return fmt.Sprintf("%.1f%%", part*100)
}

func amount(n uint64, there bool, text func(uint64) string) string {
	if !there || !wording.Available(n) {
		return "-"
	}
	return text(n)
}

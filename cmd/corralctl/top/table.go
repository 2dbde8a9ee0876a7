package top

import (
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

const (
	sparkWidth       = 20 // at least the width of the column, which cuts it off at the left
	markWidth        = 2  // of the marks before the first column
	minActivityWidth = 10 // to which the activity column shrinks before it is left out
)

// table returns the line of titles and the lines of the list.
func (m *model) table() []string {
	widths := m.widths()
	var titles strings.Builder
	titles.WriteString(strings.Repeat(" ", markWidth))
	for i, c := range columns {
		if widths[i] > 0 {
			titles.WriteString(fit(c.title, widths[i], c.alignRight) + " ")
		}
	}
	position := m.positionText()
	title := fit(strings.TrimRight(titles.String(), " "), m.width-len(position), false) + position
	lines := []string{paint(wording.Underline, cut(title, m.width))}
	for _, l := range m.shownLines() {
		if l.row == nil {
			colour := wording.Bold
			if l.alert {
				colour = wording.Red
			}
			lines = append(lines, paint(colour, cut(wording.Printable(l.heading), m.width)))
			continue
		}
		lines = append(lines, m.rowText(l.row, widths))
	}
	if len(m.order) == 0 {
		text := "There are no sessions. n creates one."
		if m.filter != "" {
			text = "No session matches the filter. Esc removes it."
		}
		lines = append(lines, paint(wording.Dim, cut(text, m.width)))
	}
	for len(lines) < m.tableHeight()+1 {
		lines = append(lines, "")
	}
	return lines
}

// positionText returns which part of the list is on the screen, "" if all of it is.
func (m *model) positionText() string {
	rows := m.shownRows()
	if len(rows) == len(m.order) || len(rows) == 0 {
		return ""
	}
	first := slices.Index(m.order, rows[0])
	return fmt.Sprintf(" %d-%d/%d", first+1, first+len(rows), len(m.order))
}

// rowText returns the line of a session, as wide as the terminal.
func (m *model) rowText(r *row, widths []int) string {
	selected := r.Id == m.selectedID
	var b strings.Builder
	put := func(colour, text string) {
		if selected {
			b.WriteString(text)
		} else {
			b.WriteString(paint(colour, text))
		}
	}
	state := wording.StateColour(r.Session)
	if m.isUnknown(r) {
		r = r.withoutState(m.goneReason(r.Id))
		state = wording.Dim
	}
	mark, colour := wording.Mark(r.Session)
	put(colour, mark)
	if m.marked[r.Id] {
		put(wording.Yellow, "*")
	} else {
		b.WriteByte(' ')
	}
	for i, c := range columns {
		if widths[i] == 0 {
			continue
		}
		text, colour := c.cell(m, r)
		switch {
		case m.marked[r.Id] && c.name == "id":
			colour = wording.Yellow
		case colour == "" && state == wording.Dim:
			colour = wording.Dim
		}
		put(colour, fit(shorten(c, r, wording.Printable(text), widths[i]), widths[i], c.alignRight))
		b.WriteByte(' ')
	}
	line := fit(strings.TrimRight(b.String(), " "), m.width, false)
	if selected {
		return reverse + line + wording.Normal
	}
	return line
}

// shorten shortens the texts of columns in which the beginning is not the most important part.
func shorten(c column, r *row, text string, width int) string {
	switch {
	case c.name == "activity":
		return wording.EllipsizeDetail(text, width)
	case c.name == "graph":
		return ansi.TruncateLeft(text, sparkWidth-width, "")
	case c.name == "workspace" && ansi.StringWidth(text) > width:
		// The title of the preview shows the branch.
		return wording.EllipsizePath(wording.Printable(wording.AbbreviateHome(r.WorkingDirectory)), width)
	}
	return text
}

// widths returns the widths of the columns. It is 0 for a column that is left out, because it was
// not chosen, because no row has a value for it, or because there is no space.
func (m *model) widths() []int {
	widths := make([]int, len(columns))
	room := m.width - markWidth + 1 // the last column is not followed by a space
	for i, c := range columns {
		if !m.settings.isShown(c) || c.hasValue != nil && !c.hasValue(m) {
			continue
		}
		widths[i] = c.minWidth
		if c.name == "id" { // shown in full before other columns, because users type it
			widths[i] = max(c.minWidth, min(m.wantedWidth(c), m.width/2-markWidth))
		}
		room -= widths[i] + 1
	}
	for _, name := range dropOrder {
		i := columnIndex(name)
		if room >= 0 || widths[i] == 0 {
			continue
		}
		if squeezed := widths[i] + room; name == "activity" && squeezed >= minActivityWidth {
			widths[i], room = squeezed, 0
			break
		}
		room += widths[i] + 1
		widths[i] = 0
	}
	if room < 0 {
		widths[0] = max(1, widths[0]+room)
	}
	for _, name := range growOrder {
		i := columnIndex(name)
		if widths[i] == 0 || room <= 0 {
			continue
		}
		if more := min(room, m.wantedWidth(columns[i])-widths[i]); more > 0 {
			widths[i] += more
			room -= more
		}
	}
	return widths
}

// wantedWidth returns the width that shows all contents of a column, within its bounds.
func (m *model) wantedWidth(c column) int {
	if c.name == "graph" {
		return c.maxWidth
	}
	width := c.minWidth
	for _, r := range m.order {
		text, _ := c.cell(m, r)
		if len(text) > width { // no character takes more columns than bytes
			width = max(width, ansi.StringWidth(text))
		}
	}
	return min(width, c.maxWidth)
}

// sortingAt returns the order that a click on the title at column x of the terminal selects.
func (m *model) sortingAt(x int) (sorting, bool) {
	at := markWidth
	for i, width := range m.widths() {
		if width == 0 {
			continue
		}
		if x >= at && x < at+width {
			return columns[i].sort, columns[i].sort != unsorted
		}
		at += width + 1
	}
	return 0, false
}

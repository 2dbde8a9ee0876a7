package top

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

const (
	sparkWidth    = 20 // more than is ever shown: what does not fit is cut off at its left
	dotWidth      = 2
	leastActivity = 10 // columns, below which it is left out, too
)

// table is the line of titles and the lines of the list.
func (m *model) table() []string {
	widths := m.widths()
	var titles strings.Builder
	titles.WriteString(strings.Repeat(" ", dotWidth))
	for i, c := range columns {
		if widths[i] > 0 {
			titles.WriteString(fit(c.title, widths[i], c.right) + " ")
		}
	}
	position := m.position()
	title := fit(strings.TrimRight(titles.String(), " "), m.width-len(position), false) + position
	lines := []string{paint(wording.Underline, cut(title, m.width))}
	for _, l := range m.windowLines() {
		if l.row == nil {
			lines = append(lines, m.headingLine(l.head))
			continue
		}
		lines = append(lines, m.line(l.row, widths))
	}
	if len(m.order) == 0 {
		lines = append(lines, paint(wording.Dim, cut(m.nothing(), m.width)))
	}
	for len(lines) < m.tableHeight()+1 {
		lines = append(lines, "")
	}
	return lines
}

// position says which sessions of a list that is longer than the screen are on it, "" where all
// are.
func (m *model) position() string {
	rows := m.window()
	if len(rows) == len(m.order) || len(rows) == 0 {
		return ""
	}
	first := 0
	for _, l := range m.windowLines() {
		if l.row != nil {
			first = l.place
			break
		}
	}
	return fmt.Sprintf(" %d-%d/%d", first+1, first+len(rows), len(m.order))
}

func (m *model) nothing() string {
	if m.filter != "" {
		return "No session matches the filter. Esc removes it."
	}
	return "There are no sessions. n creates one."
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
		put(colour, fit(shorten(c, r, wording.Printable(text), widths[i]), widths[i], c.right))
		b.WriteByte(' ')
	}
	line := fit(strings.TrimRight(b.String(), " "), m.width, false)
	if selected {
		return reverse + line + wording.Normal
	}
	return line
}

// shorten shortens those texts of which another part than the beginning matters.
func shorten(c column, r *row, text string, width int) string {
	switch {
	case c.name == "activity":
		return wording.EllipsizeDetail(text, width)
	case c.name == "graph":
		return ansi.TruncateLeft(text, sparkWidth-width, "")
	case c.name == "workspace" && ansi.StringWidth(text) > width:
		text = wording.Printable(wording.AbbreviateHome(r.WorkingDirectory)) // the preview's title has the branch
		if over := ansi.StringWidth(text) - width; over > 0 {
			return ansi.TruncateLeft(text, over+1, "…")
		}
	}
	return text
}

// widths are those of the columns, 0 for one that is left out: not chosen, without a value in any
// row, or without room.
func (m *model) widths() []int {
	widths := make([]int, len(columns))
	room := m.width - dotWidth + 1 // no space is needed behind the last
	for i, c := range columns {
		if !m.view.isShown(c) || c.has != nil && !c.has(m) {
			continue
		}
		widths[i] = c.least
		if c.name == "id" { // it is what a person types: rather no other column than half of it
			widths[i] = max(c.least, min(m.wanted(c), m.width/2-dotWidth))
		}
		room -= widths[i] + 1
	}
	for _, name := range dropped {
		i := columnAt(name)
		if room >= 0 || widths[i] == 0 {
			continue
		}
		if squeezed := widths[i] + room; name == "activity" && squeezed >= leastActivity {
			widths[i], room = squeezed, 0
			break
		}
		room += widths[i] + 1
		widths[i] = 0
	}
	if room < 0 {
		widths[0] = max(1, widths[0]+room)
	}
	for _, name := range growing {
		i := columnAt(name)
		if widths[i] == 0 || room <= 0 {
			continue
		}
		if more := min(room, m.wanted(columns[i])-widths[i]); more > 0 {
			widths[i] += more
			room -= more
		}
	}
	return widths
}

// wanted is how wide a column would like to be.
func (m *model) wanted(c column) int {
	if c.name == "graph" {
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

func columnAt(name string) int {
	for i, c := range columns {
		if c.name == name {
			return i
		}
	}
	panic("no column " + name)
}

// sortingAt is the order that a click on the title at column x of the terminal selects.
func (m *model) sortingAt(x int) (sorting, bool) {
	at := dotWidth
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

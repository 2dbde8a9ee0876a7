package main

import (
	"strings"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

// table is text in columns.
type table struct {
	columns []column
	rows    [][]cell
	marks   []cell // of one column, before each row; empty for none
}

type column struct {
	title    string
	minWidth int                              // that the column may be shortened to; 0 if it is never shortened
	cut      func(s string, width int) string // shortens a text
}

type cell struct{ text, colour string }

// printTable prints a table, shortened to the terminal's width: the last of the columns that may be
// shortened is shortened first.
func (c *ctl) printTable(t table) {
	widths := t.widths(!c.noLegend)
	if c.outTTY != nil && !c.full {
		width := c.outTTY.width
		if t.marks != nil {
			width -= 2
		}
		t.fit(widths, width)
	}
	if !c.noLegend {
		var line strings.Builder
		if t.marks != nil {
			line.WriteString("  ")
		}
		for i, column := range t.columns {
			pad(&line, column.title, "", widths[i], i == len(t.columns)-1, c)
		}
		c.out.WriteString(c.paint(wording.Underline, strings.TrimRight(line.String(), " ")) + "\n")
	}
	for n, row := range t.rows {
		if t.marks != nil {
			c.out.WriteString(c.paint(t.marks[n].colour, t.marks[n].text) + " ")
		}
		c.out.WriteString(t.line(c, row, widths) + "\n")
	}
}

// line formats a row with columns of these widths.
func (t table) line(c *ctl, row []cell, widths []int) string {
	var line strings.Builder
	for i, cell := range row {
		text := wording.Printable(cell.text)
		if cut := t.columns[i].cut; cut != nil {
			text = cut(text, widths[i])
		}
		pad(&line, text, cell.colour, widths[i], i == len(row)-1, c)
	}
	return strings.TrimRight(line.String(), " ")
}

func (t table) widths(titles bool) []int {
	widths := make([]int, len(t.columns))
	for i, column := range t.columns {
		if titles {
			widths[i] = len(column.title)
		}
	}
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], wording.Width(wording.Printable(cell.text)))
		}
	}
	return widths
}

// fit reduces widths until the columns and the blanks between them fit into width, or nothing more
// can be shortened.
func (t table) fit(widths []int, width int) {
	total := len(widths) - 1
	for _, w := range widths {
		total += w
	}
	for i := len(widths) - 1; i >= 0 && total > width; i-- {
		if t.columns[i].minWidth == 0 {
			continue
		}
		shorter := min(widths[i], max(t.columns[i].minWidth, widths[i]-(total-width)))
		total -= widths[i] - shorter
		widths[i] = shorter
	}
}

// pad appends text in a colour, filled with blanks to the column's width.
func pad(line *strings.Builder, text, colour string, width int, last bool, c *ctl) {
	line.WriteString(c.paint(colour, text))
	if last {
		return
	}
	line.WriteString(strings.Repeat(" ", 1+max(0, width-wording.Width(text))))
}

package top

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

// line is one line of the list: a row, or the heading of a group.
type line struct {
	row   *row   // nil for a heading
	place int    // of the row in order
	head  string // of the heading
}

func cutLabel(group string) (key string, ok bool) { return strings.CutPrefix(group, labelGroup) }

// groupOf is the name of the group that a row belongs to.
func (m *model) groupOf(r *row) string {
	if key, ok := cutLabel(m.view.Group); ok {
		if value, has := r.Labels[key]; has {
			return key + "=" + value
		}
		return "no label " + key
	}
	return wording.AbbreviateHome(cmp.Or(r.Repository, r.WorkingDirectory))
}

// layOut makes the lines of the list from the order of the rows.
func (m *model) layOut() {
	m.lines = m.lines[:0]
	name := "\x00"
	for place, r := range m.order {
		if m.view.Group != "" {
			if r.heading != name {
				name = r.heading
				m.lines = append(m.lines, line{head: m.heading(name, place)})
			}
		}
		m.lines = append(m.lines, line{row: r, place: place})
	}
}

// heading is the text above a group, whose rows begin at this place.
func (m *model) heading(name string, place int) string {
	count, waiting := 0, 0
	for _, r := range m.order[place:] {
		if r.heading != name {
			break
		}
		count++
		if needsPerson(r) {
			waiting++
		}
	}
	text := fmt.Sprintf("%s  %s", name, wording.Plural(count, "session"))
	switch waiting {
	case 0:
		return text
	case 1:
		return text + ", 1 needs attention"
	}
	return fmt.Sprintf("%s, %d need attention", text, waiting)
}

// lineOf is the index in lines of the row at this place.
func (m *model) lineOf(place int) int {
	if m.view.Group == "" {
		return place
	}
	for i := place; i < len(m.lines); i++ {
		if m.lines[i].row != nil && m.lines[i].place == place {
			return i
		}
	}
	return 0
}

// headingLine is the heading as it is shown.
func (m *model) headingLine(text string) string {
	return paint(wording.Bold, ansi.Truncate(wording.Printable(text), m.width, "…"))
}

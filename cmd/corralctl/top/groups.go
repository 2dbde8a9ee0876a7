package top

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
)

// line is a line of the list: a row, or the heading of a group.
type line struct {
	row     *row   // nil for a heading
	index   int    // of the row in order
	heading string // text of the heading
	alert   bool   // it is about a host that cannot be reached
}

// labelGroup is the prefix of settings.Group for a grouping by a label.
const labelGroup = "label:"

// hostGroup is the value of settings.Group for a grouping by host.
const hostGroup = "host"

// nextGroup selects the next grouping: none, by workspace, by host, or by one of the labels that
// sessions have.
func (m *model) nextGroup() []effect {
	keys := map[string]bool{}
	for _, r := range m.rows {
		for key := range r.Labels {
			keys[labelGroup+key] = true
		}
	}
	groups := []string{"", "workspace"}
	if len(m.hosts) > 0 {
		groups = append(groups, hostGroup)
	}
	groups = append(groups, slices.Sorted(maps.Keys(keys))...)
	m.settings.Group = groups[(slices.Index(groups, m.settings.Group)+1)%len(groups)]
	m.arrange()
	if m.settings.Group == "" {
		m.showNotice("Not grouped.")
	} else {
		m.showNotice("Grouped by " + strings.Replace(m.settings.Group, ":", " ", 1) + ".")
	}
	return m.saveSettings()
}

// groupOf returns the name of the group that a row belongs to.
func (m *model) groupOf(r *row) string {
	if key, ok := strings.CutPrefix(m.settings.Group, labelGroup); ok {
		if value, has := r.Labels[key]; has {
			return key + "=" + value
		}
		return "no label " + key
	}
	if m.settings.Group == hostGroup {
		return m.hostTitle(r.Id)
	}
	return wording.AbbreviateHome(cmp.Or(r.Repository, r.WorkingDirectory))
}

// hostTitle returns how a session's host is called.
func (m *model) hostTitle(id string) string {
	name, _ := client.SplitID(id)
	for _, h := range m.hosts {
		if h.name == name {
			return h.title
		}
	}
	return m.host
}

// layOutLines builds the lines of the list from the sorted rows.
func (m *model) layOutLines() {
	m.lines = m.lines[:0]
	name := "\x00" // not the name of a group
	for i, r := range m.order {
		if m.settings.Group != "" && r.heading != name {
			name = r.heading
			m.lines = append(m.lines, line{heading: m.groupHeading(name, i)})
		}
		m.lines = append(m.lines, line{row: r, index: i})
	}
	if len(m.hosts) > 0 {
		for _, why := range slices.Sorted(maps.Values(m.gone)) {
			m.lines = append(m.lines, line{heading: why, alert: true})
		}
	}
}

// groupHeading returns the text above a group whose rows begin at index first of order.
func (m *model) groupHeading(name string, first int) string {
	count, waiting := 0, 0
	for _, r := range m.order[first:] {
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

// lineOf returns the index in lines of the row at this index of order.
func (m *model) lineOf(index int) int {
	if m.settings.Group == "" {
		return index
	}
	for i := index; i < len(m.lines); i++ {
		if m.lines[i].row != nil && m.lines[i].index == index {
			return i
		}
	}
	return 0
}

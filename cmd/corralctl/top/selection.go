package top

import (
	"maps"
	"slices"
	"time"
)

// selected returns the row that keys act on, nil if there is none.
func (m *model) selected() *row {
	if m.selectedID == "" {
		return nil
	}
	return m.rows[m.selectedID]
}

// selectIndex selects the row at this index of order, or the nearest one.
func (m *model) selectIndex(index int) {
	m.index = max(0, min(index, len(m.order)-1))
	m.selectedID = ""
	if len(m.order) > 0 {
		m.selectedID = m.order[m.index].Id
	}
	m.scroll()
}

// selectByUser selects the row at this index because the user has moved the selection.
func (m *model) selectByUser(index int) {
	m.answeredID, m.guardUntil, m.answerGuardUntil = "", time.Time{}, time.Time{}
	m.selectIndex(index)
}

// noteAnswer is to be called before the session is answered. Once it does not need a person any
// more, arrange leaves the selection at its index, where the next session moves up.
func (m *model) noteAnswer(r *row) {
	if r.Id == m.selectedID && needsPerson(r) {
		m.answeredID = r.Id
	}
}

// selectNextWaiting selects the next session in the list that needs a person. step is 1 for the
// next one below and -1 for the next one above.
func (m *model) selectNextWaiting(step int) {
	n := len(m.order)
	for i := 1; i < n; i++ {
		if index := ((m.index+i*step)%n + n) % n; needsPerson(m.order[index]) {
			m.selectByUser(index)
			return
		}
	}
	if r := m.selected(); r != nil && needsPerson(r) {
		m.showNotice("No other session needs attention.")
		return
	}
	m.showNotice("No session needs attention.")
}

// scroll scrolls the list as little as possible so that the selected row is on the screen.
func (m *model) scroll() {
	height, at := m.tableHeight(), m.lineOf(m.index)
	top := at
	if top > 0 && m.lines[top-1].row == nil {
		top-- // show the heading of its group, too
	}
	m.scrollOffset = min(m.scrollOffset, top)
	m.scrollOffset = max(m.scrollOffset, at-height+1)
	m.scrollOffset = max(0, min(m.scrollOffset, len(m.lines)-height))
}

// shownLines returns the lines of the list that are on the screen.
func (m *model) shownLines() []line {
	first := min(m.scrollOffset, len(m.lines))
	return m.lines[first:min(len(m.lines), first+m.tableHeight())]
}

// shownRows returns the rows that are on the screen.
func (m *model) shownRows() []*row {
	var rows []*row
	for _, l := range m.shownLines() {
		if l.row != nil {
			rows = append(rows, l.row)
		}
	}
	return rows
}

// affectedRows returns the sessions that a key acts on: the marked ones in the order of the list,
// or the selected one if none is marked.
func (m *model) affectedRows() []*row {
	if len(m.marked) == 0 {
		return []*row{m.selected()}
	}
	var rows []*row
	for _, r := range m.order {
		if m.marked[r.Id] {
			rows = append(rows, r)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.marked)) { // also those that the filter hides
		if r := m.rows[id]; !slices.Contains(rows, r) {
			rows = append(rows, r)
		}
	}
	return rows
}

// mark marks the selected session, or removes its mark, and selects the next.
func (m *model) mark() {
	r := m.selected()
	if r == nil {
		return
	}
	if m.marked == nil {
		m.marked = map[string]bool{}
	}
	if m.marked[r.Id] {
		delete(m.marked, r.Id)
	} else {
		m.marked[r.Id] = true
	}
	m.selectByUser(m.index + 1)
}

// markAll marks every session in the list, or removes the marks if all are marked.
func (m *model) markAll() {
	all := !slices.ContainsFunc(m.order, func(r *row) bool { return !m.marked[r.Id] })
	m.marked = map[string]bool{}
	for _, r := range m.order {
		if !all {
			m.marked[r.Id] = true
		}
	}
}

// clear ends scrolling in the preview, else removes the marks, else the filter.
func (m *model) clear() {
	switch {
	case m.preview.scrolled:
		m.preview.follow()
	case len(m.marked) > 0:
		clear(m.marked)
	default:
		m.filter = ""
		m.arrange()
	}
}

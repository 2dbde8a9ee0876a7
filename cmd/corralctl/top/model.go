package top

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
)

// model is what is on the screen, and why. It does nothing itself: update takes a message and returns what is to be done about it.
type model struct {
	host     string // as the header says it
	remote   bool   // the control groups are not those of this machine
	archived bool   // archived sessions are shown, too
	explain  func(doing, id string, err error) string

	width, height int
	now           time.Time

	rows    map[string]*row
	order   []*row // those that are shown, as they are sorted
	chosen  string // id of the selected one, "" if there is none
	place   int    // where it is in order; the selection stays there when it is removed
	first   int    // the first in the window
	sort    sorting
	filter  string
	manager client.Manager
	gone    bool // there is no daemon
	lost    bool // nor a connection

	preview   preview
	measuring bool
	dialog    *dialog // nil: keys go to the table
	tasks     []task  // that the daemon is doing for us
	notice    notice
}

// row is a session with what top knows of it beyond what signals tell.
type row struct {
	told
	inspected uint64 // the detail number that group and question are of
	group     string
	question  string // what its agent asks
	usage     usage
}

// task is a call that has not been answered.
type task struct {
	call  call
	since time.Time
}

// notice is the line at the bottom, until a key is pressed or it is old.
type notice struct {
	text  string
	fault bool
	since time.Time
}

const noticeTime = 6 * time.Second

// begin returns what is to be done at first.
func (m *model) begin() []effect { return []effect{listen{}, wait{}} }

// update applies a message and returns what is to be done.
func (m *model) update(message any) []effect {
	var effects []effect
	switch message := message.(type) {
	case news:
		effects = m.learn(message)
	case second:
		effects = m.tick(message.now)
	case measured:
		m.measuring = false
		for _, v := range message.values {
			if r := m.rows[v.id]; r != nil {
				r.usage.add(message.at, v)
				if !v.there {
					r.group = ""
				}
			}
		}
		if m.sort.byUsage() {
			m.arrange()
		}
	case inspected:
		if r := m.rows[message.id]; r != nil && message.err == nil && r.detail == message.detail {
			r.group, r.question = message.group, message.message
		}
	case due:
		effects = m.due(message.id)
	case captured:
		m.captured(message)
	case called:
		m.called(message)
	case attached:
		effects = m.attached(message)
	default:
		effects = m.operate(message)
	}
	if m.width == 0 {
		return effects
	}
	return append(effects, m.look()...)
}

// learn takes what the daemon's signals tell.
func (m *model) learn(n news) []effect {
	if n.all {
		kept := m.rows
		m.rows = make(map[string]*row, len(n.changed))
		for _, s := range n.changed {
			if r := kept[s.Id]; r != nil {
				m.rows[s.Id] = r
			}
		}
		if m.gone {
			m.gone, m.notice = false, notice{}
		}
	}
	for _, s := range n.changed {
		r := m.rows[s.Id]
		if r == nil || r.Timestamp != s.Timestamp { // another one may have been made under the id of one that was removed
			r = &row{group: s.ControlGroup, question: s.AttentionMessage}
			m.rows[s.Id] = r
			if s.Attention == "" && s.ControlGroup != "" {
				r.inspected = s.detail // there is no question, and the group came along
			}
		}
		if n.all && s.ControlGroup != "" {
			r.group = s.ControlGroup
		}
		if s.Attention == "" {
			r.question = ""
		}
		r.told = s
		m.preview.stale(s.Id)
	}
	for _, id := range n.removed {
		delete(m.rows, id)
	}
	if n.manager != nil {
		m.manager = *n.manager
	}
	m.gone = m.gone || n.gone || n.lost
	m.lost = n.lost
	m.arrange()
	if n.lost {
		return []effect{quit{}}
	}
	return []effect{listen{}}
}

// tick is what happens once a second.
func (m *model) tick(now time.Time) []effect {
	m.now = now
	if m.notice.text != "" && now.Sub(m.notice.since) > noticeTime {
		m.notice = notice{}
	}
	effects := []effect{wait{}}
	if targets := m.targets(); len(targets) > 0 && !m.measuring {
		m.measuring = true
		effects = append(effects, measure{targets})
	}
	return effects
}

// targets are the sessions whose counters are wanted: those on the screen. Only an order by counters needs them of all, and only on this machine,
// where that is a matter of reading some files.
func (m *model) targets() []target {
	rows := m.window()
	if m.sort.byUsage() && !m.remote {
		rows = m.order
	}
	var targets []target
	for _, r := range rows {
		live := !wording.Ended(r.State)
		switch {
		case m.remote && live && !m.gone:
			targets = append(targets, target{id: r.Id})
		case !m.remote && r.group != "":
			targets = append(targets, target{r.Id, r.group, !live})
		}
	}
	return targets
}

// look asks for what is shown now and not yet known.
func (m *model) look() []effect {
	if m.gone {
		return nil
	}
	var effects []effect
	for _, r := range m.window() {
		if r.inspected != r.detail && (r.Attention != "" || r.group == "" && !m.remote && !wording.Ended(r.State)) {
			r.inspected = r.detail
			effects = append(effects, inspect{r.Id, r.detail})
		}
	}
	return append(effects, m.preview.want(m.selected(), m.previewHeight())...)
}

// called tells what became of a call.
func (m *model) called(answer called) {
	m.tasks = slices.DeleteFunc(m.tasks, func(t task) bool { return t.call == answer.call })
	if answer.err != nil {
		m.complain(m.explain(string(answer.call.verb), answer.call.id, answer.err))
		return
	}
	m.say(answer.call.verb.done() + " " + answer.call.id + ".")
	if answer.call.verb == send {
		m.preview.stale(answer.call.id)
	}
}

func (m *model) attached(back attached) []effect {
	m.tasks = slices.DeleteFunc(m.tasks, func(t task) bool { return t.call.verb == attachTo })
	m.preview.stale(back.id)
	switch {
	case back.err == nil:
	case !back.sure:
		return []effect{doubt{back.id, back.err}}
	default:
		m.complain(m.explain(string(attachTo), back.id, back.err))
	}
	return nil
}

func (m *model) say(text string)      { m.notice = notice{text: text, since: m.now} }
func (m *model) complain(text string) { m.notice = notice{text: text, fault: true, since: m.now} }

// selected is the row that keys act on, nil if there is none.
func (m *model) selected() *row {
	if m.chosen == "" {
		return nil
	}
	return m.rows[m.chosen]
}

// arrange filters and sorts the rows anew. The selection stays on its session; where that is gone, at its place.
func (m *model) arrange() {
	m.order = m.order[:0]
	for _, r := range m.rows {
		if (r.State != "archived" || m.archived) && matches(r, m.filter) {
			m.order = append(m.order, r)
		}
	}
	slices.SortFunc(m.order, func(a, b *row) int { return cmp.Or(m.sort.compare(a, b), strings.Compare(a.Id, b.Id)) })
	if i := slices.IndexFunc(m.order, func(r *row) bool { return r.Id == m.chosen }); i >= 0 {
		m.place = i
	}
	m.choose(m.place)
}

// choose selects the row at this place, or the nearest there is.
func (m *model) choose(place int) {
	m.place = max(0, min(place, len(m.order)-1))
	m.chosen = ""
	if len(m.order) > 0 {
		m.chosen = m.order[m.place].Id
	}
	m.scroll()
}

// scroll moves the window so that the selected row is in it, and no further.
func (m *model) scroll() {
	height := m.tableHeight()
	m.first = min(m.first, m.place)
	m.first = max(m.first, m.place-height+1)
	m.first = max(0, min(m.first, len(m.order)-height))
}

// window are the rows on the screen.
func (m *model) window() []*row {
	first := min(m.first, len(m.order))
	return m.order[first:min(len(m.order), first+m.tableHeight())]
}

// matches tells whether each word of the filter is somewhere in what is shown of a session.
func matches(r *row, filter string) bool {
	for word := range strings.FieldsSeq(strings.ToLower(filter)) {
		found := false
		for _, text := range []string{r.Id, r.Agent, r.State, r.Activity, r.Attention, r.Reason, r.WorkingDirectory, r.Description} {
			found = found || strings.Contains(strings.ToLower(text), word)
		}
		for name, value := range r.Labels {
			found = found || strings.Contains(strings.ToLower(name+"="+value), word)
		}
		if !found {
			return false
		}
	}
	return true
}

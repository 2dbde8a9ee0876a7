package top

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
)

// model holds what the screen shows and decides what each key does. It performs nothing itself:
// update takes a message and returns the effects to carry out.
type model struct {
	host      string // as the header shows it
	leaveKey  string // tmux\'s name of the key that ends the pass-through mode
	remote    bool   // host is another machine, whose control groups cannot be read here
	archived  bool   // archived sessions are listed, too
	directory string // the workspace that the form of a new session begins with
	explain   func(doing, id string, err error) string
	clock     func() time.Time // for the guard against stray keys and for double clicks; time.Now but in tests

	width, height int
	now           time.Time

	rows    map[string]*row
	order   []*row    // the rows that are listed, sorted
	lines   []line    // order with the headings of groups, one for each line of the list
	chosen  string    // id of the selected session, "" if there is none
	place   int       // its index in order; the selection stays there when the session is removed
	first   int       // index into lines of the first that is on the screen
	sort    sorting   //
	filter  string    //
	settled string    // id of the session that was answered last: the selection does not follow it when it moves away
	awaited string    // id of a session that was created here and is to be selected once it is known
	guard   time.Time // until then keys that act on a session are ignored, see guarded
	unread  time.Time // until then keys that answer a question are ignored
	marked  map[string]bool
	view    settings
	click   click // the last one

	manager client.Manager
	gone    bool // the daemon is not running
	lost    bool // the connection to the bus has ended

	preview   preview
	measuring bool
	dialog    *dialog  // nil: keys act on the list
	through   *through // keys go to a session, nil: they do not
	draining  *through // was left with keys that were not yet sent
	tasks     []task   // calls that have not been answered
	notice    notice
}

// row is a session, with the facts that signals do not carry.
type row struct {
	snapshot
	inspected uint64 // the detail number that group and question belong to
	group     string
	question  string // the text of what its agent asks
	usage     usage
	earlier   uint64 // microseconds that the runs before the last one took
	heading   string // the name of its group, while rows are grouped
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

// begin returns the first effects.
func (m *model) begin() []effect { return []effect{listen{}, wait{}} }

// update applies a message and returns the effects that follow.
func (m *model) update(message any) []effect {
	chosen, asked := m.chosen, m.asked()
	effects, byPerson := m.apply(message)
	if m.chosen != chosen && !byPerson && chosen != "" {
		m.guard = m.time().Add(guardTime)
	}
	if !byPerson && asked.isOutdated(m.asked()) {
		m.unread = m.time().Add(guardTime)
	}
	if m.width == 0 {
		return effects
	}
	return append(effects, m.look()...)
}

// apply applies a message. byPerson reports whether a person caused it with a key or the mouse.
func (m *model) apply(message any) (effects []effect, byPerson bool) {
	switch message := message.(type) {
	case news:
		effects = m.learn(message)
	case second:
		effects = m.tick(message.now)
	case measured:
		m.measured(message)
	case inspected:
		if r := m.rows[message.id]; r != nil && message.err == nil && r.detail == message.detail {
			r.group, r.question = message.group, message.message
		}
	case due:
		effects = m.due(message.id)
	case captured:
		m.captured(message)
	case called:
		effects = m.called(message)
	case pressed:
		effects = m.pressed(message)
	case agents:
		m.offer(message)
	case attached:
		effects = m.attached(message)
	case saved:
		if message.err != nil {
			m.complain("cannot save the settings of top: " + message.err.Error())
		}
	default:
		return m.operate(message), true
	}
	return effects, false
}

// guardTime is how long keys that act on a session are refused after the selection has moved by
// itself, and keys that answer a question after the question has changed: nobody can have read it
// yet, so the key was meant for what was there before.
const guardTime = 400 * time.Millisecond

// asked is what a session asks.
type asked struct {
	id, attention, question string
	at                      uint64
}

// asked returns what the selected session asks, the zero value where there is none.
func (m *model) asked() asked {
	r := m.selected()
	if r == nil {
		return asked{}
	}
	return r.asked()
}

func (r *row) asked() asked { return asked{r.Id, r.Attention, r.question, r.AttentionTimestamp} }

// isOutdated reports whether what a person has read is no longer what is asked. The text of a
// question is known a moment after the question.
func (a asked) isOutdated(now asked) bool {
	if a.question == "" {
		now.question = ""
	}
	return a.id != "" && a != now
}

// guarded says why a key that acts on the selected session is ignored at this moment, "" if it is
// not.
func (m *model) guarded(answers bool) string {
	now := m.time()
	switch {
	case now.Before(m.guard):
		return "Key ignored: the selection has just moved to " + m.chosen + "."
	case answers && now.Before(m.unread):
		return "Key ignored: the question of " + m.chosen + " is new."
	}
	return ""
}

func (m *model) time() time.Time {
	if m.clock == nil {
		return m.now
	}
	return m.clock()
}

// learn applies what has changed since the last news.
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
		m.learnSession(s, n.all)
	}
	for _, id := range n.removed {
		delete(m.rows, id)
	}
	for id := range m.marked {
		if m.rows[id] == nil {
			delete(m.marked, id)
		}
	}
	if n.manager != nil {
		m.manager = *n.manager
	}
	m.gone = m.gone || n.gone || n.lost
	m.lost = n.lost
	m.checkThrough()
	m.selectAwaited()
	m.arrange()
	if n.lost {
		return []effect{quit{}}
	}
	return []effect{listen{}}
}

func (m *model) learnSession(s snapshot, all bool) {
	r := m.rows[s.Id]
	if r == nil || r.Timestamp != s.Timestamp { // a new session may have the id of one that was removed
		r = &row{group: s.ControlGroup, question: s.AttentionMessage}
		m.rows[s.Id] = r
		delete(m.marked, s.Id)
		if s.Attention == "" && s.ControlGroup != "" {
			r.inspected = s.detail // there is no question, and the group is known
		}
	}
	if all && s.ControlGroup != "" {
		r.group = s.ControlGroup
	}
	if s.Attention == "" {
		r.question = ""
	}
	r.count(s.Session, m.now)
	r.snapshot = s
	m.preview.stale(s.Id)
}

// tick is called once a second.
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

// measured stores the counters that were read.
func (m *model) measured(message measured) {
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
}

// targets are the sessions whose counters are wanted: those on the screen. Only an order by
// counters needs them of all sessions, and only on this machine, where that means to read some
// files.
func (m *model) targets() []target {
	rows := m.window()
	if m.sort.byUsage() && !m.remote {
		rows = m.order
	}
	var targets []target
	for _, r := range rows {
		live := !wording.IsEnded(r.State)
		switch {
		case m.remote && live && !m.gone:
			targets = append(targets, target{id: r.Id})
		case !m.remote && r.group != "":
			targets = append(targets, target{r.Id, r.group, !live})
		}
	}
	return targets
}

// look asks for what is on the screen and not yet known.
func (m *model) look() []effect {
	if m.gone {
		return nil
	}
	var effects []effect
	for _, r := range m.window() {
		if r.inspected != r.detail && (r.Attention != "" || r.group == "" && !m.remote && !wording.IsEnded(r.State)) {
			r.inspected = r.detail
			effects = append(effects, inspect{r.Id, r.detail})
		}
	}
	return append(effects, m.wantPreview()...)
}

// called shows the result of a call.
func (m *model) called(answer called) []effect {
	m.tasks = slices.DeleteFunc(m.tasks, func(t task) bool { return t.call.is(answer.call) })
	if answer.call.verb == create {
		return m.created(answer)
	}
	if answer.err != nil {
		m.complain(m.explain(string(answer.call.verb), answer.call.id, answer.err))
		return nil
	}
	m.say(answer.call.verb.done() + " " + answer.call.id + ".")
	if answer.call.verb.answers() {
		m.preview.stale(answer.call.id)
	}
	return nil
}

func (m *model) attached(back attached) []effect {
	m.tasks = slices.DeleteFunc(m.tasks, func(t task) bool { return t.call.verb == back.verb })
	m.preview.stale(back.id)
	switch {
	case back.err == nil:
	case back.verb == attachTo && !back.sure:
		return []effect{doubt{back.id, back.err}}
	default:
		m.complain(m.explain(string(back.verb), back.id, back.err))
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

// arrange filters, sorts and groups the rows. The selection stays on its session. Where the session
// is gone, or was answered and has moved away, the selection stays at its place in the list.
func (m *model) arrange() {
	m.order = m.order[:0]
	for _, r := range m.rows {
		if (r.State != "archived" || m.archived) && matches(r, m.filter) || m.through != nil && m.through.id == r.Id {
			m.order = append(m.order, r)
		}
	}
	m.sortRows()
	i := slices.IndexFunc(m.order, func(r *row) bool { return r.Id == m.chosen })
	switch {
	case i < 0:
	case m.chosen == m.settled && m.through == nil && !needsPerson(m.order[i]):
		m.settled = ""
	default:
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

// selectBy selects the row at this place because a person said so.
func (m *model) selectBy(place int) {
	m.settled, m.guard, m.unread = "", time.Time{}, time.Time{}
	m.choose(place)
}

// settle keeps the selection in place once the session needs nobody any more: what follows answers
// it.
func (m *model) settle(r *row) {
	if r.Id == m.chosen && needsPerson(r) {
		m.settled = r.Id
	}
}

// next selects the next session in the list that needs a person, in the direction of step.
func (m *model) next(step int) {
	n := len(m.order)
	for i := 1; i < n; i++ {
		if place := ((m.place+i*step)%n + n) % n; needsPerson(m.order[place]) {
			m.selectBy(place)
			return
		}
	}
	if r := m.selected(); r != nil && needsPerson(r) {
		m.say("No other session needs attention.")
		return
	}
	m.say("No session needs attention.")
}

// scroll moves the window so that the selected row is in it, and no further.
func (m *model) scroll() {
	height, at := m.tableHeight(), m.lineOf(m.place)
	top := at
	if top > 0 && m.lines[top-1].row == nil {
		top-- // the heading of its group
	}
	m.first = min(m.first, top)
	m.first = max(m.first, at-height+1)
	m.first = max(0, min(m.first, len(m.lines)-height))
}

// windowLines are the lines of the list that are on the screen.
func (m *model) windowLines() []line {
	first := min(m.first, len(m.lines))
	return m.lines[first:min(len(m.lines), first+m.tableHeight())]
}

// window are the rows on the screen.
func (m *model) window() []*row {
	var rows []*row
	for _, l := range m.windowLines() {
		if l.row != nil {
			rows = append(rows, l.row)
		}
	}
	return rows
}

// matches reports whether each word of the filter is in the texts of a session.
func matches(r *row, filter string) bool {
	for word := range strings.FieldsSeq(strings.ToLower(filter)) {
		found := false
		for _, text := range []string{r.Id, r.Agent, wording.Program(r.Session), r.State, r.Activity, r.Attention, r.Reason, r.WorkingDirectory, r.Worktree, r.Description} {
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

// sortRows sorts the listed rows, by their groups first, and lays out the lines of the list.
func (m *model) sortRows() {
	groups := map[string]int{} // the urgency of the most urgent session of each
	if m.view.Group != "" {
		for _, r := range m.order {
			r.heading = m.groupOf(r)
			if u, known := groups[r.heading]; !known || urgency(r) < u {
				groups[r.heading] = urgency(r)
			}
		}
	}
	slices.SortFunc(m.order, func(a, b *row) int {
		byGroup := 0
		if len(groups) > 0 {
			byGroup = compareNatural(a.heading, b.heading)
			if m.sort == byAttention {
				byGroup = cmp.Or(cmp.Compare(groups[a.heading], groups[b.heading]), byGroup)
			}
		}
		return cmp.Or(byGroup, m.sort.compare(a, b), compareNatural(a.Id, b.Id))
	})
	m.layOut()
}

package top

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
)

// model holds what the screen shows and decides what each key does. It has no side effects: update
// takes a message and returns the effects to execute.
type model struct {
	host      string // shown in the header
	leaveKey  string // tmux's name of the key that ends the pass-through mode
	hosts     []host // if ids name their hosts; empty otherwise
	remote    bool   // host, the only one, is another machine, whose control groups cannot be read here
	archived  bool   // archived sessions are listed, too
	directory string // default workspace of a new session
	errorText func(doing, id string, err error) string
	clock     func() time.Time // for double clicks and the guard against stray keys; tests replace time.Now

	width, height int
	now           time.Time // of the last tick

	rows         map[string]*row // by id
	order        []*row          // the listed rows, sorted
	counts       map[string]int  // of all rows, see countStates
	lines        []line          // one for each line of the list: the rows in order, and headings of groups
	scrollOffset int             // index in lines of the first line on the screen
	sort         sorting
	filter       string
	marked       map[string]bool // by id
	settings     settings

	selectedID string // "" if there is none
	index      int    // of the selected row in order; kept when the session is removed
	answeredID string // session answered last: the selection does not follow when it moves in the list
	createdID  string // session created here, to be selected once it is listed
	lastClick  click

	guardUntil       time.Time // until then keys that act on a session are ignored, see guardReason
	answerGuardUntil time.Time // until then keys that answer a question are ignored

	managers       map[string]client.Manager // by host
	gone           map[string]string         // by host: why its daemon cannot be reached
	connectionLost bool                      // the connection to the bus has ended

	preview     preview
	measuring   bool         // an effect measure is being executed
	remoteDue   time.Time    // when counters are to be read from other machines again
	dialog      *dialog      // nil if keys act on the list
	passThrough *passThrough // nil unless keys are passed through to a session
	draining    *passThrough // the last pass-through, whose queued keys are still being sent
	tasks       []task
	notice      notice
}

// host is one of several hosts.
type host struct {
	name   string // in ids, "" for this machine
	title  string
	remote bool
}

// isRemote reports whether a session is on another machine, whose control groups cannot be read
// here.
func (m *model) isRemote(id string) bool {
	name, _ := client.SplitID(id)
	for _, h := range m.hosts {
		if h.name == name {
			return h.remote
		}
	}
	return m.remote
}

// goneReason returns why the daemon of a session cannot be reached, "" if it can.
func (m *model) goneReason(id string) string {
	host, _ := client.SplitID(id)
	return m.gone[host]
}

// isAllGone reports whether no daemon can be reached.
func (m *model) isAllGone() bool { return len(m.gone) >= max(1, len(m.hosts)) }

// row is a session, with facts that signals do not carry.
type row struct {
	snapshot
	inspected      uint64 // detail number for which group and question were read
	group          string // control group
	question       string // text of the agent's question
	usage          usage
	earlierRuntime uint64 // total duration of the runs before the last one, in microseconds
	heading        string // name of its group while rows are grouped
}

// withoutState returns the row as it is shown while its host cannot be reached.
func (r *row) withoutState(why string) *row {
	shown := *r
	shown.Session = client.Session{
		Id: r.Id, Agent: r.Agent, Command: r.Command, State: word.Unknown, Reason: why, Labels: r.Labels,
		WorkingDirectory: r.WorkingDirectory, Worktree: r.Worktree, Repository: r.Repository, Description: r.Description,
		OnLogin: r.OnLogin,
	}
	shown.question, shown.usage = "", usage{}
	return &shown
}

// task is a call that has not returned yet.
type task struct {
	call  call
	since time.Time
}

// notice is the message line at the bottom. It disappears with the next key or after noticeTime.
type notice struct {
	text    string
	isError bool
	since   time.Time
}

const noticeTime = 6 * time.Second

// update applies a message and returns the effects that follow.
func (m *model) update(message any) []effect {
	selectedID, request := m.selectedID, m.selectedRequest()
	effects, byPerson := m.apply(message)
	if m.selectedID != selectedID && !byPerson && selectedID != "" {
		m.guardUntil = m.clock().Add(guardTime)
	}
	if !byPerson && request.isOutdated(m.selectedRequest()) {
		m.answerGuardUntil = m.clock().Add(guardTime)
	}
	if m.width == 0 {
		return effects
	}
	return append(effects, m.requestMissing()...)
}

// apply applies a message. byPerson reports whether the user caused it with a key or the mouse.
func (m *model) apply(message any) (effects []effect, byPerson bool) {
	switch message := message.(type) {
	case changes:
		effects = m.applyChanges(message)
	case second:
		effects = m.tick(message.now)
	case measured:
		m.measured(message)
	case inspected:
		if r := m.rows[message.id]; r != nil && message.err == nil && r.detail == message.detail {
			r.group, r.question = message.group, message.message
		}
	case captureDue:
		effects = m.captureDue(message.id)
	case captured:
		m.captured(message)
	case called:
		m.called(message)
	case keysSent:
		effects = m.keysSent(message)
	case agents:
		m.setAgents(message)
	case attached:
		m.attached(message)
	case saved:
		if message.err != nil {
			m.showError("cannot save the settings of top: " + message.err.Error())
		}
	default:
		return m.handleInput(message), true
	}
	return effects, false
}

// guardTime is how long keys are ignored that act on a session, after the selection has moved
// without the user's doing, and keys that answer a question, after the question has changed. Nobody
// can have read the new text in that time, so the key was meant for what was shown before.
const guardTime = 400 * time.Millisecond

// request identifies what a session needs attention for.
type request struct {
	id, attention, question string
	at                      uint64
}

// selectedRequest returns the request of the selected session, the zero value if there is none.
func (m *model) selectedRequest() request {
	r := m.selected()
	if r == nil {
		return request{}
	}
	return r.request()
}

func (r *row) request() request {
	return request{r.Id, r.Attention, r.question, r.AttentionTimestamp}
}

// isOutdated reports whether the session now has another request than the one that was shown. The
// text of a question is read a moment after the question was reported; that is not a change.
func (r request) isOutdated(now request) bool {
	if r.question == "" {
		now.question = ""
	}
	return r.id != "" && r != now
}

// guardReason returns why a key that acts on the selected session is ignored at this moment, "" if
// it is not. answers reports whether the key answers a question.
func (m *model) guardReason(answers bool) string {
	now := m.clock()
	switch {
	case now.Before(m.guardUntil):
		return "Key ignored: the selection has just moved to " + m.selectedID + "."
	case answers && now.Before(m.answerGuardUntil):
		return "Key ignored: the question of " + m.selectedID + " is new."
	}
	return ""
}

// applyChanges applies what has changed since the message before.
func (m *model) applyChanges(c changes) []effect {
	if m.rows == nil {
		m.rows, m.gone, m.managers = map[string]*row{}, map[string]string{}, map[string]client.Manager{}
	}
	for _, host := range c.back {
		if m.gone[host] != "" {
			delete(m.gone, host)
			m.notice = notice{}
		}
	}
	maps.Copy(m.gone, c.gone)
	maps.Copy(m.managers, c.managers)
	for _, s := range c.updated {
		m.applySession(s)
	}
	for _, id := range c.removed {
		delete(m.rows, id)
	}
	for id := range m.marked {
		if m.rows[id] == nil {
			delete(m.marked, id)
		}
	}
	m.connectionLost = c.connectionLost
	m.numberQueue()
	m.checkPassThrough()
	m.selectCreated()
	m.arrange()
	if c.connectionLost {
		return []effect{quit{}}
	}
	return []effect{awaitChanges{}}
}

// numberQueue sets the position of each queued session.
func (m *model) numberQueue() {
	var queued []client.Session
	for _, r := range m.rows {
		if r.QueuedTimestamp != 0 {
			queued = append(queued, r.Session)
		}
	}
	client.NumberQueue(queued)
	for _, s := range queued {
		m.rows[s.Id].QueuePosition = s.QueuePosition
	}
}

func (m *model) applySession(s snapshot) {
	r := m.rows[s.Id]
	if r == nil || r.Timestamp != s.Timestamp { // a new session may have the id of one that was removed
		r = &row{group: s.ControlGroup, question: s.AttentionMessage}
		m.rows[s.Id] = r
		delete(m.marked, s.Id)
		if s.Attention == "" && s.ControlGroup != "" {
			r.inspected = s.detail // without a question and with a known group there is nothing to read
		}
	}
	if s.whole && s.ControlGroup != "" {
		r.group = s.ControlGroup
	}
	if s.Attention == "" {
		r.question = ""
	}
	r.addRuntime(s.Session, m.now)
	r.snapshot = s
	m.preview.markOutdated(s.Id)
}

// tick is called once a second.
func (m *model) tick(now time.Time) []effect {
	m.now = now
	if m.notice.text != "" && now.Sub(m.notice.since) > noticeTime {
		m.notice = notice{}
	}
	effects := []effect{awaitSecond{}}
	if targets := m.measureTargets(); len(targets) > 0 && !m.measuring {
		m.measuring = true
		effects = append(effects, measure{targets})
	}
	return effects
}

// measured stores the counters that were read.
func (m *model) measured(message measured) {
	m.measuring = false
	for _, c := range message.counters {
		if r := m.rows[c.id]; r != nil {
			r.usage.add(message.at, c)
			if !c.exists {
				r.group = ""
			}
		}
	}
	if m.sort.byUsage() {
		m.arrange()
	}
}

// Counters are read from other machines at intervals of remoteInterval, or longer, so that no more
// than one call is made in each remoteCallInterval on average. Each session needs a call, which
// costs both machines more than all else that top does.
const (
	remoteInterval     = 5 * time.Second
	remoteCallInterval = 300 * time.Millisecond
)

// measureTargets returns the sessions whose counters are to be read: those on the screen, on other
// machines less often. An order by counters needs them of all sessions, but only on this machine,
// where reading them is cheap.
func (m *model) measureTargets() []measureTarget {
	rows := m.shownRows()
	if m.sort.byUsage() {
		rows = slices.Clone(rows)
		for _, r := range m.order {
			if !m.isRemote(r.Id) && !slices.Contains(rows, r) {
				rows = append(rows, r)
			}
		}
	}
	isRemoteDue := !m.now.Before(m.remoteDue)
	var targets []measureTarget
	calls := 0
	for _, r := range rows {
		live, remote := !wording.IsEnded(r.State), m.isRemote(r.Id)
		switch {
		case remote && live && isRemoteDue && m.goneReason(r.Id) == "":
			targets = append(targets, measureTarget{id: r.Id})
			calls++
		case !remote && r.group != "":
			targets = append(targets, measureTarget{r.Id, r.group, !live})
		}
	}
	if isRemoteDue {
		m.remoteDue = m.now.Add(max(remoteInterval, time.Duration(calls)*remoteCallInterval))
	}
	return targets
}

// requestMissing returns the effects that read what the screen shows and is not known yet.
func (m *model) requestMissing() []effect {
	var effects []effect
	for _, r := range m.shownRows() {
		needsGroup := r.group == "" && !m.isRemote(r.Id) && !wording.IsEnded(r.State)
		if r.inspected != r.detail && (r.Attention != "" || needsGroup) && m.goneReason(r.Id) == "" {
			r.inspected = r.detail
			effects = append(effects, inspect{r.Id, r.detail})
		}
	}
	if m.goneReason(m.selectedID) != "" {
		if m.preview.id != m.selectedID {
			m.preview = preview{id: m.selectedID}
		}
		return effects
	}
	return append(effects, m.requestPreview()...)
}

func (m *model) called(result called) {
	c := result.call
	m.tasks = slices.DeleteFunc(m.tasks, func(t task) bool {
		return t.call.verb == c.verb && t.call.id == c.id && t.call.text == c.text
	})
	switch {
	case c.verb == create:
		m.created(result)
	case result.err != nil:
		m.showError(m.errorText(string(c.verb), c.id, result.err))
	default:
		m.showNotice(verbTexts[c.verb].done + " " + c.id + ".")
		if c.verb.answers() {
			m.preview.markOutdated(c.id)
		}
	}
}

// attached handles the end of an operation that has used the terminal.
func (m *model) attached(result attached) {
	m.tasks = slices.DeleteFunc(m.tasks, func(t task) bool { return t.call.verb == result.verb })
	m.preview.markOutdated(result.id)
	if result.err != nil {
		m.showError(m.errorText(string(result.verb), result.id, result.err))
	}
}

func (m *model) showNotice(text string) { m.notice = notice{text: text, since: m.now} }
func (m *model) showError(text string)  { m.notice = notice{text: text, isError: true, since: m.now} }

// arrange filters, sorts and groups the rows. The selection stays on its session. If the session
// was removed, or was answered and has moved in the list, the selection stays at its index instead.
func (m *model) arrange() {
	m.counts = m.countStates()
	m.order = m.order[:0]
	for _, r := range m.rows {
		listed := (r.State != word.Archived || m.archived) && matches(r, m.filter)
		if listed || m.passThrough != nil && m.passThrough.id == r.Id {
			m.order = append(m.order, r)
		}
	}
	m.sortRows()
	i := slices.IndexFunc(m.order, func(r *row) bool { return r.Id == m.selectedID })
	switch {
	case i < 0:
	case m.selectedID == m.answeredID && m.passThrough == nil && !needsPerson(m.order[i]):
		m.answeredID = ""
	default:
		m.index = i
	}
	m.selectIndex(m.index)
}

// matches reports whether each word of the filter occurs in one of the texts of a session.
func matches(r *row, filter string) bool {
	if filter == "" {
		return true
	}
	texts := []string{
		r.Id, r.Agent, wording.Program(r.Session), r.State, r.Activity, r.Attention, r.Reason,
		r.WorkingDirectory, r.Worktree, r.Description,
	}
	for word := range strings.FieldsSeq(strings.ToLower(filter)) {
		found := false
		for _, text := range texts {
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

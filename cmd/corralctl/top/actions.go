package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
)

// refusal says why something cannot be done with a session as it is, "" if it can be. It decides
// what can be seen from here; the daemon decides the rest.
func refusal(v verb, r *row) string {
	switch v {
	case approve, deny:
		return unless(waitsForPermission(r), "it is not waiting for a permission")
	case ack:
		return unless(r.Attention != "", "it does not ask for attention") + unless(r.Attention == "" || !seen(r), "it is already marked as seen")
	}
	possible, restricted := possibleFor[v]
	return unless(!restricted || possible(r), is(r))
}

// possibleFor are the states in which verbs are possible; those that are not named are possible in
// each.
var possibleFor = map[verb]func(*row) bool{
	enable:  notArchived,
	restart: notArchived,
	resume:  func(r *row) bool { return notArchived(r) && (r.State == "stale" || !r.AgentAlive) },
	send:    func(r *row) bool { return r.State == "suspended" || live(r) && !r.Frozen },
	pressIn: func(r *row) bool { return r.SessionAlive && live(r) && !r.Frozen },
	stop:    func(r *row) bool { return live(r) || r.usage.left > 0 },
	suspend: func(r *row) bool { return live(r) && r.State != "stopping" },
	freeze:  func(r *row) bool { return live(r) && r.State != "stopping" },
	kill:    func(r *row) bool { return r.AgentAlive },
	archive: func(r *row) bool { return notArchived(r) && (!live(r) || r.State == "stale" && !r.AgentAlive) },
	logs:    func(r *row) bool { return r.State != "created" },
}

func live(r *row) bool        { return !wording.IsEnded(r.State) }
func notArchived(r *row) bool { return r.State != "archived" }

func unless(possible bool, why string) string {
	if possible {
		return ""
	}
	return why
}

// is says in which state a session is.
func is(r *row) string {
	switch {
	case r.Frozen && !wording.IsEnded(r.State):
		return "it is frozen; f thaws it"
	case r.State == "created":
		return "it was never started"
	case r.State == "failed" || r.State == "completed":
		return "it has " + r.State
	case r.State == "running" && !r.AgentAlive:
		return "its agent has ended"
	}
	return "it is " + r.State
}

// subjects are the sessions that a key acts on: the marked ones in the order of the list, the
// selected one where none is marked.
func (m *model) subjects() []*row {
	if len(m.marked) == 0 {
		return []*row{m.selected()}
	}
	var rows []*row
	for _, r := range m.order {
		if m.marked[r.Id] {
			rows = append(rows, r)
		}
	}
	for _, id := range sortedKeys(m.marked) { // what the filter hides was marked all the same
		if r := m.rows[id]; !slices.Contains(rows, r) {
			rows = append(rows, r)
		}
	}
	return rows
}

// plan is what a key does with some sessions.
type plan struct {
	verb  verb
	rows  []*row
	make  func(*row) call   // the call for one of them
	loses func(*row) string // what one of them would lose, "" for nothing: then it need not be confirmed
	about string            // what is said about it in any case, "" for nothing
}

// carryOut does it, after a confirmation where something would be lost or several sessions are
// affected. Sessions that it is not possible for are left out, and named.
func (m *model) carryOut(p plan) []effect {
	possible, refused := m.split(p.verb, p.rows)
	if len(possible) == 0 {
		return nil
	}
	var losses []string
	for _, r := range possible {
		if p.loses == nil {
			continue
		}
		if loss := p.loses(r); loss != "" && !slices.Contains(losses, loss) {
			losses = append(losses, loss)
		}
	}
	read := map[*row]asked{}
	for _, r := range possible {
		read[r] = r.asked()
	}
	calls := func() []effect {
		var effects []effect
		for _, r := range m.still(possible) {
			if (p.verb == approve || p.verb == deny) && read[r].isOutdated(r.asked()) {
				m.complain(fmt.Sprintf("cannot %s %q: it does not ask the same any more", p.verb, r.Id))
				continue
			}
			m.settle(r)
			effects = append(effects, m.call(p.make(r))...)
		}
		clear(m.marked)
		return effects
	}
	if len(p.rows) == 1 && len(losses) == 0 && p.about == "" {
		return calls()
	}
	separator := " "
	if len(p.rows) > 1 {
		separator = "\n"
	}
	text := strings.Join(append(notEmpty(p.about), losses...), separator)
	if len(p.rows) > 1 {
		text = strings.TrimSpace(names(possible) + "\n" + strings.Join(append(notEmpty(text), refused...), "\n"))
	}
	return m.confirm(question(p.verb, possible), text, calls)
}

// still returns the sessions that were not removed while a dialog about them was open. One that has
// the id of a removed one by now is another session.
func (m *model) still(rows []*row) (there []*row) {
	for _, r := range rows {
		if m.rows[r.Id] == r {
			there = append(there, r)
		} else {
			m.complain(fmt.Sprintf("%q was removed", r.Id))
		}
	}
	return there
}

// split separates the sessions for which something is possible. Where it is possible for none, it
// says why.
func (m *model) split(v verb, rows []*row) (possible []*row, refused []string) {
	for _, r := range rows {
		why := refusal(v, r)
		if v == reap {
			why = m.refuseReap(r)
		}
		if why == "" {
			possible = append(possible, r)
		} else {
			refused = append(refused, "Not "+r.Id+": "+why+".")
		}
	}
	switch {
	case len(possible) > 0:
	case len(rows) == 1:
		_, why, _ := strings.Cut(strings.TrimSuffix(refused[0], "."), ": ")
		m.complain(fmt.Sprintf("cannot %s %q: %s", v, rows[0].Id, why))
	default:
		m.complain(fmt.Sprintf("cannot %s any of them: %s", v, strings.Join(refused, " ")))
	}
	return possible, refused
}

// question is the title of a confirmation.
func question(v verb, rows []*row) string {
	text := string(v)
	subject := rows[0].Id
	if len(rows) > 1 {
		subject = wording.Plural(len(rows), "session")
	}
	return strings.ToUpper(text[:1]) + text[1:] + " " + subject + "?"
}

func names(rows []*row) string {
	var ids []string
	for _, r := range rows {
		ids = append(ids, r.Id)
	}
	return strings.Join(ids, ", ")
}

func notEmpty(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// call has the daemon do something, and shows that it is being done.
func (m *model) call(c call) []effect {
	m.tasks = append(m.tasks, task{c, m.now})
	return []effect{c}
}

// calling is an action that needs nothing but the id.
func calling(v verb) func(*model, []*row) []effect {
	return func(m *model, rows []*row) []effect {
		p := plan{verb: v, rows: rows, make: func(r *row) call { return call{verb: v, id: r.Id} }}
		if len(rows) > 1 && v == approve {
			p.loses = func(r *row) string { return r.Id + ": " + cmp.Or(firstLine(r.question), "(the question is not known)") }
		}
		return m.carryOut(p)
	}
}

// showing is an action that shows what corralctl prints about a session.
func showing(v verb) func(*model, *row) []effect {
	return func(m *model, r *row) []effect {
		if why := refusal(v, r); why != "" {
			m.complain(fmt.Sprintf("cannot %s %q: %s", v, r.Id, why))
			return nil
		}
		m.tasks = append(m.tasks, task{call{verb: v, id: r.Id}, m.now})
		return []effect{show{v, r.Id}}
	}
}

// attach gives the terminal to corralctl attach, which shows an ended session's last screen and
// asks what to do about it.
func (m *model) attach(r *row) []effect {
	m.settle(r)
	m.tasks = append(m.tasks, task{call{verb: attachTo, id: r.Id}, m.now})
	return []effect{attach{r.Id}}
}

// busy says what would be lost if the agent were ended now, "" if nothing would.
func busy(r *row) string {
	switch {
	case !r.AgentAlive:
		return ""
	case r.Activity == "working":
		return "Its agent is working: what it is doing now is lost."
	case !r.Resumable:
		return "Its agent cannot be resumed: what it has not saved is lost."
	}
	return ""
}

// losing is busy, with the session's id where it is one of several.
func losing(rows []*row) func(*row) string {
	if len(rows) == 1 {
		return busy
	}
	return func(r *row) string {
		if loss := busy(r); loss != "" {
			return r.Id + ": " + strings.ToLower(loss[:1]) + loss[1:]
		}
		return ""
	}
}

func (m *model) stop(rows []*row) []effect {
	return m.carryOut(plan{verb: stop, rows: rows, loses: losing(rows), make: func(r *row) call { return call{verb: stop, id: r.Id} }})
}

func (m *model) suspend(rows []*row) []effect {
	return m.carryOut(plan{verb: suspend, rows: rows, loses: losing(rows), make: func(r *row) call { return call{verb: suspend, id: r.Id} }})
}

func (m *model) restart(rows []*row) []effect {
	return m.carryOut(plan{verb: restart, rows: rows, loses: losing(rows), make: func(r *row) call { return call{verb: restart, id: r.Id} }})
}

func (m *model) resume(rows []*row) []effect {
	return m.carryOut(plan{verb: resume, rows: rows, make: func(r *row) call {
		if r.State == "created" {
			return call{verb: start, id: r.Id}
		}
		return call{verb: resume, id: r.Id}
	}})
}

func (m *model) freeze(rows []*row) []effect {
	how := freeze
	if !slices.ContainsFunc(rows, func(r *row) bool { return !r.Frozen }) {
		how = thaw
	}
	return m.carryOut(plan{verb: how, rows: rows, make: func(r *row) call { return call{verb: how, id: r.Id} }})
}

func (m *model) archive(rows []*row) []effect {
	return m.carryOut(plan{
		verb: archive, rows: rows, about: "The record and the log are kept, but an archived session cannot be started again.",
		make: func(r *row) call { return call{verb: archive, id: r.Id} },
	})
}

func (m *model) remove(rows []*row) []effect {
	about := "The record and the log are deleted. Workspaces are not touched."
	if len(rows) == 1 {
		about = "Its record and its log are deleted; " + wording.Printable(wording.AbbreviateHome(rows[0].WorkingDirectory)) + " is not touched."
	}
	return m.carryOut(plan{
		verb: remove, rows: rows, about: about,
		loses: func(r *row) string {
			switch {
			case wording.IsEnded(r.State):
				return ""
			case len(rows) == 1:
				return "It is " + r.State + " and will be stopped first."
			}
			return r.Id + " is " + r.State + " and will be stopped first."
		},
		make: func(r *row) call { return call{verb: remove, id: r.Id, force: !wording.IsEnded(r.State)} },
	})
}

// enable has the sessions resumed at login, or no longer if all of them were.
func (m *model) enable(rows []*row) []effect {
	p := plan{verb: enable, rows: rows, make: func(r *row) call { return call{verb: enable, id: r.Id, text: "resume"} }}
	if !slices.ContainsFunc(rows, func(r *row) bool { return atLogin(r) == "-" }) {
		p.verb, p.make = disable, func(r *row) call { return call{verb: disable, id: r.Id, text: "ignore"} }
	}
	return m.carryOut(p)
}

func (m *model) kill(rows []*row) []effect {
	possible, refused := m.split(kill, rows)
	if len(possible) == 0 {
		return nil
	}
	subject := "the agent of " + possible[0].Id
	if len(possible) > 1 {
		subject = wording.Plural(len(possible), "agent") + ": " + names(possible)
	}
	text := strings.Join(append([]string{"Work that the agent has not saved may be lost."}, refused...), "\n")
	m.dialog = &dialog{kind: choosing, title: "Signal to " + subject, text: text, choices: signals, yes: func() []effect {
		var effects []effect
		for _, r := range m.still(possible) {
			effects = append(effects, m.call(call{verb: kill, id: r.Id, whom: "agent", signal: signals[m.dialog.choice].number})...)
		}
		clear(m.marked)
		return effects
	}}
	return nil
}

// refuseReap says why there are no leftover processes to kill.
func (m *model) refuseReap(r *row) string {
	switch {
	case r.AgentAlive:
		return "its agent is running, so its processes are not left over"
	case !m.remote && r.usage.left == 0:
		return "it has no leftover processes"
	}
	return ""
}

func (m *model) reap(rows []*row) []effect {
	return m.carryOut(plan{
		verb: reap, rows: rows, about: "Sends SIGKILL to everything in the session except the agent, its shim and tmux.",
		loses: func(r *row) string {
			if r.usage.left == 0 {
				return ""
			}
			return r.Id + ": " + leftovers(r.usage.left) + "."
		},
		make: func(r *row) call { return call{verb: reap, id: r.Id, whom: "leftovers", signal: 9} },
	})
}

func (m *model) send(rows []*row) []effect {
	possible, refused := m.split(send, rows)
	if len(possible) == 0 {
		return nil
	}
	title, text := "Send to "+names(possible), ""
	if len(rows) == 1 {
		text = possible[0].question
		if possible[0].State == "suspended" {
			title = "Resume " + possible[0].Id + " and send"
		}
	}
	m.openText(title, strings.TrimSpace(text+"\n"+strings.Join(refused, "\n")), "send", func(text string) []effect {
		var effects []effect
		for _, r := range m.still(possible) {
			flags := dbusapi.InputEnter
			if r.State == "suspended" {
				flags |= dbusapi.InputResume
			}
			m.settle(r)
			effects = append(effects, m.call(call{verb: send, id: r.Id, text: text, flags: flags})...)
		}
		clear(m.marked)
		return effects
	})
	return nil
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
	m.selectBy(m.place + 1)
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

// clear removes the marks; where there are none, the filter.
func (m *model) clear() {
	switch {
	case m.preview.scrolled:
		m.preview.bottom()
	case len(m.marked) > 0:
		clear(m.marked)
	default:
		m.filter = ""
		m.arrange()
	}
}

package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/word"
)

// refusal returns why an operation is not possible for a session in its present state, "" if it is.
// It only checks what top knows; the daemon checks the rest.
func refusal(v verb, r *row) string {
	switch v {
	case approve, deny:
		return reasonUnless(waitsForPermission(r), "it is not waiting for a permission")
	case ack:
		if r.Attention == "" {
			return "it does not ask for attention"
		}
		return reasonUnless(!r.AttentionAcknowledged, "it is already marked as seen")
	}
	possible, restricted := possibleFor[v]
	return reasonUnless(!restricted || possible(r), stateText(r))
}

// possibleFor reports for some operations whether a session's state allows them. All others are
// always possible.
var possibleFor = map[verb]func(*row) bool{
	enable:     isNotArchived,
	restart:    isNotArchived,
	resume:     func(r *row) bool { return isNotArchived(r) && (r.State == word.Stale || !r.AgentAlive) },
	send:       func(r *row) bool { return r.State == word.Suspended || isLive(r) && !r.Frozen },
	passKeysTo: func(r *row) bool { return r.SessionAlive && isLive(r) && !r.Frozen },
	stop:       func(r *row) bool { return isLive(r) || r.usage.leftovers > 0 || r.QueuedTimestamp != 0 },
	suspend:    func(r *row) bool { return isLive(r) && r.State != word.Stopping },
	freeze:     func(r *row) bool { return isLive(r) && r.State != word.Stopping },
	kill:       func(r *row) bool { return r.AgentAlive },
	archive:    func(r *row) bool { return isNotArchived(r) && (!isLive(r) || r.State == word.Stale && !r.AgentAlive) },
	logs:       func(r *row) bool { return r.State != word.Created },
}

func isLive(r *row) bool        { return !wording.IsEnded(r.State) }
func isNotArchived(r *row) bool { return r.State != word.Archived }

func reasonUnless(possible bool, reason string) string {
	if possible {
		return ""
	}
	return reason
}

// stateText returns the state of a session as the reason of a refusal.
func stateText(r *row) string {
	switch {
	case r.Frozen && !wording.IsEnded(r.State):
		return "it is frozen; f thaws it"
	case r.State == word.Created:
		return "it was never started"
	case r.State == word.Failed || r.State == word.Completed:
		return "it has " + r.State
	case r.State == word.Running && !r.AgentAlive:
		return "its agent has ended"
	}
	return "it is " + r.State
}

// plan is an operation on some sessions.
type plan struct {
	verb     verb
	rows     []*row
	newCall  func(*row) call   // returns the call for a session
	lossText func(*row) string // returns what a session would lose, "" if nothing; may be nil
	note     string            // shown in the confirmation; "" for none
}

// execute executes a plan. It asks for a confirmation if something would be lost, if several
// sessions are affected, or if there is a note. It leaves out the sessions for which the operation
// is not possible, and lists them in the confirmation.
func (m *model) execute(p plan) []effect {
	possible, refused := m.splitPossible(p.verb, p.rows)
	if len(possible) == 0 {
		return nil
	}
	var losses []string
	for _, r := range possible {
		if p.lossText == nil {
			continue
		}
		if loss := p.lossText(r); loss != "" && !slices.Contains(losses, loss) {
			losses = append(losses, loss)
		}
	}
	shown := map[*row]request{}
	for _, r := range possible {
		shown[r] = r.request()
	}
	calls := func() []effect {
		var effects []effect
		for _, r := range m.stillPresent(possible) {
			if (p.verb == approve || p.verb == deny) && shown[r].isOutdated(r.request()) {
				m.showError(fmt.Sprintf("cannot %s %q: it does not ask the same any more", p.verb, r.Id))
				continue
			}
			m.noteAnswer(r)
			effects = append(effects, m.startCall(p.newCall(r))...)
		}
		clear(m.marked)
		return effects
	}
	if len(p.rows) == 1 && len(losses) == 0 && p.note == "" {
		return calls()
	}
	separator := " "
	if len(p.rows) > 1 {
		separator = "\n"
	}
	text := strings.Join(append(notEmpty(p.note), losses...), separator)
	if len(p.rows) > 1 {
		text = strings.TrimSpace(names(possible) + "\n" + strings.Join(append(notEmpty(text), refused...), "\n"))
	}
	m.dialog = &dialog{
		kind: confirming, title: confirmationTitle(p.verb, possible), text: text, onConfirm: calls,
	}
	return nil
}

// stillPresent returns those sessions that were not removed while a dialog about them was open. A
// new session with the id of a removed one is another session.
func (m *model) stillPresent(rows []*row) (present []*row) {
	for _, r := range rows {
		if m.rows[r.Id] == r {
			present = append(present, r)
		} else {
			m.showError(fmt.Sprintf("%q was removed", r.Id))
		}
	}
	return present
}

// splitPossible returns the sessions for which an operation is possible, and a sentence for each of
// the others. If it is possible for none, it shows the reason as an error.
func (m *model) splitPossible(v verb, rows []*row) (possible []*row, refused []string) {
	for _, r := range rows {
		reason := refusal(v, r)
		if v == reap {
			reason = m.reapRefusal(r)
		}
		if reason == "" {
			possible = append(possible, r)
		} else {
			refused = append(refused, "Not "+r.Id+": "+reason+".")
		}
	}
	switch {
	case len(possible) > 0:
	case len(rows) == 1:
		_, reason, _ := strings.Cut(strings.TrimSuffix(refused[0], "."), ": ")
		m.showError(fmt.Sprintf("cannot %s %q: %s", v, rows[0].Id, reason))
	default:
		m.showError(fmt.Sprintf("cannot %s any of them: %s", v, strings.Join(refused, " ")))
	}
	return possible, refused
}

func confirmationTitle(v verb, rows []*row) string {
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

// notEmpty returns a slice with the text, or an empty one if there is none.
func notEmpty(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// startCall returns the effect of a call, which the message line shows until the call returns.
func (m *model) startCall(c call) []effect {
	m.tasks = append(m.tasks, task{c, m.now})
	return []effect{c}
}

// callAction returns an action whose calls have the id of the session as their only argument.
func callAction(v verb) func(*model, []*row) []effect {
	return func(m *model, rows []*row) []effect {
		p := plan{verb: v, rows: rows, newCall: func(r *row) call { return call{verb: v, id: r.Id} }}
		switch {
		case v == stop || v == suspend || v == restart:
			p.lossText = lossTextOf(rows)
		case v == archive:
			p.note = "The record and the log are kept, but an archived session cannot be started again."
		case v == approve && len(rows) > 1:
			p.lossText = func(r *row) string {
				return r.Id + ": " + cmp.Or(firstLine(r.question), "(the question is not known)")
			}
		}
		return m.execute(p)
	}
}

// showAction returns an action that shows what corralctl prints about a session.
func showAction(v verb) func(*model, *row) []effect {
	return func(m *model, r *row) []effect {
		if reason := refusal(v, r); reason != "" {
			m.showError(fmt.Sprintf("cannot %s %q: %s", v, r.Id, reason))
			return nil
		}
		m.tasks = append(m.tasks, task{call{verb: v, id: r.Id}, m.now})
		return []effect{show{v, r.Id}}
	}
}

// attach runs corralctl attach on the terminal. For an ended session that shows the last screen and
// asks the user what to do.
func (m *model) attach(r *row) []effect {
	m.noteAnswer(r)
	m.tasks = append(m.tasks, task{call{verb: attachTo, id: r.Id}, m.now})
	return []effect{attach{r.Id}}
}

// lossText returns what would be lost if the agent were ended now, "" if nothing.
func lossText(r *row) string {
	switch {
	case !r.AgentAlive:
		return ""
	case r.Activity == word.Working:
		return "Its agent is working: what it is doing now is lost."
	case !r.Resumable:
		return "Its agent cannot be resumed: what it has not saved is lost."
	}
	return ""
}

// lossTextOf returns lossText, or if there are several sessions a variant that begins with the id.
func lossTextOf(rows []*row) func(*row) string {
	if len(rows) == 1 {
		return lossText
	}
	return func(r *row) string {
		if loss := lossText(r); loss != "" {
			return r.Id + ": " + strings.ToLower(loss[:1]) + loss[1:]
		}
		return ""
	}
}

func (m *model) resume(rows []*row) []effect {
	return m.execute(plan{verb: resume, rows: rows, newCall: func(r *row) call {
		if r.State == word.Created {
			return call{verb: start, id: r.Id}
		}
		return call{verb: resume, id: r.Id}
	}})
}

func (m *model) freeze(rows []*row) []effect {
	v := freeze
	if !slices.ContainsFunc(rows, func(r *row) bool { return !r.Frozen }) {
		v = thaw
	}
	return callAction(v)(m, rows)
}

func (m *model) remove(rows []*row) []effect {
	note := "The record and the log are deleted. Workspaces are not touched."
	if len(rows) == 1 {
		workspace := wording.Printable(wording.AbbreviateHome(rows[0].WorkingDirectory))
		note = "Its record and its log are deleted; " + workspace + " is not touched."
	}
	return m.execute(plan{
		verb: remove, rows: rows, note: note,
		lossText: func(r *row) string {
			switch {
			case wording.IsEnded(r.State):
				return ""
			case len(rows) == 1:
				return "It is " + r.State + " and will be stopped first."
			}
			return r.Id + " is " + r.State + " and will be stopped first."
		},
		newCall: func(r *row) call { return call{verb: remove, id: r.Id, force: !wording.IsEnded(r.State)} },
	})
}

// enable enables the sessions, so that they are resumed at login. If all of them are enabled, it
// disables them.
func (m *model) enable(rows []*row) []effect {
	v, onLogin := enable, word.Resume
	if !slices.ContainsFunc(rows, func(r *row) bool { return atLogin(r) == "-" }) {
		v, onLogin = disable, word.Ignore
	}
	newCall := func(r *row) call { return call{verb: v, id: r.Id, text: onLogin} }
	return m.execute(plan{verb: v, rows: rows, newCall: newCall})
}

func (m *model) kill(rows []*row) []effect {
	possible, refused := m.splitPossible(kill, rows)
	if len(possible) == 0 {
		return nil
	}
	subject := "the agent of " + possible[0].Id
	if len(possible) > 1 {
		subject = wording.Plural(len(possible), "agent") + ": " + names(possible)
	}
	text := strings.Join(append([]string{"Work that the agent has not saved may be lost."}, refused...), "\n")
	m.dialog = &dialog{kind: choosingSignal, title: "Signal to " + subject, text: text}
	m.dialog.onConfirm = func() []effect {
		var effects []effect
		number := signals[m.dialog.choiceIndex].number
		for _, r := range m.stillPresent(possible) {
			c := call{verb: kill, id: r.Id, recipient: word.Agent, signal: number}
			effects = append(effects, m.startCall(c)...)
		}
		clear(m.marked)
		return effects
	}
	return nil
}

// reapRefusal returns why there are no leftover processes to kill, "" if there are some.
func (m *model) reapRefusal(r *row) string {
	switch {
	case r.AgentAlive:
		return "its agent is running, so its processes are not left over"
	case !m.isRemote(r.Id) && r.usage.leftovers == 0:
		return "it has no leftover processes"
	}
	return ""
}

func (m *model) reap(rows []*row) []effect {
	return m.execute(plan{
		verb: reap, rows: rows,
		note: "Sends SIGKILL to everything in the session except the agent, its shim and tmux.",
		lossText: func(r *row) string {
			if r.usage.leftovers == 0 {
				return ""
			}
			return r.Id + ": " + wording.Leftovers(r.usage.leftovers) + "."
		},
		newCall: func(r *row) call { return call{verb: reap, id: r.Id, recipient: word.Leftovers, signal: 9} },
	})
}

func (m *model) send(rows []*row) []effect {
	possible, refused := m.splitPossible(send, rows)
	if len(possible) == 0 {
		return nil
	}
	title, text := "Send to "+names(possible), ""
	if len(rows) == 1 {
		text = possible[0].question
		if possible[0].State == word.Suspended {
			title = "Resume " + possible[0].Id + " and send"
		}
	}
	text = strings.TrimSpace(text + "\n" + strings.Join(refused, "\n"))
	m.openInput(newAreaInput(), title, text, "send", func(text string) []effect {
		var effects []effect
		for _, r := range m.stillPresent(possible) {
			flags := dbusapi.InputEnter
			if r.State == word.Suspended {
				flags |= dbusapi.InputResume
			}
			m.noteAnswer(r)
			effects = append(effects, m.startCall(call{verb: send, id: r.Id, text: text, flags: flags})...)
		}
		clear(m.marked)
		return effects
	})
	return nil
}

package top

import (
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
)

// key is what a key does, as the help says it.
type key struct{ keys, does string }

// keys are those of the table, in the order in which help shows them.
var keys = []key{
	{"↑ ↓ j k", "select a session; also Page Up, Page Down, Home, End"},
	{"Enter a", "attach: join its terminal (Ctrl-b d comes back)"},
	{"s", "send it a text"},
	{"r", "resume it, or start it for the first time"},
	{"z", "suspend it: stop it, to be resumed"},
	{"S", "stop it"},
	{"f", "freeze it, or let it go on"},
	{"K", "send it a signal"},
	{"x", "kill what is left of it beside its agent"},
	{"A", "archive it: keep its record, out of sight"},
	{"d Del", "remove it with its log, never the workspace"},
	{"Space", "acknowledge it: it needs nobody any more"},
	{"/", "show only what has these words; Esc shows all"},
	{"o", "order: attention, CPU, memory, change, agent, id"},
	{"Tab", "preview of its screen on or off"},
	{"? q", "this help; quit"},
}

// Help is the description of the keys, a line each.
func Help() string {
	text := ""
	for _, k := range keys {
		text += fmt.Sprintf("  %-10s %s\n", k.keys, k.does)
	}
	return text
}

// operate takes what the terminal sends.
func (m *model) operate(message any) []effect {
	switch message := message.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = message.Width, message.Height
		m.scroll()
	case tea.PasteMsg:
		if m.dialog != nil && m.dialog.input != nil {
			m.dialog.input.insert(message.Content)
			m.typed()
		}
	case tea.KeyPressMsg:
		if message.String() == "ctrl+c" {
			return []effect{quit{}}
		}
		m.notice = notice{}
		if m.dialog != nil {
			return m.answer(message)
		}
		return m.press(message.String())
	}
	return nil
}

// press is a key for the table.
func (m *model) press(key string) []effect {
	page := max(1, m.tableHeight()-1)
	switch key {
	case "up", "k":
		m.choose(m.place - 1)
	case "down", "j":
		m.choose(m.place + 1)
	case "pgup", "ctrl+b":
		m.choose(m.place - page)
	case "pgdown", "ctrl+f":
		m.choose(m.place + page)
	case "home", "g":
		m.choose(0)
	case "end", "G":
		m.choose(len(m.order) - 1)
	case "tab":
		m.preview.hidden = !m.preview.hidden
		m.scroll()
	case "o":
		m.sort = m.sort.next()
		m.arrange()
		m.say("Ordered by " + m.sort.String() + ".")
	case "/":
		m.dialog = &dialog{kind: filtering, input: newInput(m.filter)}
	case "esc":
		m.filter = ""
		m.arrange()
	case "?", "h", "f1":
		m.dialog = &dialog{kind: helping}
	case "ctrl+z":
		return []effect{suspendSelf{}}
	case "q":
		return []effect{quit{}}
	default:
		return m.pressFor(key)
	}
	return nil
}

// pressFor is a key for the selected session.
func (m *model) pressFor(key string) []effect {
	r := m.selected()
	act, known := actions[key]
	if r == nil || !known {
		return nil
	}
	if m.gone {
		m.complain("corrald is not running")
		return nil
	}
	return act(m, r)
}

var actions = map[string]func(*model, *row) []effect{
	"enter": (*model).attach, "a": (*model).attach,
	"s": (*model).send, "S": (*model).stop, "r": (*model).resume, "z": (*model).suspend, "f": (*model).freeze,
	"A": (*model).archive, "d": (*model).remove, "delete": (*model).remove, "K": (*model).kill, "f9": (*model).kill, "x": (*model).killLeftovers,
	"space": func(m *model, r *row) []effect { return m.do(call{verb: ack, id: r.Id}) },
}

// do has the daemon do something, and shows that it goes on.
func (m *model) do(c call) []effect {
	m.tasks = append(m.tasks, task{c, m.now})
	return []effect{c}
}

// confirm asks before it has the daemon do something.
func (m *model) confirm(question, loses string, c call) []effect {
	m.dialog = &dialog{kind: confirming, title: question, text: loses, yes: func() []effect { return m.do(c) }}
	return nil
}

func (m *model) attach(r *row) []effect {
	id := r.Id
	give := func(first verb) []effect {
		m.tasks = append(m.tasks, task{call{verb: attachTo, id: id}, m.now})
		return []effect{attach{id, first}}
	}
	ask := func(title, text string, first verb) []effect {
		m.dialog = &dialog{kind: confirming, title: title, text: text, yes: func() []effect { return give(first) }}
		return nil
	}
	switch {
	case r.Frozen:
		return ask("Thaw "+id+" and attach?", "It is frozen: nothing would answer.", thaw)
	case r.SessionAlive || r.State == "starting":
		return give("")
	case r.State == "archived":
		m.complain(fmt.Sprintf("cannot attach to %q: it is archived", id))
		return nil
	case r.State == "created":
		return ask("Start "+id+" and attach?", "It was never started.", start)
	case r.Reason != "":
		return ask("Resume "+id+" and attach?", "It is "+r.State+": "+r.Reason+".", resume)
	}
	return ask("Resume "+id+" and attach?", "It is "+r.State+".", resume)
}

func (m *model) send(r *row) []effect {
	flags := dbusapi.InputEnter
	title := "Send to " + r.Id
	if r.State == "suspended" {
		flags |= dbusapi.InputResume
		title = "Resume " + r.Id + " and send"
	} else if wording.Ended(r.State) {
		m.complain(fmt.Sprintf("cannot send to %q: it is %s", r.Id, r.State))
		return nil
	}
	id := r.Id
	m.dialog = &dialog{kind: sending, title: title, text: r.question, input: newInput("")}
	m.dialog.yes = func() []effect { return m.do(call{verb: send, id: id, text: m.dialog.input.text(), flags: flags}) }
	return nil
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

func (m *model) stop(r *row) []effect {
	if loses := busy(r); loses != "" {
		return m.confirm("Stop "+r.Id+"?", loses, call{verb: stop, id: r.Id})
	}
	return m.do(call{verb: stop, id: r.Id})
}

func (m *model) suspend(r *row) []effect {
	if loses := busy(r); loses != "" {
		return m.confirm("Suspend "+r.Id+"?", loses, call{verb: suspend, id: r.Id})
	}
	return m.do(call{verb: suspend, id: r.Id})
}

func (m *model) resume(r *row) []effect {
	if r.State == "created" {
		return m.do(call{verb: start, id: r.Id})
	}
	return m.do(call{verb: resume, id: r.Id})
}

func (m *model) freeze(r *row) []effect {
	if r.Frozen {
		return m.do(call{verb: thaw, id: r.Id})
	}
	return m.do(call{verb: freeze, id: r.Id})
}

func (m *model) archive(r *row) []effect {
	return m.confirm("Archive "+r.Id+"?", "Its record and log are kept, but it cannot be started again.", call{verb: archive, id: r.Id})
}

func (m *model) remove(r *row) []effect {
	loses := "Its record and its log are lost; " + wording.Printable(wording.Workspace(r.WorkingDirectory)) + " stays as it is."
	force := !wording.Ended(r.State)
	if force {
		loses = "It is " + r.State + ", and is stopped first. " + loses
	}
	return m.confirm("Remove "+r.Id+"?", loses, call{verb: remove, id: r.Id, force: force})
}

func (m *model) kill(r *row) []effect {
	id := r.Id
	m.dialog = &dialog{kind: choosing, title: "Signal for the agent of " + id, text: "One that ends it may lose what it has not saved.", choices: signals}
	m.dialog.yes = func() []effect {
		return m.do(call{verb: kill, id: id, whom: "agent", signal: signals[m.dialog.choice].number})
	}
	return nil
}

func (m *model) killLeftovers(r *row) []effect {
	what := "Every process of it beside its agent, its shim and tmux is ended by SIGKILL."
	if r.usage.left > 0 {
		what = wording.Plural(r.usage.left, "left-over processe") + ": ended by SIGKILL."
		if r.usage.left == 1 {
			what = "1 left-over process: ended by SIGKILL."
		}
	}
	return m.confirm("Kill the leftovers of "+r.Id+"?", what, call{verb: kill, id: r.Id, whom: "leftovers", signal: 9})
}

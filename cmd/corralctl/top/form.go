package top

import (
	"cmp"
	"slices"
	"strings"
	"unicode"

	"charm.land/bubbles/v2/textarea"
	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

// NewSession says what the form of a new session was filled in with.
type NewSession struct {
	Agent     string
	Command   string // a command line as for a shell, of the agent "command"
	Directory string // as it was typed: absolute, or with ~
	Branch    string // of the worktree to make, "" for none
	Prompt    string
}

// field is one of a form: one of several values, a line, or a text.
type field struct {
	name    string
	choices []string
	choice  int
	line    *textinput.Model
	area    *textarea.Model
}

// The fields of the form, in their order.
const (
	agentField = iota
	commandField
	workspaceField
	branchField
	promptField
)

const promptHeight = 3 // lines

// openForm asks what a new session is to be, beginning with the workspace of the selected one.
func (m *model) openForm() []effect {
	if m.gone {
		m.complain("corrald is not running")
		return nil
	}
	line := func(name, value string) *field {
		input := newLine(value)
		return &field{name: name, line: &input}
	}
	prompt := newArea()
	directory, agent := m.directory, ""
	if r := m.selected(); r != nil {
		directory, agent = cmp.Or(r.Repository, r.WorkingDirectory, m.directory), r.Agent
	}
	m.dialog = &dialog{kind: filling, title: "New session", fields: []*field{
		{name: "Agent", choices: notEmpty(agent)},
		line("Command", ""),
		line("Workspace", wording.AbbreviateHome(directory)),
		line("Branch", ""),
		{name: "Prompt", area: &prompt},
	}}
	return []effect{listAgents{}}
}

// offer fills in the agents that there are.
func (m *model) offer(message agents) {
	d := m.dialog
	switch {
	case d == nil || d.kind != filling:
	case message.err != nil:
		d.fault = m.explain("list the agents", "", message.err)
	default:
		f := d.fields[agentField]
		chosen := ""
		if len(f.choices) > 0 {
			chosen = f.choices[f.choice]
		}
		f.choices, f.choice = message.names, max(0, slices.Index(message.names, chosen))
	}
}

// isShown reports whether a field is part of the form as it is filled in: a command has a command
// line and no prompt.
func (d *dialog) isShown(field int) bool {
	f := d.fields[agentField]
	command := len(f.choices) > 0 && f.choices[f.choice] == "command"
	return field != commandField && field != promptField || command == (field == commandField)
}

// filling handles a key for the form.
func (m *model) filling(pressed tea.KeyPressMsg) []effect {
	d := m.dialog
	if d.busy {
		return nil
	}
	f := d.fields[d.field]
	move := func(step int) {
		for ok := true; ok; ok = !d.isShown(d.field) {
			d.field = (d.field + step + len(d.fields)) % len(d.fields)
		}
	}
	key := pressed.String()
	switch {
	case key == "enter":
		return m.createFrom(d)
	case key == "tab", key == "down" && f.area == nil:
		move(1)
	case key == "shift+tab", key == "up" && (f.area == nil || f.area.Line() == 0):
		move(-1)
	case f.choices != nil:
		f.choose(key)
	default:
		m.edit(pressed)
	}
	return nil
}

// choose handles a key for a field with several values.
func (f *field) choose(key string) {
	n := len(f.choices)
	switch key {
	case "right", "space":
		f.choice = (f.choice + 1) % n
	case "left":
		f.choice = (f.choice + n - 1) % n
	default: // the next one that begins with this letter
		for i := range n {
			if next := (f.choice + 1 + i) % n; strings.HasPrefix(f.choices[next], key) {
				f.choice = next
				return
			}
		}
	}
}

// createFrom creates the session. The form stays until that has succeeded: a prompt is not to be
// typed twice.
func (m *model) createFrom(d *dialog) []effect {
	agent := d.fields[agentField]
	if len(agent.choices) == 0 {
		d.fault = "no agent is installed"
		return nil
	}
	spec := NewSession{
		Agent:     agent.choices[agent.choice],
		Directory: strings.TrimSpace(d.fields[workspaceField].line.Value()),
		Branch:    strings.TrimSpace(d.fields[branchField].line.Value()),
	}
	if d.isShown(commandField) {
		spec.Command = strings.TrimSpace(d.fields[commandField].line.Value())
	} else {
		spec.Prompt = strings.TrimSpace(d.fields[promptField].area.Value())
	}
	switch {
	case d.isShown(commandField) && spec.Command == "":
		d.fault, d.field = "missing command", commandField
		return nil
	case spec.Directory == "":
		d.fault, d.field = "missing workspace", workspaceField
		return nil
	}
	d.busy, d.fault = true, ""
	return m.call(call{verb: create, spec: spec})
}

// created selects the new session, or shows in the form why there is none.
func (m *model) created(answer called) []effect {
	d := m.dialog
	open := d != nil && d.kind == filling && d.busy
	if answer.err != nil {
		text := m.explain("create a session of", answer.call.spec.Agent, answer.err)
		if open {
			d.busy, d.fault = false, text
		} else {
			m.complain(text)
		}
		return nil
	}
	if open {
		m.dialog = nil
	}
	m.say("Created " + answer.id + ". Enter attaches to it.")
	m.awaited = answer.id
	m.selectAwaited()
	m.arrange()
	return nil
}

// selectAwaited selects the session that was created, once it is known.
func (m *model) selectAwaited() {
	if m.awaited != "" && m.rows[m.awaited] != nil && m.through == nil {
		m.settled, m.chosen, m.awaited = "", m.awaited, ""
	}
}

// describe asks for the description of a session.
func (m *model) describe(r *row) []effect {
	m.openLine("Description of "+r.Id, "", r.Description, func(text string) []effect {
		return m.call(call{verb: describe, id: r.Id, text: strings.TrimSpace(text)})
	})
	return nil
}

// label asks for the labels of a session.
func (m *model) label(r *row) []effect {
	text := strings.TrimPrefix(labelText(r), "-")
	for _, value := range r.Labels {
		if strings.ContainsFunc(value, unicode.IsSpace) {
			m.complain("cannot edit the labels of " + r.Id + " here: a value contains a space; use corralctl label")
			return nil
		}
	}
	m.openLine("Labels of "+r.Id, "KEY=VALUE, separated by spaces", text, func(text string) []effect {
		labels := map[string]string{}
		for word := range strings.FieldsSeq(text) {
			key, value, ok := strings.Cut(word, "=")
			if !ok || key == "" {
				m.dialog.fault = "invalid label \"" + word + "\": expected KEY=VALUE"
				return nil
			}
			labels[key] = value
		}
		m.dialog.fault = ""
		return m.call(call{verb: label, id: r.Id, labels: labels})
	})
	return nil
}

package top

import (
	"cmp"
	"slices"
	"strings"
	"unicode"

	tea "charm.land/bubbletea/v2"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

// NewSession is the input of the form for a new session.
type NewSession struct {
	Host      string // its name in ids
	Agent     string
	Command   string // a command line as for a shell, if Agent is "command"
	Directory string // as typed: absolute, or beginning with ~
	Branch    string // of the worktree to create, "" for none
	Prompt    string
}

// field is a field of the form: a choice of an agent, or a text.
type field struct {
	name        string
	choices     []string
	choiceIndex int // index of the selected choice
	input
}

// The indices of the fields of the form.
const (
	agentField = iota
	commandField
	workspaceField
	branchField
	promptField
	hostField
)

const promptHeight = 3 // lines

// openForm opens the form for a new session, which begins with the agent and the workspace of the
// selected session.
func (m *model) openForm() []effect {
	if m.isAllGone() {
		m.showError(m.goneText())
		return nil
	}
	line := func(name, value string) *field { return &field{name: name, input: newLineInput(value)} }
	directory, agent := m.directory, ""
	if r := m.selected(); r != nil {
		directory, agent = cmp.Or(r.Repository, r.WorkingDirectory, m.directory), r.Agent
	}
	hosts, index := m.hostChoices()
	m.dialog = &dialog{kind: fillingForm, title: "New session", fields: []*field{
		{name: "Agent", choices: notEmpty(agent)},
		line("Command", ""),
		line("Workspace", wording.AbbreviateHome(directory)),
		line("Branch", ""),
		{name: "Prompt", input: newAreaInput()},
		{name: "Host", choices: hosts, choiceIndex: index},
	}}
	return []effect{listAgents{m.dialog.host(m)}}
}

// hostChoices returns the titles of the hosts that a session can be created on if there are
// several, and the index of that of the selected session.
func (m *model) hostChoices() (titles []string, index int) {
	selected := m.hostTitle(m.selectedID)
	for _, h := range m.hosts {
		titles = append(titles, h.title)
	}
	return titles, max(0, slices.Index(titles, selected))
}

// host returns the name of the chosen host in ids.
func (d *dialog) host(m *model) string {
	if len(m.hosts) == 0 {
		return ""
	}
	return m.hosts[d.fields[hostField].choiceIndex].name
}

// setAgents sets the choices of the field for the agent.
func (m *model) setAgents(message agents) {
	d := m.dialog
	switch {
	case d == nil || d.kind != fillingForm:
	case message.err != nil:
		d.errorText = m.errorText("list the agents", "", message.err)
	default:
		f := d.fields[agentField]
		selected := ""
		if len(f.choices) > 0 {
			selected = f.choices[f.choiceIndex]
		}
		f.choices, f.choiceIndex = message.names, max(0, slices.Index(message.names, selected))
	}
}

// isShown reports whether the selected agent needs the field: a command has a command line and no
// prompt.
func (d *dialog) isShown(field int) bool {
	f := d.fields[agentField]
	isCommand := len(f.choices) > 0 && f.choices[f.choiceIndex] == "command"
	switch field {
	case commandField:
		return isCommand
	case promptField:
		return !isCommand
	case hostField:
		return len(d.fields[hostField].choices) > 1
	}
	return true
}

func (m *model) handleFormKey(pressed tea.KeyPressMsg) []effect {
	d := m.dialog
	if d.isBusy {
		return nil
	}
	f := d.fields[d.fieldIndex]
	move := func(step int) {
		for ok := true; ok; ok = !d.isShown(d.fieldIndex) {
			d.fieldIndex = (d.fieldIndex + step + len(d.fields)) % len(d.fields)
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
		f.handleChoiceKey(key)
		if d.fieldIndex == hostField {
			return []effect{listAgents{d.host(m)}}
		}
	default:
		m.edit(pressed)
	}
	return nil
}

func (f *field) handleChoiceKey(key string) {
	n := len(f.choices)
	switch key {
	case "right", "space":
		f.choiceIndex = (f.choiceIndex + 1) % n
	case "left":
		f.choiceIndex = (f.choiceIndex + n - 1) % n
	default: // the next choice that begins with this letter
		for i := range n {
			if next := (f.choiceIndex + 1 + i) % n; strings.HasPrefix(f.choices[next], key) {
				f.choiceIndex = next
				return
			}
		}
	}
}

// createFrom creates a session from the form. The form stays open until the call has succeeded, so
// that nothing has to be typed again.
func (m *model) createFrom(d *dialog) []effect {
	agent := d.fields[agentField]
	if len(agent.choices) == 0 {
		d.errorText = "no agent is installed"
		return nil
	}
	value := func(field int) string { return strings.TrimSpace(d.fields[field].value()) }
	spec := NewSession{
		Host: d.host(m), Agent: agent.choices[agent.choiceIndex], Directory: value(workspaceField),
		Branch: value(branchField),
	}
	if d.isShown(commandField) {
		spec.Command = value(commandField)
	} else {
		spec.Prompt = value(promptField)
	}
	switch {
	case d.isShown(commandField) && spec.Command == "":
		d.errorText, d.fieldIndex = "missing command", commandField
		return nil
	case spec.Directory == "":
		d.errorText, d.fieldIndex = "missing workspace", workspaceField
		return nil
	}
	d.isBusy, d.errorText = true, ""
	return m.startCall(call{verb: create, spec: spec})
}

// created handles the result of the creation: it selects the new session, or shows the error in the
// form.
func (m *model) created(result called) {
	d := m.dialog
	isOpen := d != nil && d.kind == fillingForm && d.isBusy
	if result.err != nil {
		text := m.errorText("create a session of", result.call.spec.Agent, result.err)
		if isOpen {
			d.isBusy, d.errorText = false, text
		} else {
			m.showError(text)
		}
		return
	}
	if isOpen {
		m.dialog = nil
	}
	m.showNotice("Created " + result.id + ". Enter attaches to it.")
	m.createdID = result.id
	m.selectCreated()
	m.arrange()
}

// selectCreated selects the session that was created here, once it is listed.
func (m *model) selectCreated() {
	if m.createdID != "" && m.rows[m.createdID] != nil && m.passThrough == nil {
		m.answeredID, m.selectedID, m.createdID = "", m.createdID, ""
	}
}

// describe opens the dialog for the description of a session.
func (m *model) describe(r *row) []effect {
	m.openInput(newLineInput(r.Description), "Description of "+r.Id, "", "set", func(text string) []effect {
		return m.startCall(call{verb: describe, id: r.Id, text: strings.TrimSpace(text)})
	})
	return nil
}

// label opens the dialog for the labels of a session.
func (m *model) label(r *row) []effect {
	text := strings.TrimPrefix(labelText(r), "-")
	for _, value := range r.Labels {
		if strings.ContainsFunc(value, unicode.IsSpace) {
			m.showError("cannot edit the labels of " + r.Id + " here: a value contains a space; use corralctl label")
			return nil
		}
	}
	const help = "KEY=VALUE, separated by spaces"
	m.openInput(newLineInput(text), "Labels of "+r.Id, help, "set", func(text string) []effect {
		labels := map[string]string{}
		for word := range strings.FieldsSeq(text) {
			key, value, ok := strings.Cut(word, "=")
			if !ok || key == "" {
				m.dialog.errorText = "invalid label \"" + word + "\": expected KEY=VALUE"
				return nil
			}
			labels[key] = value
		}
		m.dialog.errorText = ""
		return m.startCall(call{verb: label, id: r.Id, labels: labels})
	})
	return nil
}

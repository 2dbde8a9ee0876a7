package top

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"charm.land/bubbles/v2/textarea"
	"charm.land/bubbles/v2/textinput"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"
)

// dialog receives the keys instead of the list while it is open.
type dialog struct {
	kind        dialogKind
	title       string
	text        string
	choiceIndex int // of the selected signal or column
	fields      []*field
	fieldIndex  int    // of the field that receives the keys
	errorText   string // why the input was refused
	isBusy      bool   // the input is being processed
	input
	enterLabel string          // what Enter does with the text
	page       viewport.Model  // scrolls a text that is too long
	onConfirm  func() []effect // returns the effects if the user agrees
	onEnter    func(text string) []effect
}

type dialogKind int

const (
	confirming dialogKind = iota
	choosingSignal
	choosingColumns
	enteringText
	fillingForm
	enteringFilter // the list is filtered while the user types
	showingHelp
)

// signal is a signal that can be sent to an agent.
type signal struct {
	name        string
	number      int32
	description string
}

var signals = []signal{
	{"SIGTERM", int32(unix.SIGTERM), "asks it to exit"},
	{"SIGINT", int32(unix.SIGINT), "as Ctrl-C"},
	{"SIGHUP", int32(unix.SIGHUP), "as a lost terminal"},
	{"SIGQUIT", int32(unix.SIGQUIT), "ends it with a core dump"},
	{"SIGKILL", int32(unix.SIGKILL), "ends it at once"},
	{"SIGUSR1", int32(unix.SIGUSR1), ""},
	{"SIGUSR2", int32(unix.SIGUSR2), ""},
	{"SIGWINCH", int32(unix.SIGWINCH), "makes it draw its screen again"},
}

// Bounds for a typed or pasted text; a longer one belongs in a file. A textarea accepts that many
// lines.
const (
	maxInput      = 256 << 10 // bytes
	maxInputLines = 5000
)

// openInput asks for a text. onEnter returns the effects for it; label describes them in the
// dialog.
func (m *model) openInput(i input, title, text, label string, onEnter func(string) []effect) {
	m.dialog = &dialog{kind: enteringText, title: title, text: text, enterLabel: label, input: i, onEnter: onEnter}
}

func (m *model) openFilter() { m.dialog = &dialog{kind: enteringFilter, input: newLineInput(m.filter)} }

func (m *model) openHelp() {
	m.dialog = &dialog{kind: showingHelp, title: "Keys", page: viewport.New()}
}

func (m *model) openColumns() {
	m.dialog = &dialog{
		kind: choosingColumns, title: "Columns", text: "A column without a value in any session is not shown.",
	}
}

// input is a text input. One of its fields is set.
type input struct {
	line *textinput.Model
	area *textarea.Model // of several lines
}

// newAreaInput returns an input of several lines. Its cursor does not blink, because nothing is to
// be drawn while nothing happens.
func newAreaInput() input {
	area := textarea.New()
	area.Prompt, area.ShowLineNumbers, area.CharLimit, area.MaxHeight, area.MaxWidth = "", false, 0, 0, 0
	area.KeyMap.InsertNewline.SetKeys("alt+enter", "shift+enter", "ctrl+j")
	area.KeyMap.Paste.SetEnabled(false) // the terminal pastes itself
	styles := textarea.DefaultDarkStyles()
	styles.Focused, styles.Blurred = textarea.StyleState{}, textarea.StyleState{}
	styles.Cursor.Blink = false
	area.SetStyles(styles)
	area.Focus()
	return input{area: &area}
}

func newLineInput(value string) input {
	line := textinput.New()
	line.Prompt = ""
	line.KeyMap.Paste.SetEnabled(false)
	styles := textinput.DefaultDarkStyles()
	styles.Focused, styles.Blurred = textinput.StyleState{}, textinput.StyleState{}
	styles.Cursor.Blink = false
	line.SetStyles(styles)
	line.SetValue(value)
	line.CursorEnd()
	line.Focus()
	return input{line: &line}
}

func (i input) value() string {
	if i.line != nil {
		return i.line.Value()
	}
	return i.area.Value()
}

func (m *model) handleDialogKey(pressed tea.KeyPressMsg) []effect {
	d, key := m.dialog, pressed.String()
	if key == "esc" {
		m.closeDialog()
		switch d.kind {
		case enteringFilter:
			m.filter = ""
			m.arrange()
		case choosingColumns:
			return m.saveSettings()
		}
		return nil
	}
	switch d.kind {
	case showingHelp:
		return m.handleHelpKey(pressed)
	case confirming:
		switch key {
		case "y", "Y":
			return m.confirmDialog()
		case "n", "N", "q", "enter":
			m.closeDialog()
		}
		return nil
	case choosingSignal:
		return m.handleChoiceKey(key)
	case choosingColumns:
		return m.handleColumnsKey(key)
	case fillingForm:
		return m.handleFormKey(pressed)
	case enteringFilter:
		if key == "enter" {
			m.closeDialog()
			return nil
		}
	case enteringText:
		if key == "enter" {
			text := d.value()
			effects := d.onEnter(text)
			if d.errorText == "" {
				m.closeDialog()
			}
			return effects
		}
	}
	m.edit(pressed)
	return nil
}

// closeDialog closes the dialog. The list then ignores keys that answer questions for a moment, in
// case a key was pressed twice by accident.
func (m *model) closeDialog() {
	m.dialog = nil
	m.answerGuardUntil = m.clock().Add(guardTime)
}

func (m *model) confirmDialog() []effect {
	effects := m.dialog.onConfirm()
	m.closeDialog()
	return effects
}

// handleHelpKey handles a key in the help: keys for scrolling scroll, any other key closes it.
func (m *model) handleHelpKey(pressed tea.KeyPressMsg) []effect {
	before := m.dialog.page.YOffset()
	m.dialog.page, _ = m.dialog.page.Update(pressed)
	switch pressed.String() {
	case "up", "down", "j", "k", "pgup", "pgdown", "space", "b", "f", "u", "d", "ctrl+u", "ctrl+d",
		"home", "end", "g", "G":
	default:
		if m.dialog.page.YOffset() == before {
			m.dialog = nil
		}
	}
	return nil
}

func (m *model) handleChoiceKey(key string) []effect {
	d := m.dialog
	switch key {
	case "up", "k":
		d.choiceIndex = max(0, d.choiceIndex-1)
	case "down", "j":
		d.choiceIndex = min(len(signals)-1, d.choiceIndex+1)
	case "enter":
		return m.confirmDialog()
	case "q":
		m.closeDialog()
	}
	return nil
}

func (m *model) handleColumnsKey(key string) []effect {
	d := m.dialog
	switch key {
	case "up", "k":
		d.choiceIndex = max(0, d.choiceIndex-1)
	case "down", "j":
		d.choiceIndex = min(len(columns)-1, d.choiceIndex+1)
	case "space":
		m.settings.Columns = m.settings.toggled(columns[d.choiceIndex].name)
	case "r":
		m.settings.Columns = nil
		m.openColumns()
	case "enter", "q":
		m.closeDialog()
		return m.saveSettings()
	}
	return nil
}

// edit passes a key or a paste to the input of the dialog.
func (m *model) edit(message tea.Msg) {
	d := m.dialog
	i := d.input
	if d.kind == fillingForm {
		i = d.fields[d.fieldIndex].input
	}
	switch {
	case i.line != nil:
		*i.line, _ = i.line.Update(message)
	case i.area != nil:
		*i.area, _ = i.area.Update(message)
	}
	if d.kind == enteringFilter {
		m.filter, m.guardUntil = d.value(), time.Time{}
		m.arrange()
	}
}

// paste inserts a text, or refuses the whole text, because a part of it could mean something else.
func (m *model) paste(text string) {
	text = lineFeeds(text)
	switch {
	case m.dialog == nil:
		m.showNotice("Nothing to paste into: s opens a text, i passes keys and pastes on.")
	case !utf8.ValidString(text):
		m.showError("cannot paste: this is not valid UTF-8 text")
	case len(text) > maxInput || strings.Count(text, "\n") > maxInputLines:
		m.showError(fmt.Sprintf("cannot paste: the text is too long, with more than %d KiB or %d lines",
			maxInput>>10, maxInputLines))
	default:
		m.edit(tea.PasteMsg{Content: text})
	}
}

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

// dialog takes the keys instead of the list.
type dialog struct {
	kind    kind
	title   string
	text    string
	choices []signal
	choice  int
	columns []string // those that are chosen
	area    *textarea.Model
	verb    string // what Enter does with the text
	fields  []*field
	field   int    // the one that keys go to
	fault   string // why what was entered could not be done
	busy    bool   // it is being done
	line    *textinput.Model
	page    viewport.Model // the text where there is more than fits
	yes     func() []effect
	enter   func(text string) []effect
}

type kind int

const (
	confirming kind = iota // yes or no
	choosing               // one of several
	columnsOf              // some of several
	typing                 // a text
	filling                // a form
	filtering              // words, which filter while they are typed
	helping
)

// signal is one that can be sent to an agent.
type signal struct {
	name   string
	number int32
	does   string
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

// What is typed or pasted is bounded: a longer text belongs in a file. The lines are those that a
// textarea takes.
const (
	maxTyped = 256 << 10 // bytes
	maxLines = 5000
)

// confirm asks before something is done.
func (m *model) confirm(title, text string, yes func() []effect) []effect {
	m.dialog = &dialog{kind: confirming, title: title, text: text, yes: yes}
	return nil
}

// openText asks for a text, of which enter makes the effects.
func (m *model) openText(title, text, verb string, enter func(string) []effect) {
	area := newArea()
	m.dialog = &dialog{kind: typing, title: title, text: text, verb: verb, area: &area, enter: enter}
}

// openLine asks for one line, which is filled in already.
func (m *model) openLine(title, text, value string, enter func(string) []effect) {
	line := newLine(value)
	m.dialog = &dialog{kind: typing, title: title, text: text, verb: "set", line: &line, enter: enter}
}

func (m *model) openFilter() {
	line := newLine(m.filter)
	m.dialog = &dialog{kind: filtering, line: &line}
}

func (m *model) openHelp() {
	m.dialog = &dialog{kind: helping, title: "Keys", page: viewport.New()}
}

func (m *model) openColumns() {
	d := &dialog{kind: columnsOf, title: "Columns", text: "A column without a value in any session is not shown."}
	for _, c := range columns {
		if m.view.isShown(c) {
			d.columns = append(d.columns, c.name)
		}
	}
	m.dialog = d
}

// newArea is an input of several lines with a cursor that does not blink: nothing is drawn while
// nothing happens.
func newArea() textarea.Model {
	area := textarea.New()
	area.Prompt, area.ShowLineNumbers, area.CharLimit, area.MaxHeight, area.MaxWidth = "", false, 0, 0, 0
	area.KeyMap.InsertNewline.SetKeys("alt+enter", "shift+enter", "ctrl+j")
	area.KeyMap.Paste.SetEnabled(false) // the terminal pastes
	styles := textarea.DefaultDarkStyles()
	styles.Focused, styles.Blurred = textarea.StyleState{}, textarea.StyleState{}
	styles.Cursor.Blink = false
	area.SetStyles(styles)
	area.Focus()
	return area
}

// newLine is an input of one line.
func newLine(value string) textinput.Model {
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
	return line
}

// answer handles a key for the dialog.
func (m *model) answer(pressed tea.KeyPressMsg) []effect {
	d, key := m.dialog, pressed.String()
	if key == "esc" {
		m.closeDialog()
		switch d.kind {
		case filtering:
			m.filter = ""
			m.arrange()
		case columnsOf:
			return m.remember()
		}
		return nil
	}
	switch d.kind {
	case helping:
		return m.readHelp(pressed)
	case confirming:
		switch key {
		case "y", "Y":
			return m.agree()
		case "n", "N", "q", "enter":
			m.closeDialog()
		}
		return nil
	case choosing:
		return m.choosing(key)
	case columnsOf:
		return m.choosingColumns(key)
	case filling:
		return m.filling(pressed)
	case filtering:
		if key == "enter" {
			m.closeDialog()
			return nil
		}
	case typing:
		if key == "enter" {
			text := d.value()
			effects := d.enter(text)
			if d.fault == "" {
				m.closeDialog()
			}
			return effects
		}
	}
	m.edit(pressed)
	return nil
}

// closeDialog gives the keys back to the list. A key that was pressed twice by accident answers no
// question there.
func (m *model) closeDialog() {
	m.dialog = nil
	m.unread = m.time().Add(guardTime)
}

func (m *model) agree() []effect {
	effects := m.dialog.yes()
	m.closeDialog()
	return effects
}

// readHelp scrolls in the help; any other key closes it.
func (m *model) readHelp(pressed tea.KeyPressMsg) []effect {
	before := m.dialog.page.YOffset()
	m.dialog.page, _ = m.dialog.page.Update(pressed)
	switch pressed.String() {
	case "up", "down", "j", "k", "pgup", "pgdown", "space", "b", "f", "u", "d", "ctrl+u", "ctrl+d", "home", "end", "g", "G":
	default:
		if m.dialog.page.YOffset() == before {
			m.dialog = nil
		}
	}
	return nil
}

func (m *model) choosing(key string) []effect {
	d := m.dialog
	switch key {
	case "up", "k":
		d.choice = max(0, d.choice-1)
	case "down", "j":
		d.choice = min(len(d.choices)-1, d.choice+1)
	case "enter":
		return m.agree()
	case "q":
		m.closeDialog()
	}
	return nil
}

func (m *model) choosingColumns(key string) []effect {
	d := m.dialog
	switch key {
	case "up", "k":
		d.choice = max(0, d.choice-1)
	case "down", "j":
		d.choice = min(len(columns)-1, d.choice+1)
	case "space":
		m.view.Columns = toggled(d.columns, columns[d.choice].name)
		d.columns = m.view.Columns
	case "r":
		m.view.Columns = nil
		m.openColumns()
	case "enter", "q":
		m.closeDialog()
		return m.remember()
	}
	return nil
}

// toggled is the chosen columns, in their order, with one more or one less. The id stays.
func toggled(chosen []string, name string) []string {
	all := []string{}
	for _, c := range columns {
		is := false
		for _, other := range chosen {
			is = is || other == c.name
		}
		if c.name == "id" || is != (c.name == name) {
			all = append(all, c.name)
		}
	}
	return all
}

// value is the text that was typed.
func (d *dialog) value() string {
	if d.line != nil {
		return d.line.Value()
	}
	return d.area.Value()
}

// edit hands a key or a paste to the input of the dialog.
func (m *model) edit(message tea.Msg) {
	d := m.dialog
	line, area := d.line, d.area
	if d.kind == filling {
		line, area = d.fields[d.field].line, d.fields[d.field].area
	}
	switch {
	case line != nil:
		*line, _ = line.Update(message)
	case area != nil:
		*area, _ = area.Update(message)
	}
	if d.kind == filtering {
		m.filter, m.guard = d.line.Value(), time.Time{}
		m.arrange()
	}
}

// paste inserts a text, or refuses it as a whole: a part of it would mean something else.
func (m *model) paste(text string) {
	text = lineFeeds(text)
	switch {
	case m.dialog == nil:
		m.say("Nothing to paste into: s opens a text, i passes keys and pastes on.")
	case !utf8.ValidString(text):
		m.complain("cannot paste: this is not valid UTF-8 text")
	case len(text) > maxTyped || strings.Count(text, "\n") > maxLines:
		m.complain(fmt.Sprintf("cannot paste: the text is too long, with more than %d KiB or %d lines", maxTyped>>10, maxLines))
	default:
		m.edit(tea.PasteMsg{Content: text})
	}
}

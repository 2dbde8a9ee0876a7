package top

import (
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"
)

// dialog is what keys go to instead of the table.
type dialog struct {
	kind    kind
	title   string
	text    string
	choices []signal
	choice  int
	input   *input          // nil: there is nothing to type
	yes     func() []effect // what is done if the answer is yes
}

type kind int

const (
	confirming kind = iota // yes or no
	choosing               // one of several
	sending                // a text
	filtering              // words, at work while they are typed
	helping
)

// signal is one that an agent may be sent.
type signal struct {
	name   string
	number int32
	does   string
}

var signals = []signal{
	{"SIGTERM", int32(unix.SIGTERM), "asks it to end"},
	{"SIGINT", int32(unix.SIGINT), "as Ctrl-C"},
	{"SIGHUP", int32(unix.SIGHUP), "as a lost terminal"},
	{"SIGQUIT", int32(unix.SIGQUIT), "ends it with a core dump"},
	{"SIGKILL", int32(unix.SIGKILL), "ends it at once"},
	{"SIGUSR1", int32(unix.SIGUSR1), ""},
	{"SIGUSR2", int32(unix.SIGUSR2), ""},
	{"SIGWINCH", int32(unix.SIGWINCH), "has it draw its screen again"},
}

// answer is a key for the dialog.
func (m *model) answer(pressed tea.KeyPressMsg) []effect {
	d, key := m.dialog, pressed.String()
	switch {
	case key == "esc":
		if d.kind == filtering {
			m.filter = ""
			m.arrange()
		}
		m.dialog = nil
		return nil
	case d.kind == helping:
		m.dialog = nil
		return nil
	case d.kind == confirming:
		switch key {
		case "y", "Y":
			return m.agree()
		case "n", "N", "q", "enter":
			m.dialog = nil
		}
		return nil
	case key == "enter" && d.kind == filtering:
		m.dialog = nil
		return nil
	case key == "enter":
		return m.agree()
	case d.kind == choosing:
		switch key {
		case "up", "k":
			d.choice = max(0, d.choice-1)
		case "down", "j":
			d.choice = min(len(d.choices)-1, d.choice+1)
		case "q":
			m.dialog = nil
		}
		return nil
	}
	d.input.press(pressed)
	m.typed()
	return nil
}

func (m *model) agree() []effect {
	effects := m.dialog.yes()
	m.dialog = nil
	return effects
}

// typed is what follows from a change of what is typed.
func (m *model) typed() {
	if m.dialog.kind == filtering {
		m.filter = m.dialog.input.text()
		m.arrange()
	}
}

// maxTyped bounds what is typed or pasted, in bytes: what is longer is not written by hand and belongs into a file.
const maxTyped = 1 << 20

// input is a text that is being typed. It may have several lines.
type input struct {
	runes  []rune
	cursor int
}

func newInput(text string) *input {
	runes := []rune(text)
	return &input{runes, len(runes)}
}

func (i *input) text() string { return string(i.runes) }

// insert adds text at the cursor. Newlines stay, as what terminals paste them as is not what was copied.
func (i *input) insert(text string) {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	if len(i.text())+len(text) > maxTyped || !utf8.ValidString(text) {
		return
	}
	added := []rune(text)
	i.runes = append(i.runes[:i.cursor:i.cursor], append(added, i.runes[i.cursor:]...)...)
	i.cursor += len(added)
}

func (i *input) press(key tea.KeyPressMsg) {
	switch key.String() {
	case "left", "ctrl+b":
		i.cursor = max(0, i.cursor-1)
	case "right", "ctrl+f":
		i.cursor = min(len(i.runes), i.cursor+1)
	case "home", "ctrl+a":
		i.cursor = 0
	case "end", "ctrl+e":
		i.cursor = len(i.runes)
	case "backspace", "ctrl+h":
		i.cut(i.cursor-1, i.cursor)
	case "delete", "ctrl+d":
		i.cut(i.cursor, i.cursor+1)
	case "ctrl+u":
		i.cut(0, i.cursor)
	case "ctrl+k":
		i.cut(i.cursor, len(i.runes))
	case "ctrl+w", "alt+backspace":
		i.cut(i.wordBefore(), i.cursor)
	case "alt+enter", "shift+enter", "ctrl+j":
		i.insert("\n")
	default:
		i.insert(key.Text)
	}
}

// cut removes the characters from begin to end.
func (i *input) cut(begin, end int) {
	begin, end = max(0, begin), min(len(i.runes), end)
	i.runes = append(i.runes[:begin:begin], i.runes[end:]...)
	i.cursor = begin
}

// wordBefore is where the word before the cursor begins.
func (i *input) wordBefore() int {
	text := strings.TrimRight(string(i.runes[:i.cursor]), " \n")
	return len([]rune(text[:strings.LastIndexAny(text, " \n")+1]))
}

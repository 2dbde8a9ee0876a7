package top

import (
	"fmt"
	"strings"

	"charm.land/bubbles/v2/key"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

const (
	dialogWidth = 72 // with the border, if the terminal is wide enough
	helpWidth   = 80
	frameWidth  = 4  // of border and padding on both sides
	nameWidth   = 11 // of the name of a field
)

// overlayDialog returns the screen with the dialog over its middle.
func (m *model) overlayDialog(screen string) string {
	box := lipgloss.NewStyle().MaxWidth(m.width).MaxHeight(m.height).Render(m.renderDialog())
	x, y := max(0, (m.width-lipgloss.Width(box))/2), max(0, (m.height-lipgloss.Height(box))/2)
	canvas := lipgloss.NewCanvas(m.width, m.height)
	canvas.Compose(lipgloss.NewCompositor(lipgloss.NewLayer(screen), lipgloss.NewLayer(box).X(x).Y(y).Z(1)))
	return canvas.Render()
}

// renderDialog returns the dialog with its border. On a small terminal it shortens the text above
// the input.
func (m *model) renderDialog() string {
	d := m.dialog
	width := dialogWidth
	if d.kind == showingHelp {
		width = helpWidth
	}
	inner := max(1, min(width, m.width)-frameWidth)
	room := max(1, m.height-2-2) // lines without border, title and keys
	above := wrapped(d.text, inner)
	body, keys := m.dialogBody(inner, room)
	if over := len(above) + len(body) - room; over > 0 && len(above) > 0 {
		above = above[:max(1, len(above)-over)]
	}
	if len(body) > room {
		body = body[:room]
	}
	lines := append([]string{paint(wording.Bold, cut(wording.Printable(d.title), inner))}, above...)
	lines = append(append(lines, body...), keysOf("   ", inner, keys...))
	style := lipgloss.NewStyle().Border(lipgloss.RoundedBorder()).Padding(0, 1).Width(inner + frameWidth)
	return style.Render(strings.Join(lines, "\n"))
}

// dialogBody returns the lines for the input of the dialog, and the keys for it.
func (m *model) dialogBody(inner, room int) ([]string, []key.Binding) {
	d := m.dialog
	cancel := keyHint("Esc", "cancel")
	switch d.kind {
	case confirming:
		return nil, []key.Binding{keyHint("y", "yes"), keyHint("n", "no")}
	case choosingSignal:
		var lines []string
		for i, s := range signals {
			lines = append(lines, choiceLine(fit(fit(s.name, 10, false)+s.description, inner, false), i == d.choiceIndex))
		}
		return linesAround(lines, d.choiceIndex, room), []key.Binding{keyHint("Enter", "send it"), cancel}
	case choosingColumns:
		var lines []string
		for i, c := range columns {
			mark := "[ ] "
			if m.settings.isShown(c) {
				mark = "[x] "
			}
			lines = append(lines, choiceLine(fit(mark+c.name, inner, false), i == d.choiceIndex))
		}
		keys := []key.Binding{keyHint("Space", "show or hide"), keyHint("r", "reset"), keyHint("Enter", "done")}
		return linesAround(lines, d.choiceIndex, room-1), keys
	case enteringText:
		height, keys := 1, []key.Binding{keyHint("Enter", d.enterLabel), cancel}
		if d.area != nil {
			height = max(1, min(room, d.area.LineCount()+2, 10))
			keys = []key.Binding{keyHint("Enter", d.enterLabel), keyHint("Alt-Enter", "new line"), cancel}
		}
		return append(d.lines(inner, height, true), d.errorLines(inner)...), keys
	case fillingForm:
		lines, focused := d.formLines(inner)
		keys := []key.Binding{
			keyHint("Enter", "create"), keyHint("Tab", "next field"), keyHint("Alt-Enter", "new line"), cancel,
		}
		if d.isBusy {
			keys = []key.Binding{keyHint("Esc", "hide"), keyHint("Creating…", "")}
		}
		return linesAround(append(lines, d.errorLines(inner)...), focused, room), keys
	case showingHelp:
		d.page.SetWidth(inner)
		d.page.SetContent(helpText(inner))
		d.page.SetHeight(min(room, d.page.TotalLineCount()))
		keys := []key.Binding{keyHint("Esc", "close")}
		if d.page.TotalLineCount() > room {
			keys = append(keys, keyHint("↑ ↓", "scroll"))
		}
		return strings.Split(d.page.View(), "\n"), keys
	}
	return nil, nil
}

// keyHint returns a key and its description, for a line of keys.
func keyHint(name, description string) key.Binding {
	return key.NewBinding(key.WithKeys(name), key.WithHelp(name, description))
}

// lines returns what the input shows: a line, or height lines of several. It has a cursor if it
// receives the keys.
func (i input) lines(width, height int, focused bool) []string {
	if i.line != nil {
		i.line.SetWidth(width - 1)
		if focused {
			return []string{i.line.View()}
		}
		return []string{cut(wording.Printable(i.line.Value()), width)}
	}
	i.area.SetWidth(width)
	i.area.SetHeight(height)
	if focused {
		return strings.Split(i.area.View(), "\n")
	}
	lines := make([]string, height)
	copy(lines, wrapped(i.area.Value(), width))
	return lines
}

// formLines returns the lines of the form, and the index of the first line of the field that
// receives the keys.
func (d *dialog) formLines(inner int) (lines []string, focused int) {
	for i, f := range d.fields {
		if !d.isShown(i) {
			continue
		}
		name := fit(f.name, nameWidth, false)
		width := max(1, inner-nameWidth)
		if i == d.fieldIndex {
			focused = len(lines)
			name = paint(reverse, strings.TrimRight(name, " ")) + strings.Repeat(" ", nameWidth-len(f.name))
		}
		content := []string{paint(wording.Dim, "…")}
		switch {
		case f.line != nil || f.area != nil:
			content = f.lines(width, promptHeight, i == d.fieldIndex)
		case len(f.choices) > 0:
			text := fmt.Sprintf("< %s > (%d of %d)", f.choices[f.choiceIndex], f.choiceIndex+1, len(f.choices))
			content[0] = cut(wording.Printable(text), width)
		}
		for _, line := range content {
			lines = append(lines, name+line)
			name = strings.Repeat(" ", nameWidth)
		}
	}
	note := "A new git worktree of this branch; empty: works in the workspace itself."
	for _, line := range wrapped(note, inner) {
		lines = append(lines, paint(wording.Dim, line))
	}
	return lines, focused
}

func (d *dialog) errorLines(inner int) []string {
	var lines []string
	for _, line := range wrapped(d.errorText, inner) {
		lines = append(lines, paint(wording.Red, line))
	}
	return lines
}

// wrapped returns the lines of an untrusted text, without characters that control a terminal.
func wrapped(text string, width int) []string {
	if text == "" {
		return nil
	}
	return strings.Split(ansi.Wrap(wording.PrintableLines(text), width, " "), "\n")
}

// choiceLine returns a line of a choice, in reverse video if it is selected.
func choiceLine(line string, selected bool) string {
	if selected {
		return reverse + line + wording.Normal
	}
	return line
}

// linesAround returns at most height of the lines, among them the one at this index.
func linesAround(lines []string, index, height int) []string {
	height = max(1, height)
	first := max(0, min(index-height/2, len(lines)-height))
	return lines[first:min(len(lines), first+height)]
}

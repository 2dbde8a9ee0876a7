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
	boxWidth  = 72 // at most, with its border
	helpWidth = 80
	boxFrame  = 4  // columns of border and padding
	nameWidth = 11 // of a field
)

// over lays the dialog over the middle of the screen.
func (m *model) over(text string) string {
	box := lipgloss.NewStyle().MaxWidth(m.width).MaxHeight(m.height).Render(m.box())
	x, y := max(0, (m.width-lipgloss.Width(box))/2), max(0, (m.height-lipgloss.Height(box))/2)
	canvas := lipgloss.NewCanvas(m.width, m.height)
	canvas.Compose(lipgloss.NewCompositor(lipgloss.NewLayer(text), lipgloss.NewLayer(box).X(x).Y(y).Z(1)))
	return canvas.Render()
}

// box is the dialog in its border. Where there is little room the text above what is to be answered
// is shortened.
func (m *model) box() string {
	d := m.dialog
	width := boxWidth
	if d.kind == helping {
		width = helpWidth
	}
	inner := max(1, min(width, m.width)-boxFrame)
	room := max(1, m.height-2-2) // without border, title and keys
	above := wrapped(d.text, inner)
	body, keys := m.body(inner, room)
	if over := len(above) + len(body) - room; over > 0 && len(above) > 0 {
		above = above[:max(1, len(above)-over)]
	}
	if len(body) > room {
		body = body[:room]
	}
	lines := append([]string{paint(wording.Bold, cut(wording.Printable(d.title), inner))}, above...)
	lines = append(append(lines, body...), keysOf("   ", inner, keys...))
	return lipgloss.NewStyle().Border(lipgloss.RoundedBorder()).Padding(0, 1).Width(inner + boxFrame).Render(strings.Join(lines, "\n"))
}

// body are the lines of the dialog that are to be answered, and the keys for that.
func (m *model) body(inner, room int) ([]string, []key.Binding) {
	d := m.dialog
	cancel := hint("Esc", "cancel")
	switch d.kind {
	case confirming:
		return nil, []key.Binding{hint("y", "yes"), hint("n", "no")}
	case choosing:
		var lines []string
		for i, s := range d.choices {
			lines = append(lines, chosenLine(fit(fit(s.name, 10, false)+s.does, inner, false), i == d.choice))
		}
		return around(lines, d.choice, room), []key.Binding{hint("Enter", "send it"), cancel}
	case columnsOf:
		var lines []string
		for i, c := range columns {
			mark := "[ ] "
			if m.view.isShown(c) {
				mark = "[x] "
			}
			lines = append(lines, chosenLine(fit(mark+c.name, inner, false), i == d.choice))
		}
		return around(lines, d.choice, room-1), []key.Binding{hint("Space", "show or hide"), hint("r", "reset"), hint("Enter", "done")}
	case typing:
		keys := []key.Binding{hint("Enter", d.verb), cancel}
		if d.area != nil {
			keys = []key.Binding{hint("Enter", d.verb), hint("Alt-Enter", "new line"), cancel}
		}
		return append(d.input(inner, room), d.faultLines(inner)...), keys
	case filling:
		lines, at := d.form(inner)
		keys := []key.Binding{hint("Enter", "create"), hint("Tab", "next field"), hint("Alt-Enter", "new line"), cancel}
		if d.busy {
			keys = []key.Binding{hint("Esc", "hide"), hint("Creating…", "")}
		}
		return around(append(lines, d.faultLines(inner)...), at, room), keys
	case helping:
		d.page.SetWidth(inner)
		d.page.SetContent(helpText(inner))
		d.page.SetHeight(min(room, d.page.TotalLineCount()))
		keys := []key.Binding{hint("Esc", "close")}
		if d.page.TotalLineCount() > room {
			keys = append(keys, hint("↑ ↓", "scroll"))
		}
		return strings.Split(d.page.View(), "\n"), keys
	}
	return nil, nil
}

// hint is a key that the last line of a dialog names.
func hint(name, does string) key.Binding {
	return key.NewBinding(key.WithKeys(name), key.WithHelp(name, does))
}

// input is the input of a dialog for one text.
func (d *dialog) input(inner, room int) []string {
	if d.line != nil {
		d.line.SetWidth(inner - 1)
		return []string{d.line.View()}
	}
	height := max(1, min(room, d.area.LineCount()+2, 10))
	d.area.SetWidth(inner)
	d.area.SetHeight(height)
	return strings.Split(d.area.View(), "\n")
}

// form are the lines of the form, and the index of the one that keys go to.
func (d *dialog) form(inner int) (lines []string, at int) {
	for i, f := range d.fields {
		if !d.isShown(i) {
			continue
		}
		name := fit(f.name, nameWidth, false)
		width := max(1, inner-nameWidth)
		if i == d.field {
			at = len(lines)
			name = paint(reverse, strings.TrimRight(name, " ")) + strings.Repeat(" ", nameWidth-len(f.name))
		}
		switch {
		case f.line != nil:
			f.line.SetWidth(width - 1)
			lines = append(lines, name+f.shownInput(i == d.field, width)[0])
		case f.area != nil:
			f.area.SetWidth(width)
			f.area.SetHeight(promptHeight)
			for n, line := range f.shownInput(i == d.field, width) {
				if n > 0 {
					name = strings.Repeat(" ", nameWidth)
				}
				lines = append(lines, name+line)
			}
		case len(f.choices) > 0:
			text := fmt.Sprintf("< %s > (%d of %d)", f.choices[f.choice], f.choice+1, len(f.choices))
			lines = append(lines, name+cut(wording.Printable(text), width))
		default:
			lines = append(lines, name+paint(wording.Dim, "…"))
		}
	}
	about := "A new git worktree of this branch; empty: works in the workspace itself."
	for _, line := range wrapped(about, inner) {
		lines = append(lines, paint(wording.Dim, line))
	}
	return lines, at
}

// shownInput is the input of a field, with a cursor if keys go to it.
func (f *field) shownInput(focused bool, width int) []string {
	switch {
	case f.line != nil && !focused:
		return []string{cut(wording.Printable(f.line.Value()), width)}
	case f.line != nil:
		return []string{f.line.View()}
	case !focused:
		lines := make([]string, promptHeight)
		copy(lines, wrapped(f.area.Value(), width))
		return lines
	}
	return strings.Split(f.area.View(), "\n")
}

func (d *dialog) faultLines(inner int) []string {
	var lines []string
	for _, line := range wrapped(d.fault, inner) {
		lines = append(lines, paint(wording.Red, line))
	}
	return lines
}

// wrapped are the lines of a text of others, with nothing in it that a terminal acts on.
func wrapped(text string, width int) []string {
	if text == "" {
		return nil
	}
	return strings.Split(ansi.Wrap(wording.PrintableLines(text), width, " "), "\n")
}

func chosenLine(line string, chosen bool) string {
	if chosen {
		return reverse + line + wording.Normal
	}
	return line
}

// around are as many lines as there is room for, with the one at this index among them.
func around(lines []string, at, room int) []string {
	room = max(1, room)
	first := max(0, min(at-room/2, len(lines)-room))
	return lines[first:min(len(lines), first+room)]
}

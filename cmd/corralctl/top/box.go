package top

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/corrald/corral/cmd/corralctl/wording"
)

const boxWidth = 72 // at most, with its frame

// box is the dialog as lines that are all as wide.
func (m *model) box() []string {
	d := m.dialog
	inner := max(1, min(boxWidth, m.width)-4)
	var body []string
	add := func(text string) {
		for line := range strings.SplitSeq(ansi.Wrap(wording.PrintableLines(text), inner, " "), "\n") {
			body = append(body, fit(line, inner, false))
		}
	}
	if d.text != "" {
		add(d.text)
	}
	switch d.kind {
	case confirming:
		add("")
		body = append(body, answers(inner, "y", "yes", "n", "no"))
	case choosing:
		add("")
		for i, s := range d.choices {
			line := fit(fit(s.name, 10, false)+s.does, inner, false)
			if i == d.choice {
				line = reverse + line + wording.Normal
			}
			body = append(body, line)
		}
		add("")
		body = append(body, answers(inner, "Enter", "send it", "Esc", "cancel"))
	case sending:
		if d.text != "" {
			add("")
		}
		body = append(body, d.input.lines(inner, max(1, m.height-8-len(body)))...)
		add("")
		body = append(body, answers(inner, "Enter", "send", "Alt-Enter", "new line", "Esc", "cancel"))
	case helping:
		for _, k := range keys {
			body = append(body, paint(wording.Bold, fit(k.keys, 10, false))+" "+fit(k.does, inner-11, false))
		}
	}
	title := d.title
	if d.kind == helping {
		title = "Keys"
	}
	return frame(title, body, inner)
}

// answers are the keys that a dialog takes.
func answers(width int, words ...string) string {
	line := ""
	for i := 0; i+1 < len(words); i += 2 {
		line += paint(wording.Bold, words[i]) + " " + words[i+1] + "   "
	}
	line = ansi.Truncate(strings.TrimRight(line, " "), width, "…")
	return line + strings.Repeat(" ", width-ansi.StringWidth(line))
}

// frame puts a border with a title around lines that are inner columns wide.
func frame(title string, body []string, inner int) []string {
	title = cut(" "+wording.Printable(title)+" ", inner)
	lines := []string{"╭─" + paint(wording.Bold, title) + strings.Repeat("─", inner+1-ansi.StringWidth(title)) + "╮"}
	for _, line := range body {
		lines = append(lines, "│ "+line+" │")
	}
	return append(lines, "╰"+strings.Repeat("─", inner+2)+"╯")
}

// over lays a box over the middle of the screen. Of one that is too high its last lines are left out, but for the one with the answers.
func (m *model) over(lines, box []string) []string {
	if room := m.height; len(box) > room {
		keep := min(2, room)
		box = append(box[:room-keep:room-keep], box[len(box)-keep:]...)
	}
	width := ansi.StringWidth(box[0])
	x, y := max(0, (m.width-width)/2), max(0, (m.height-len(box))/2)
	for i, line := range box {
		for len(lines) <= y+i {
			lines = append(lines, "")
		}
		under := lines[y+i]
		left := ansi.Truncate(under, x, "")
		left += ansi.ResetStyle + strings.Repeat(" ", max(0, x-ansi.StringWidth(left)))
		lines[y+i] = ansi.Truncate(left+line+ansi.ResetStyle+ansi.TruncateLeft(under, x+width, ""), m.width, "")
	}
	return lines
}

// lines are the text with the cursor in it, wrapped to width, the last height of them before and with the cursor.
func (i *input) lines(width, height int) []string {
	text := string(i.runes[:i.cursor]) + cursorMark
	rest := string(i.runes[i.cursor:])
	if rest == "" || strings.HasPrefix(rest, "\n") {
		rest = " " + rest // for the cursor to stand on
	}
	var lines []string
	at := 0
	for n, line := range strings.Split(ansi.Hardwrap(visible(text)+visible(rest), width, true), "\n") {
		if before, after, found := strings.Cut(line, cursorMark); found {
			at = n
			first, rest := firstCharacter(after)
			line = before + reverse + first + wording.Normal + rest
		}
		lines = append(lines, line+strings.Repeat(" ", max(0, width-ansi.StringWidth(line))))
	}
	begin := max(0, min(at-height/2, len(lines)-height))
	return lines[begin:min(len(lines), begin+height)]
}

// cursorMark is where the cursor stands in a text; it takes no room, and visible leaves none in what was typed.
const cursorMark = "\x00"

// visible is a typed text as it is shown: with nothing in it that a terminal acts on but newlines.
func visible(text string) string {
	marked := strings.HasSuffix(text, cursorMark)
	text = strings.ReplaceAll(wording.PrintableLines(strings.TrimSuffix(text, cursorMark)), "\t", "    ")
	if marked {
		text += cursorMark
	}
	return text
}

func firstCharacter(text string) (first, rest string) {
	if text == "" {
		return " ", ""
	}
	first, _ = ansi.FirstGraphemeCluster(text, ansi.GraphemeWidth)
	return first, text[len(first):]
}

package top

import (
	"fmt"
	"maps"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"
)

// operate handles what the terminal sends.
func (m *model) operate(message any) []effect {
	switch message := message.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = message.Width, message.Height
		m.scroll()
		m.preview.old = true
	case tea.PasteMsg:
		if m.through != nil {
			return m.passText(message.Content)
		}
		m.notice = notice{}
		m.paste(message.Content)
	case tea.MouseClickMsg:
		return m.clicked(message)
	case tea.MouseWheelMsg:
		m.wheel(message)
	case tea.KeyPressMsg:
		m.notice = notice{}
		switch {
		case m.through != nil:
			return m.passKey(message)
		case message.String() == "ctrl+c":
			return []effect{quit{}}
		case m.dialog != nil:
			return m.answer(message)
		}
		return m.press(message)
	}
	return nil
}

// click is a click of the mouse on a session.
type click struct {
	id string
	at time.Time
}

// doubleTime is within which two clicks on the same session are a double click.
const doubleTime = 400 * time.Millisecond

// clicked selects what is clicked on, attaches to it after a second click, and sorts by a column
// whose title is clicked on.
func (m *model) clicked(mouse tea.MouseClickMsg) []effect {
	if mouse.Button != tea.MouseLeft || m.dialog != nil || m.through != nil {
		return nil
	}
	index := m.first + mouse.Y - 2
	switch {
	case mouse.Y == 1:
		if order, ok := m.sortingAt(mouse.X); ok {
			m.orderBy(order)
		}
		return nil
	case mouse.Y < 2 || mouse.Y >= 2+m.tableHeight() || index >= len(m.lines) || m.lines[index].row == nil:
		return nil
	}
	r, before := m.lines[index].row, m.click
	m.click = click{r.Id, m.time()}
	m.selectBy(m.lines[index].place)
	if before.id != r.Id || m.time().Sub(before.at) > doubleTime {
		return nil
	}
	m.click = click{}
	return m.do(bind("", "", "").onOne((*model).attach))
}

// wheel scrolls the list or the preview, whichever the mouse is over.
func (m *model) wheel(mouse tea.MouseWheelMsg) {
	step := 3
	switch mouse.Button {
	case tea.MouseWheelUp:
		step = -step
	case tea.MouseWheelDown:
	default:
		return
	}
	switch overList := mouse.Y < 2+m.tableHeight(); {
	case m.dialog != nil:
		m.dialog.page.ScrollDown(max(0, step))
		m.dialog.page.ScrollUp(max(0, -step))
	case overList && m.through == nil:
		m.selectBy(m.place + step/3)
	case !overList:
		m.scrollPreview(step)
	}
}

func (m *model) orderBy(order sorting) {
	m.sort = order
	m.arrange()
	m.say("Ordered by " + m.sort.String() + ".")
}

func (m *model) togglePreview() []effect {
	m.view.Hidden = !m.view.Hidden
	m.scroll()
	return m.remember()
}

func (m *model) resizePreview(by int) []effect {
	m.view.Hidden = false
	m.view.Preview = max(leastShare, min(m.view.share()+by, mostShare))
	m.scroll()
	m.say(fmt.Sprintf("The preview has %d%% of the screen.", m.view.share()))
	return m.remember()
}

func (m *model) toggleMouse() []effect {
	m.view.NoMouse = !m.view.NoMouse
	if m.view.NoMouse {
		m.say("Mouse off: the terminal selects text.")
	} else {
		m.say("Mouse on: click selects, double click attaches; the terminal selects text with Shift.")
	}
	return m.remember()
}

func sortedKeys(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

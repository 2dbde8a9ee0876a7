package top

import (
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"
)

// handleInput handles the messages of bubbletea about the terminal.
func (m *model) handleInput(message any) []effect {
	switch message := message.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = message.Width, message.Height
		m.scroll()
		m.preview.outdated = true
	case tea.PasteMsg:
		if m.passThrough != nil {
			return m.passText(message.Content)
		}
		m.notice = notice{}
		m.paste(message.Content)
	case tea.MouseClickMsg:
		return m.handleClick(message)
	case tea.MouseWheelMsg:
		m.handleWheel(message)
	case tea.KeyPressMsg:
		m.notice = notice{}
		switch {
		case m.passThrough != nil:
			return m.passKey(message)
		case message.String() == "ctrl+c":
			return []effect{quit{}}
		case m.dialog != nil:
			return m.handleDialogKey(message)
		}
		return m.handleListKey(message)
	}
	return nil
}

// click is a click of the mouse on a session.
type click struct {
	id string
	at time.Time
}

// doubleClickTime is the longest time between the two clicks of a double click.
const doubleClickTime = 400 * time.Millisecond

// handleClick selects a session that was clicked on, attaches to it after a double click, and sorts
// the list by a column whose title was clicked on.
func (m *model) handleClick(mouse tea.MouseClickMsg) []effect {
	if mouse.Button != tea.MouseLeft || m.dialog != nil || m.passThrough != nil {
		return nil
	}
	index := m.scrollOffset + mouse.Y - 2
	switch {
	case mouse.Y == 1:
		if order, ok := m.sortingAt(mouse.X); ok {
			m.orderBy(order)
		}
		return nil
	case mouse.Y < 2 || mouse.Y >= 2+m.tableHeight() || index >= len(m.lines) || m.lines[index].row == nil:
		return nil
	}
	r, before := m.lines[index].row, m.lastClick
	m.lastClick = click{r.Id, m.clock()}
	m.selectByUser(m.lines[index].index)
	if before.id != r.Id || m.clock().Sub(before.at) > doubleClickTime {
		return nil
	}
	m.lastClick = click{}
	return m.runBinding(bind("", "", "").actsOnOne((*model).attach))
}

// handleWheel scrolls the dialog, or else the list or the preview, whichever the mouse is over.
func (m *model) handleWheel(mouse tea.MouseWheelMsg) {
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
	case overList && m.passThrough == nil:
		m.selectByUser(m.index + step/3)
	case !overList:
		m.scrollPreview(step)
	}
}

func (m *model) orderBy(order sorting) {
	m.sort = order
	m.arrange()
	m.showNotice("Ordered by " + m.sort.String() + ".")
}

func (m *model) togglePreview() []effect {
	m.settings.Hidden = !m.settings.Hidden
	m.scroll()
	return m.saveSettings()
}

func (m *model) resizePreview(by int) []effect {
	m.settings.Hidden = false
	m.settings.Preview = max(minShare, min(m.settings.previewShare()+by, maxShare))
	m.scroll()
	m.showNotice(fmt.Sprintf("The preview has %d%% of the screen.", m.settings.previewShare()))
	return m.saveSettings()
}

func (m *model) toggleMouse() []effect {
	m.settings.NoMouse = !m.settings.NoMouse
	if m.settings.NoMouse {
		m.showNotice("Mouse off: the terminal selects text.")
	} else {
		m.showNotice("Mouse on: click selects, double click attaches; the terminal selects text with Shift.")
	}
	return m.saveSettings()
}

package top

import (
	"time"

	"charm.land/bubbles/v2/viewport"

	"github.com/corrald/corral/dbusapi/word"
)

// The screen is read again after previewInterval at the earliest, or after previewKeyDelay if a key
// was sent to the session. The screen of another session is read once that has been selected for
// previewSelectDelay.
const (
	previewInterval    = 500 * time.Millisecond
	previewKeyDelay    = 60 * time.Millisecond
	previewSelectDelay = 80 * time.Millisecond
)

// historyLines is how many lines are read once the user scrolls.
const historyLines = 2000

// preview shows the screen of the selected session. The screen is read when another session is
// selected and when a signal has reported a change of the session; while the agent works, or keys
// are passed through, it is read again and again. It does not change while the user scrolls in it.
type preview struct {
	id            string // of the session, "" for none
	lines         int    // number of lines that were requested
	text          string
	errorText     string // why the screen could not be read
	requested     bool   // it is being read, or will be after a delay
	outdated      bool   // it has to be read again
	keySent       bool   // a key was sent, whose effect is to be shown soon
	scrolled      bool   // it shows older lines and does not change
	pendingScroll int    // lines to scroll back by once the history was read
	viewport      viewport.Model
}

// markOutdated has the screen read again if it is that of this session.
func (p *preview) markOutdated(id string) {
	if id == p.id {
		p.outdated = true
	}
}

// follow ends scrolling: the preview shows the last lines and changes again.
func (p *preview) follow() {
	if p.scrolled {
		p.scrolled, p.pendingScroll, p.outdated = false, 0, true
		p.viewport.GotoBottom()
	}
}

// requestPreview returns the effects that are needed to show the screen of the selected session.
func (m *model) requestPreview() []effect {
	p, r, height := &m.preview, m.selected(), m.previewHeight()
	if r == nil || height <= 0 {
		*p = preview{}
		return nil
	}
	delay := previewInterval
	if r.Id != p.id {
		*p = preview{id: r.Id, outdated: true, viewport: viewport.New()}
		delay = previewSelectDelay
	}
	if !r.hasScreen() {
		p.outdated = true // it is read once there is one again; until then the last text stays
		return nil
	}
	if p.scrolled {
		if p.lines >= historyLines || p.requested {
			return nil
		}
		p.outdated, delay = true, 0
	}
	changing := r.Activity == word.Working && r.AgentAlive || m.passThrough != nil && m.passThrough.stopReason == ""
	p.outdated = p.outdated || changing || height > p.lines
	if p.requested || !p.outdated {
		return nil
	}
	if p.keySent {
		p.keySent, delay = false, previewKeyDelay
	}
	p.requested = true
	return []effect{delayCapture{r.Id, delay}}
}

// hasScreen reports whether the session's screen can be read. The tmux server of a frozen session
// does not answer.
func (r *row) hasScreen() bool { return r.SessionAlive && !r.Frozen }

// captureDue is called after the delay. It returns the effect that reads the screen, unless another
// session is shown now.
func (m *model) captureDue(id string) []effect {
	p := &m.preview
	if id != p.id || !p.requested {
		return nil
	}
	if r := m.rows[id]; r == nil || !r.hasScreen() {
		p.requested = false
		return nil
	}
	p.outdated, p.lines = false, m.previewHeight()
	if p.scrolled {
		p.lines = historyLines
	}
	return []effect{capture{id, p.lines}}
}

// captured handles the screen that was read.
func (m *model) captured(c captured) {
	p := &m.preview
	if c.id != p.id {
		return // another session was selected meanwhile
	}
	p.requested = false
	switch r := m.rows[c.id]; {
	case c.err == nil && p.scrolled && p.lines < historyLines: // requested before the user scrolled
	case c.err == nil:
		p.text, p.errorText = c.text, ""
		p.viewport.SetContentLines(screenLines(p.text, m.width))
		p.viewport.GotoBottom()
		p.viewport.ScrollUp(p.pendingScroll)
		p.pendingScroll = 0
	case r != nil && r.hasScreen(): // the last text stays
		p.errorText = m.errorText("show the screen of", c.id, c.err)
	}
}

// scrollPreview scrolls down by this number of lines, up if it is negative. At the bottom scrolling
// ends.
func (m *model) scrollPreview(lines int) {
	p := &m.preview
	if p.id == "" || p.text == "" {
		return
	}
	if !p.scrolled && lines < 0 {
		p.scrolled, p.pendingScroll = true, -lines // the history is read first
		return
	}
	if p.pendingScroll > 0 {
		p.pendingScroll = max(0, p.pendingScroll-lines)
		return
	}
	p.viewport.ScrollDown(max(0, lines))
	p.viewport.ScrollUp(max(0, -lines))
	if p.viewport.AtBottom() {
		p.follow()
	}
}

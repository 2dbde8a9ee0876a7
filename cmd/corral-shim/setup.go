package main

import (
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/corrald/corral/internal/shimwire"
)

// setup looks for a dialog with which an agent begins that says nothing of it: a login, or whether
// a directory can be trusted. It follows the agent's screen from its start on, and for no longer
// than it takes to know that there is no such dialog, or not any more.
type setup struct {
	dialog *regexp.Regexp
	screen picture
	due    bool      // the agent has had the time to say something
	last   time.Time // from then on a screen without a dialog means that there will be none
}

// setupTime is how long after its start an agent may still come up with a dialog: on a busy machine
// some take half a minute to make their screen, and one dialog may follow another.
const setupTime = time.Minute

// watchSetup begins to look for a dialog, if the agent's definition tells of one.
func (s *shim) watchSetup() {
	if dialog := compiled(s.spec.SetupPattern); dialog != nil {
		size := s.pane.size()
		last := s.agent.started.Add(max(s.spec.ReadyTimeout, setupTime))
		s.setup = &setup{dialog: dialog, screen: newPicture(int(size.Row), int(size.Col)), last: last}
		s.timers.set(timerSetup, s.agent.started.Add(s.spec.ReadyTimeout))
	}
}

// shows returns the line of the screen that asks for something.
func (w *setup) shows() (line string, ok bool) {
	if w == nil {
		return "", false
	}
	for row := range w.screen.rows {
		if line = w.screen.line(row); line != "" && w.dialog.MatchString(line) {
			return shimwire.SanitizeLine(line), true
		}
	}
	return "", false
}

// setupIsDue is called when the agent has had the time to say something.
func (s *shim) setupIsDue() {
	if s.setup == nil {
		return
	}
	s.setup.due = true
	if s.setup.last.After(time.Now()) {
		s.timers.set(timerSetup, s.setup.last)
	}
	s.lookForSetup()
}

// lookForSetup looks whether there is a dialog, and is called again each time that the agent falls
// silent: until there will be none.
func (s *shim) lookForSetup() {
	if s.setup == nil || !s.setup.due {
		return
	}
	if line, ok := s.setup.shows(); ok {
		s.says(saidByScreen, word{activity: "waiting", reason: "setup", text: line})
		return
	}
	if s.setup.last.After(time.Now()) {
		s.says(saidByScreen, word{})
		return
	}
	s.endSetup()
}

// endSetup looks no more.
func (s *shim) endSetup() {
	if s.setup != nil {
		s.setup = nil
		s.timers.clear(timerSetup)
		s.says(saidByScreen, word{})
	}
}

// isExact tells whether this word shows that the agent tells by itself what it does. There are
// programs that have a title which says that they are ready above the dialog with which they begin.
func isExact(source int, w word) bool {
	switch source {
	case saidByProgram, saidByNotify:
		return w.activity != "" || w.reason != ""
	case saidByTitle:
		return w.activity == "working" || w.activity == "waiting"
	}
	return false
}

// line returns the text of a row, without the frame that is drawn around it.
func (p *picture) line(row int) string {
	var b strings.Builder
	for _, c := range p.cells[row*p.cols : (row+1)*p.cols] {
		if c == 0 {
			c = ' '
		}
		b.WriteRune(c)
	}
	return strings.TrimFunc(b.String(), func(c rune) bool { return unicode.IsSpace(c) || c >= 0x2500 && c <= 0x257f || c == '|' })
}

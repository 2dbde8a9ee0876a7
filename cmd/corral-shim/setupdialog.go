package main

import (
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/shimwire"
)

// setupDetector looks for a dialog that an agent shows at its start without reporting it: a login,
// or whether a directory can be trusted. It follows the agent's screen from the start until such a
// dialog is no longer expected.
type setupDetector struct {
	pattern  *regexp.Regexp
	screen   textScreen
	deadline time.Time // after this time a screen without a dialog ends the detection
}

// setupTimeout is how long after the start of an agent a dialog may appear. On a busy machine some
// agents take half a minute to draw their screen, and a second dialog may follow the first.
const setupTimeout = time.Minute

// startSetupDetection starts to look for a dialog if the agent's definition has a pattern for it.
func (s *shim) startSetupDetection() {
	if pattern := compilePattern(s.spec.SetupPattern); pattern != nil {
		size := s.pane.size()
		s.setupDetector = &setupDetector{
			pattern:  pattern,
			screen:   newTextScreen(int(size.Row), int(size.Col)),
			deadline: s.agent.started.Add(max(s.spec.ReadyTimeout, setupTimeout)),
		}
	}
}

// scheduleSetupCheck is called after output. It has the screen searched after ReadyTimeout, once
// for all the output until then.
func (s *shim) scheduleSetupCheck() {
	if s.setupDetector != nil && !s.timers.isSet(timerSetup) {
		s.timers.set(timerSetup, s.lastOutput.Add(s.spec.ReadyTimeout))
	}
}

// matchingLine returns the line of the screen that matches the pattern. The receiver may be nil.
func (d *setupDetector) matchingLine() (line string, ok bool) {
	if d == nil {
		return "", false
	}
	for row := range d.screen.rows {
		if line = d.screen.line(row); line != "" && d.pattern.MatchString(line) {
			return shimwire.SanitizeLine(line), true
		}
	}
	return "", false
}

// checkSetup reports whether the screen shows a dialog, as a status of sourceScreen.
func (s *shim) checkSetup(now time.Time) {
	if s.setupDetector == nil {
		return
	}
	line, ok := s.setupDetector.matchingLine()
	switch {
	case ok:
		s.setStatus(sourceScreen, agentStatus{activity: word.Waiting, reason: word.Setup, text: line})
	case s.setupDetector.deadline.After(now):
		s.setStatus(sourceScreen, agentStatus{})
	default:
		s.stopSetupDetection()
	}
}

func (s *shim) stopSetupDetection() {
	if s.setupDetector != nil {
		s.setupDetector = nil
		s.timers.clear(timerSetup)
		s.setStatus(sourceScreen, agentStatus{})
	}
}

// isExplicit reports whether a status shows that the agent itself reports what it does. A title
// that matches TitleReady does not count: some programs set it while they show a dialog.
func isExplicit(source int, status agentStatus) bool {
	switch source {
	case sourceOSC7501, sourceNotify:
		return status.activity != "" || status.reason != ""
	case sourceTitle:
		return status.activity == word.Working || status.activity == word.Waiting
	}
	return false
}

// line returns the text of a row without the frame drawn around it.
func (t *textScreen) line(row int) string {
	var b strings.Builder
	for _, c := range t.cells[row*t.cols : (row+1)*t.cols] {
		if c == 0 {
			c = ' '
		}
		b.WriteRune(c)
	}
	return strings.TrimFunc(b.String(), func(c rune) bool {
		return unicode.IsSpace(c) || c == '|' || c >= 0x2500 && c <= 0x257f // box drawing
	})
}

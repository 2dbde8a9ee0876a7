package main

import (
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/shimwire"
)

// screenStatus finds on the agent's screen what the agent does not report: a dialog at its start, a
// dialog about a usage limit, that it tries again after a failure, or that it has nothing to do. It
// follows the screen for as long as the agent's definition has a pattern that still applies.
type screenStatus struct {
	// The patterns, nil if there is none. Setup becomes nil once it does not apply any more.
	setup, limit, retry, idle, working *regexp.Regexp

	screen        textScreen
	setupDeadline time.Time // after this time a screen without a dialog ends the search for one
}

// setupTimeout is how long after the start of an agent a dialog may appear. On a busy machine some
// agents take half a minute to draw their screen, and a second dialog may follow the first.
const setupTimeout = time.Minute

// watchScreen starts to follow the screen if the agent's definition has a pattern for it.
func (s *shim) watchScreen() {
	size := s.pane.size()
	s.screenStatus = &screenStatus{
		setup:         compilePattern(s.spec.SetupPattern),
		limit:         compilePattern(s.spec.LimitPattern),
		idle:          compilePattern(s.spec.IdlePattern),
		working:       compilePattern(s.spec.WorkingPattern),
		retry:         compilePattern(s.spec.RetryPattern),
		screen:        newTextScreen(int(size.Row), int(size.Col)),
		setupDeadline: s.agent.started.Add(max(s.spec.ReadyTimeout, setupTimeout)),
	}
	s.unwatchScreen()
}

// unwatchScreen stops to follow the screen if no pattern is left.
func (s *shim) unwatchScreen() {
	w := s.screenStatus
	if w.setup == nil && w.limit == nil && w.retry == nil && w.idle == nil && w.working == nil {
		s.screenStatus = nil
		s.timers.clear(timerScreen)
	}
}

// scheduleScreenCheck is called after output. It has the screen searched after ReadyTimeout, once
// for all the output until then.
func (s *shim) scheduleScreenCheck() {
	if s.screenStatus != nil && !s.timers.isSet(timerScreen) {
		s.timers.set(timerScreen, s.lastOutput.Add(s.spec.ReadyTimeout))
	}
}

// showsSetup reports whether the screen shows a dialog at the start. The receiver may be nil.
func (w *screenStatus) showsSetup() bool {
	return w != nil && w.setup != nil && w.setupLine(w.lines()) != ""
}

// lines returns the lines of the screen that are not empty.
func (w *screenStatus) lines() []string {
	lines := make([]string, 0, w.screen.rows)
	for row := range w.screen.rows {
		if line := w.screen.line(row); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// setupLine returns the first line that is part of a dialog at the start, "" if there is none.
func (w *screenStatus) setupLine(lines []string) string {
	i := slices.IndexFunc(lines, func(line string) bool { return w.setup != nil && w.setup.MatchString(line) })
	if i < 0 {
		return ""
	}
	return shimwire.SanitizeLine(lines[i])
}

// limitText returns the text of a dialog about a usage limit, "" if there is none.
func (w *screenStatus) limitText(lines []string) string {
	if w.limit == nil {
		return ""
	}
	return matchedText(w.limit, strings.Join(lines, "\n"))
}

// retryText returns what the screen shows about a failure after which the agent tries again, "" if
// it shows nothing.
func (w *screenStatus) retryText(lines []string) string {
	i := slices.IndexFunc(lines, func(line string) bool { return w.retry != nil && w.retry.MatchString(line) })
	if i < 0 {
		return ""
	}
	return matchedText(w.retry, lines[i])
}

// matchedText returns what the first group of the pattern matches in the text or, if it has none,
// the whole pattern. It returns "" if the pattern does not match.
func matchedText(pattern *regexp.Regexp, text string) string {
	found := pattern.FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	return shimwire.SanitizeLine(strings.ReplaceAll(found[min(1, len(found)-1)], "\n", " "))
}

// activity returns what the last line shows that the agent does, "" if it shows neither that it
// works nor that it has nothing to do. Only that line counts: the ones above may have been written
// by anybody.
func (w *screenStatus) activity(lines []string) string {
	shows := func(pattern *regexp.Regexp) bool {
		return pattern != nil && len(lines) > 0 && pattern.MatchString(lines[len(lines)-1])
	}
	switch {
	case shows(w.working):
		return word.Working
	case shows(w.idle):
		return word.Idle
	}
	return ""
}

// checkScreen reports what the screen shows, as a status of sourceScreen.
func (s *shim) checkScreen(now time.Time) {
	w := s.screenStatus
	if w == nil {
		return
	}
	status, ok := w.status()
	if isComplete := s.lastOutput.Add(s.spec.ReadyTimeout); !ok && isComplete.After(now) {
		s.timers.set(timerScreen, isComplete)
		return
	}
	s.setStatus(sourceScreen, status)
	if status.reason != word.Setup && !w.setupDeadline.After(now) {
		s.endSetup()
	}
}

// status returns what the screen shows. It returns false if the last line shows neither that the
// agent works nor that it has nothing to do, although it has to show one of these: a dialog covers
// it, or it is only drawn in part.
func (w *screenStatus) status() (status agentStatus, ok bool) {
	lines := w.lines()
	if text := w.setupLine(lines); text != "" {
		return agentStatus{activity: word.Waiting, reason: word.Setup, text: text}, true
	}
	if text := w.limitText(lines); text != "" {
		return agentStatus{activity: word.Waiting, reason: word.Limit, text: text}, true
	}
	if text := w.retryText(lines); text != "" {
		return agentStatus{activity: word.Working, reason: word.Error, text: text}, true
	}
	activity := w.activity(lines)
	return agentStatus{activity: activity}, activity != "" || w.working == nil
}

// endSetup ends the search for a dialog at the start of the agent.
func (s *shim) endSetup() {
	if s.screenStatus == nil || s.screenStatus.setup == nil {
		return
	}
	s.screenStatus.setup = nil
	s.unwatchScreen()
	if s.reports[sourceScreen].reason == word.Setup {
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

package main

import (
	"bytes"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/resettime"
	"github.com/corrald/corral/internal/shimwire"
)

// screenStatus finds on the agent's screen what the agent does not report: a dialog at its start, a
// dialog about a usage limit, that it tries again after a failure, or that it has nothing to do. It
// follows the screen for as long as the agent's definition has a pattern that still applies.
type screenStatus struct {
	// The patterns, nil if there is none. Setup becomes nil once it does not apply any more.
	setup, limit, retry, idle, working *regexp.Regexp

	screen        textScreen
	text          []byte    // its lines that are not empty, when it was last read
	setupDeadline time.Time // after this time a screen without a dialog ends the search for one

	// The dialog about a usage limit that the screen shows, "" if there is none, and when the limit
	// resets as Unix time. This is read once for each dialog: it contains a time of day.
	limitText  string
	limitUntil int64
	zone       *time.Location // the agent's
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
		zone:          timeZone(s.spec.Env),
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
	if w == nil || w.setup == nil {
		return false
	}
	w.read()
	return w.line(w.setup) != ""
}

// read sets text to the lines of the screen that are not empty. Its memory is reused, because the
// screen of an agent is read for days.
func (w *screenStatus) read() {
	w.text = w.text[:0]
	for row := range w.screen.rows {
		if before := len(w.text); before > 0 {
			w.text = w.screen.appendLine(append(w.text, '\n'), row)
			if len(w.text) == before+1 {
				w.text = w.text[:before]
			}
		} else {
			w.text = w.screen.appendLine(w.text, row)
		}
	}
}

// timeZone returns the time zone of a program with this environment: tzset(3).
func timeZone(environment []string) *time.Location {
	for _, variable := range environment {
		if name, ok := strings.CutPrefix(variable, "TZ="); ok {
			if zone, err := time.LoadLocation(strings.TrimPrefix(name, ":")); err == nil {
				return zone
			}
		}
	}
	return time.Local
}

// readLimit reads the dialog about a usage limit.
func (w *screenStatus) readLimit() {
	text := ""
	if w.limit != nil {
		text = matchedText(w.limit, w.text)
	}
	if text == w.limitText {
		return
	}
	w.limitText, w.limitUntil = text, 0
	if reset, ok := resettime.Parse(text, time.Now(), w.zone); ok {
		w.limitUntil = reset.Unix()
	}
}

// retryText returns what the screen shows about a failure after which the agent tries again, "" if
// it shows nothing.
func (w *screenStatus) retryText() string {
	if line := w.line(w.retry); line != "" {
		return matchedText(w.retry, []byte(line))
	}
	return ""
}

// line returns the first line that matches the pattern, "" if there is none.
func (w *screenStatus) line(pattern *regexp.Regexp) string {
	if pattern != nil {
		for line := range bytes.SplitSeq(w.text, []byte{'\n'}) {
			if pattern.Match(line) {
				return shimwire.SanitizeLine(string(line))
			}
		}
	}
	return ""
}

// matchedText returns what the first group of the pattern matches in the text or, if it has none,
// the whole pattern. It returns "" if the pattern does not match.
func matchedText(pattern *regexp.Regexp, text []byte) string {
	found := pattern.FindSubmatch(text)
	if found == nil {
		return ""
	}
	return shimwire.SanitizeLine(strings.ReplaceAll(string(found[min(1, len(found)-1)]), "\n", " "))
}

// activity returns what the last line shows that the agent does, "" if it shows neither that it
// works nor that it has nothing to do. Only that line counts: the ones above may have been written
// by anybody.
func (w *screenStatus) activity() string {
	last := w.text[bytes.LastIndexByte(w.text, '\n')+1:]
	switch {
	case w.working != nil && w.working.Match(last):
		return word.Working
	case w.idle != nil && w.idle.Match(last):
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
	w.read()
	if text := w.line(w.setup); text != "" {
		return agentStatus{activity: word.Waiting, reason: word.Setup, text: text}, true
	}
	if w.readLimit(); w.limitText != "" {
		return agentStatus{activity: word.Waiting, reason: word.Limit, text: w.limitText, until: w.limitUntil}, true
	}
	if text := w.retryText(); text != "" {
		return agentStatus{activity: word.Working, reason: word.Error, text: text}, true
	}
	activity := w.activity()
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

// appendLine appends the text of a row without the frame drawn around it.
func (t *textScreen) appendLine(b []byte, row int) []byte {
	isMargin := func(c rune) bool {
		return c == 0 || unicode.IsSpace(c) || c == '|' || c >= 0x2500 && c <= 0x257f // box drawing
	}
	cells := t.cells[row*t.cols : (row+1)*t.cols]
	for len(cells) > 0 && isMargin(cells[0]) {
		cells = cells[1:]
	}
	for len(cells) > 0 && isMargin(cells[len(cells)-1]) {
		cells = cells[:len(cells)-1]
	}
	for _, c := range cells {
		if c == 0 {
			c = ' '
		}
		b = utf8.AppendRune(b, c)
	}
	return b
}

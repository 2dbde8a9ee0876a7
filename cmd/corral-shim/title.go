package main

import (
	"bytes"
	"regexp"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/shimwire"
)

// titleStatus derives the agent's status from the terminal's title, if the agent's definition has
// patterns for it.
type titleStatus struct {
	ready, working, blocked *regexp.Regexp // nil if no title shows this

	// The last title. Its memory is reused, because a program may change the title ten times a second
	// for days.
	last []byte
}

func newTitleStatus(spec *shimwire.Spec) titleStatus {
	return titleStatus{
		ready:   compilePattern(spec.TitleReady),
		working: compilePattern(spec.TitleWorking),
		blocked: compilePattern(spec.TitleBlocked),
	}
}

// compilePattern returns the expression, or nil if it is empty or invalid. The daemon reports
// invalid ones when it reads the definition.
func compilePattern(expression string) *regexp.Regexp {
	if expression == "" {
		return nil
	}
	re, _ := regexp.Compile(expression)
	return re
}

// hasPatterns reports whether titles show a status.
func (t *titleStatus) hasPatterns() bool {
	return t.ready != nil || t.working != nil || t.blocked != nil
}

// handleTitle handles a title of the agent's terminal. A title that matches no pattern clears the
// status.
func (s *shim) handleTitle(title []byte) {
	t := &s.titleStatus
	if !t.hasPatterns() || bytes.Equal(t.last, title) {
		return
	}
	t.last = append(t.last[:0], title...)
	is := func(re *regexp.Regexp) bool { return re != nil && re.Match(title) }
	switch before := s.reports[sourceTitle].agentStatus; {
	case is(t.blocked):
		text := shimwire.SanitizeLine(string(title))
		s.setStatus(sourceTitle, agentStatus{activity: word.Waiting, reason: word.Question, text: text})
	case is(t.working):
		s.setStatus(sourceTitle, agentStatus{activity: word.Working})
	case is(t.ready) && before.activity == word.Working:
		s.setStatus(sourceTitle, agentStatus{activity: word.Idle, reason: word.TurnEnded})
	case is(t.ready) && before.activity != word.Idle:
		s.setStatus(sourceTitle, agentStatus{activity: word.Idle})
	case !is(t.ready):
		s.setStatus(sourceTitle, agentStatus{})
	}
}

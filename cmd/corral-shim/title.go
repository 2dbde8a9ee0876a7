package main

import (
	"bytes"
	"regexp"

	"github.com/corrald/corral/internal/shimwire"
)

// titles tell what the agent does by its terminal's title, where its definition says how.
type titles struct {
	ready, working, blocked *regexp.Regexp // nil for one that no title tells
	last                    []byte         // in memory of its own, which is used again: a program may have another title ten times a second, for days
}

func newTitles(spec *shimwire.Spec) titles {
	return titles{ready: compiled(spec.TitleReady), working: compiled(spec.TitleWorking), blocked: compiled(spec.TitleBlocked)}
}

// compiled returns the expression, nil if it is empty or none. The daemon has told of one that is
// none where it was written.
func compiled(expression string) *regexp.Regexp {
	if expression == "" {
		return nil
	}
	re, _ := regexp.Compile(expression)
	return re
}

// mapped tells whether titles mean anything.
func (t *titles) mapped() bool { return t.ready != nil || t.working != nil || t.blocked != nil }

// titled takes a title of the agent's terminal. One that nothing matches says nothing.
func (s *shim) titled(title []byte) {
	t := &s.titles
	if !t.mapped() || bytes.Equal(t.last, title) {
		return
	}
	t.last = append(t.last[:0], title...)
	is := func(re *regexp.Regexp) bool { return re != nil && re.Match(title) }
	switch before := s.said[saidByTitle].word; {
	case is(t.blocked):
		s.says(saidByTitle, word{activity: "waiting", reason: "question", text: shimwire.SanitizeLine(string(title))})
	case is(t.working):
		s.says(saidByTitle, word{activity: "working"})
	case is(t.ready) && before.activity == "working":
		s.says(saidByTitle, word{activity: "idle", reason: "turn-ended"})
	case is(t.ready) && before.activity != "idle":
		s.says(saidByTitle, word{activity: "idle"})
	case !is(t.ready):
		s.says(saidByTitle, word{})
	}
}

package main

import (
	"slices"
	"time"

	"github.com/corrald/corral/internal/shimwire"
)

// A program that still makes its screen loses what is typed. One that has asked for bracketed paste
// has set up its input, and is only given the time to draw: promptCalm. Any other is waited for
// until it is idle. One that is never silent, or says nothing at all, is told its prompt after
// promptTime all the same. What is sent to the session meanwhile waits behind it, for as long as
// who sends it does.
//
// One whose title says when it is ready (TitleReady=) is waited for until then, for readyTime: it
// may fall silent while it still loads what it is made of. Where the title tells all that it does
// (TitleWorking=) it has to be idle, too: Gemini CLI loses what comes in the seconds in which it
// shows an earlier conversation. Any other has titleCalm: Copilot CLI has its title a moment before
// its input line, and that moment is long on a machine with much to do.
//
// Other texts wait in the same way for an agent of which it is known that it loses them
// (TypeAhead=no). One that is slow to start, on a machine with much to do, would lose its prompt
// too: its time begins with the first that it prints, for which it has readyTime.
const (
	promptCalm = 500 * time.Millisecond
	titleCalm  = 1500 * time.Millisecond
	promptTime = 15 * time.Second
	readyTime  = time.Minute
)

// prompt is what the agent is told first: it is typed once, when the agent takes input.
type prompt struct {
	waits   bool      // the agent is not taken to take input yet, and somebody wants to know when it does
	text    *text     // nil if there is none, or it is on its way
	last    time.Time // when it is taken to in any case
	printed bool      // the agent has printed something by now
	given   bool      // all of it, or some: where it ended in between nobody can tell
}

// takePrompt takes the prompt out of the spec, for the agent that was just started.
func (s *shim) takePrompt() {
	var t *text
	if s.spec.Prompt != "" {
		if t = (&text{enter: true}); !t.append([]byte(s.spec.Prompt)) {
			t = nil
		}
	}
	if t == nil && !s.spec.HoldInput {
		return
	}
	s.spec.Prompt = ""
	s.prompt = prompt{waits: true, text: t, last: s.promptLast()}
	s.tellPrompt(s.agent.started)
}

// promptLast returns when an agent that prints nothing is taken to take input.
func (s *shim) promptLast() time.Time {
	if s.spec.HoldInput || s.spec.TitleReady != "" {
		return s.agent.started.Add(readyTime)
	}
	return s.agent.started.Add(promptTime)
}

// tellPrompt types the prompt if the agent can be told it by now, and lets go of the texts that
// wait; else it sees to it that this is looked at again.
func (s *shim) tellPrompt(now time.Time) {
	p := &s.prompt
	switch {
	case !p.waits:
		return
	case s.asks() || s.spec.Notify != "" && s.ready.IsZero():
		// Enter would be its answer; or it is going to say when it takes input. Both are told by it, and
		// are looked at then.
		s.timers.clear(timerPrompt)
		p.last = now.Add(promptTime)
		return
	}
	s.notePrinted()
	if at := s.promptAt(); at.After(now) {
		s.timers.set(timerPrompt, at)
		return
	}
	if _, asks := s.setup.shows(); asks { // Enter would be its answer: it is asked again when the screen is another one
		s.timers.clear(timerPrompt)
		p.last = now.Add(promptTime)
		return
	}
	p.waits = false
	if p.text == nil {
		return
	}
	q := &s.input
	q.count++
	q.queued += p.text.n
	first := 0
	if len(q.texts) > 0 && q.texts[0].stage != textWaits {
		first = 1
	}
	q.texts = slices.Insert(q.texts, first, p.text)
	p.text, p.given = nil, true
	s.tell(shimwire.Message{Kind: shimwire.Prompted})
}

// notePrinted has the agent's time begin with the first that it prints, unless its title is going
// to say when it is ready.
func (s *shim) notePrinted() {
	p := &s.prompt
	if p.printed || !s.lastOutput.After(s.agent.started) {
		return
	}
	p.printed = true
	if last := s.lastOutput.Add(promptTime); s.spec.TitleReady == "" && last.Before(p.last) {
		p.last = last
	}
}

// promptAt returns when the agent can be told its prompt if it stays silent from now on.
func (s *shim) promptAt() time.Time {
	calm := min(s.spec.IdleAfter, defaultIdleAfter) // an agent that may be silent for minutes while it works is no slower to take input
	switch {
	case !s.ready.IsZero():
		return s.ready
	case !s.prompt.printed, s.spec.TitleReady != "" && s.said[saidByTitle].seq == 0:
		return s.prompt.last
	case s.scanner.modes.paste && s.spec.TitleReady == "":
		calm = min(calm, promptCalm)
	case s.scanner.modes.paste && s.spec.TitleWorking == "":
		calm = min(calm, titleCalm)
	}
	if at := s.lastOutput.Add(calm); at.Before(s.prompt.last) {
		return at
	}
	return s.prompt.last
}

// asks tells whether the agent says itself that it waits for something else than its next task:
// whether a directory is to be trusted, a login.
func (s *shim) asks() bool {
	return slices.ContainsFunc(s.said[:], func(w said) bool { return w.activity == "waiting" && w.reason != "turn-ended" })
}

// holds tells whether texts have to wait, so that none is lost and the prompt is the first of them.
// What the agent asks before it begins can be answered.
func (s *shim) holds() bool { return s.prompt.waits && !s.asks() }

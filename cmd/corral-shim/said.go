package main

import (
	"time"

	"github.com/corrald/corral/internal/shimwire"
)

// The sources that the shim speaks for, beside the output itself.
const (
	saidByProgram = iota
	saidByNotify
	saidByTitle
	saidByBell
	saidByScreen
	saidCount
)

var sourceNames = [saidCount]string{
	saidByProgram: shimwire.OSC7501, saidByNotify: shimwire.Notify, saidByTitle: shimwire.Title, saidByBell: shimwire.Bell,
	saidByScreen: shimwire.Screen,
}

// word is what the agent says by one source.
type word struct{ activity, reason, text string }

// said is the last word of a source.
type said struct {
	word
	since time.Time
	seq   uint32 // 0 if it never said anything
	told  bool   // to the daemons
}

// An agent may change its mind as often as it likes, but its daemon is not woken as often: sayBurst
// words at once, and then one each sayEvery. What is told late is what holds by then. No agent that
// works for a person is as quick as that, so of its states none is missed.
const (
	sayBurst = 32
	sayEvery = 100 * time.Millisecond
)

// says takes note of what the agent says by a source, and tells it if it is something else than
// before.
func (s *shim) says(source int, w word) {
	if s.said[source].word != w {
		s.saysAnew(source, w)
	}
}

// saysAnew is says for what counts once more if it is the same as before: who was told of that may
// have dealt with it.
func (s *shim) saysAnew(source int, w word) {
	now := time.Now()
	s.seq++
	s.said[source] = said{word: w, since: now, seq: s.seq}
	if isExact(source, w) {
		s.endSetup()
	}
	s.tellSaid(now)
	s.tellPrompt(now)
}

// tellSaid tells what was not told yet, as far as that may be told now.
func (s *shim) tellSaid(now time.Time) {
	for i := range s.said {
		last := &s.said[i]
		if last.seq == 0 || last.told {
			continue
		}
		if wait := s.sayNext.Add(-(sayBurst - 1) * sayEvery); wait.After(now) {
			s.timers.set(timerSaid, wait)
			return
		}
		if s.sayNext.Before(now) {
			s.sayNext = now
		}
		s.sayNext = s.sayNext.Add(sayEvery)
		last.told = true
		s.tell(s.sayAgain(i))
	}
}

func (s *shim) sayAgain(source int) shimwire.Message {
	last := &s.said[source]
	return shimwire.Message{
		Kind: shimwire.StatusReport, Source: sourceNames[source], Activity: last.activity, Reason: last.reason, Text: last.text, Since: last.since, Seq: last.seq,
	}
}

// introduce tells one who has just connected everything that was told before.
func (s *shim) introduce(c *conn) {
	s.send(c, s.hello())
	if !s.ready.IsZero() {
		s.send(c, shimwire.Message{Kind: shimwire.Ready, Since: s.ready})
	}
	if s.prompt.given {
		s.send(c, shimwire.Message{Kind: shimwire.Prompted})
	}
	for i := range s.said {
		if s.said[i].told {
			s.send(c, s.sayAgain(i))
		}
	}
}

// ringTail is how long the output may go on after a bell that was the last thing that the agent had
// to say: a program that rings draws its question too.
const ringTail = time.Second

// ring takes note of a bell, or of a notification, which has a text. It stands until the agent goes
// on. A bell that comes with a notification takes nothing of that away.
func (s *shim) ring() {
	s.scanner.rang = false
	text := s.rings
	if text == "" && s.lastOutput.Sub(s.rang) <= ringTail {
		text = s.said[saidByBell].text
	}
	s.rings = ""
	say := s.says
	if s.lastOutput.Sub(s.rang) > ringTail { // it is another one, though the agent was never silent in between
		say = s.saysAnew
	}
	s.rang = s.lastOutput
	say(saidByBell, word{reason: "bell", text: text})
}

// goneOn is called when the agent has fallen silent, or begins to print again: a bell before what
// it went on to print is over.
func (s *shim) goneOn(since time.Time) {
	if since.Sub(s.rang) > ringTail {
		s.says(saidByBell, word{})
	}
}

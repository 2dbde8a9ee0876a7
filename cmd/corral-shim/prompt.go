package main

import (
	"slices"
	"time"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/shimwire"
)

// When an agent is considered ready for its prompt:
//
// A program that is still drawing its screen discards typed input. One that has enabled bracketed
// paste has set up its input and only gets the time to draw: promptCalm. Any other is ready once it
// is idle. One that is never silent, or prints nothing, gets its prompt after promptTimeout. Texts
// that are sent in the meantime wait for the prompt, as long as their sender does.
//
// A program whose title shows when it is ready (TitleReady=) gets the prompt when that title
// appears, at the latest after readyTimeout, because it may fall silent while it is still loading.
// If its titles show all of its activity (TitleWorking=) it also has to be idle: Gemini CLI
// discards input in the seconds in which it shows an earlier conversation. Others get titleCalm:
// Copilot CLI sets its title shortly before it shows its input line, and on a busy machine that
// takes a while.
//
// Other texts wait in the same way if the agent is known to discard early input (TypeAhead=no).
// Such an agent that starts slowly, on a busy machine, would also discard its prompt; so its
// promptTimeout begins with its first output, which may take up to readyTimeout. What is printed
// while its terminal is still in canonical mode does not count: it is a warning, or the output of a
// wrapper script. The terminal would echo a text then, and translate its Enter to a newline, which
// the agent would insert into its input line.
const (
	promptCalm    = 500 * time.Millisecond
	titleCalm     = 1500 * time.Millisecond
	promptTimeout = 15 * time.Second
	readyTimeout  = time.Minute
)

// prompt is the text that is typed once, when the agent accepts input.
type prompt struct {
	isWaiting  bool      // a prompt or held texts wait until the agent is considered ready
	text       *text     // nil if there is none, or it was queued
	deadline   time.Time // when the agent is considered ready in any case
	hasPrinted bool      // the agent has printed something that counts
	isQueued   bool      // the prompt was queued, so that at least a part of it may have been typed
}

// preparePrompt takes the prompt from the spec when the agent was started.
func (s *shim) preparePrompt() {
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
	s.prompt = prompt{isWaiting: true, text: t, deadline: s.promptDeadline()}
	s.tryPrompt(s.agent.started)
}

// promptDeadline returns when an agent that prints nothing is considered ready.
func (s *shim) promptDeadline() time.Time {
	if s.spec.HoldInput || s.spec.TitleReady != "" {
		return s.agent.started.Add(readyTimeout)
	}
	return s.agent.started.Add(promptTimeout)
}

// tryPrompt queues the prompt and releases held texts if the agent is ready for input; else it
// makes sure that this is checked again.
func (s *shim) tryPrompt(now time.Time) {
	p := &s.prompt
	switch {
	case !p.isWaiting:
		return
	case s.isAsking() || s.spec.Notify != "" && !s.spec.OnlyHooks && s.readyAt.IsZero():
		// Enter would answer its question, or READY=1 is still to come. tryPrompt is called again when
		// the agent reports a change.
		s.timers.clear(timerPrompt)
		p.deadline = now.Add(promptTimeout)
		return
	}
	s.noteFirstOutput(s.inner.readsLines())
	if at := s.promptTime(); at.After(now) {
		s.timers.set(timerPrompt, at)
		return
	}
	// Enter would answer the dialog. tryPrompt is called again when the screen changes.
	if s.screenStatus.showsSetup() {
		s.timers.clear(timerPrompt)
		p.deadline = now.Add(promptTimeout)
		return
	}
	p.isWaiting = false
	if p.text == nil {
		return
	}
	q := &s.input
	q.count++
	q.queued += p.text.n
	first := 0
	if len(q.texts) > 0 && q.texts[0].stage != textQueued {
		first = 1
	}
	q.texts = slices.Insert(q.texts, first, p.text)
	p.text, p.isQueued = nil, true
	s.broadcast(shimwire.Message{Kind: shimwire.Prompted})
}

// noteFirstOutput starts promptTimeout at the agent's first output, unless a title shows when it is
// ready. readsLines reports whether the agent's terminal is in canonical mode.
func (s *shim) noteFirstOutput(readsLines bool) {
	p := &s.prompt
	if p.hasPrinted || !s.lastOutput.After(s.agent.started) || readsLines && s.spec.HoldInput {
		return
	}
	p.hasPrinted = true
	if last := s.lastOutput.Add(promptTimeout); s.spec.TitleReady == "" && last.Before(p.deadline) {
		p.deadline = last
	}
}

// promptTime returns when the agent is considered ready if it prints nothing from now on.
func (s *shim) promptTime() time.Time {
	// IdleAfter may be minutes for an agent that works silently, but it accepts input as early as
	// others.
	calm := min(s.spec.IdleAfter, defaultIdleAfter)
	switch {
	case !s.readyAt.IsZero():
		return s.readyAt
	case !s.prompt.hasPrinted, s.spec.TitleReady != "" && s.reports[sourceTitle].seq == 0:
		return s.prompt.deadline
	case s.scanner.modes.paste && s.spec.TitleReady == "":
		calm = min(calm, promptCalm)
	case s.scanner.modes.paste && s.spec.TitleWorking == "":
		calm = min(calm, titleCalm)
	}
	if at := s.lastOutput.Add(calm); at.Before(s.prompt.deadline) {
		return at
	}
	return s.prompt.deadline
}

// isAsking reports whether a status report shows that the agent waits for something other than its
// next task, such as a login or whether a directory is trusted.
func (s *shim) isAsking() bool {
	return slices.ContainsFunc(s.reports[:], func(r report) bool {
		return r.activity == word.Waiting && r.reason != word.TurnEnded
	})
}

// holdsTexts reports whether texts have to wait, so that the agent does not discard them and the
// prompt comes first. Questions that the agent asks before it starts can be answered.
func (s *shim) holdsTexts() bool { return s.prompt.isWaiting && !s.isAsking() }

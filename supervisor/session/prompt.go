package session

import "slices"

// Prompted reports that the run's agent was given the session's prompt, or that its shim begins to
// enter it. Source: the shim.
type Prompted struct {
	Run string
}

func (e Prompted) apply(s *Session) {
	if s.run(e.Run) != nil {
		s.Prompted, s.Unsent = true, ""
	}
}

// TextKept records a text that was to be sent to the agent of a run that could not be started, or
// is queued. An empty text discards the one that was kept.
type TextKept struct {
	Text string
}

func (e TextKept) apply(s *Session) { s.Unsent = e.Text }

// discardUnsent is called when a run begins. It discards the text that was kept if the run begins
// another conversation, or if it is unknown whether the agent of the last run was given it.
func (s *Session) discardUnsent(resumed bool) {
	if !resumed || s.Run != nil && canHavePrompt(*s.Run) {
		s.Unsent = ""
	}
}

// CanKeepText reports whether a text that is kept after this run, which has ended, is given to the
// agent of the next one, if that continues the conversation.
func (r *Run) CanKeepText() bool { return r != nil && !canHavePrompt(*r) }

// canHavePrompt reports whether the agent of a run that has ended can have been given a prompt
// without a record of that: its shim was killed.
func canHavePrompt(r Run) bool { return r.Exit == nil && r.StartError == "" }

// GivesPrompt reports whether the agent of a run that begins now is given the session's prompt. A
// fresh run is given it; a resumed one continues an earlier conversation, and is given it only if
// no agent can have been given it yet, because each run ended before that. If the shim of a run was
// killed, it is not known whether the agent was given the prompt, and it is not given again: an
// agent that stays idle until a person notices is better than one that does all of its work twice.
func (s *Session) GivesPrompt(resumed bool) bool {
	switch {
	case s.Prompt == "":
		return false
	case !resumed:
		return true
	}
	return !s.Prompted && (s.Run == nil || !canHavePrompt(*s.Run)) && !slices.ContainsFunc(s.Past, canHavePrompt)
}

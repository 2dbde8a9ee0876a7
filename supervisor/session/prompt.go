package session

import "slices"

// Prompted reports that the run's agent was given the session's prompt, or that its shim begins to
// enter it. Source: the shim.
type Prompted struct {
	Run string
}

func (e Prompted) apply(s *Session) {
	if s.run(e.Run) != nil {
		s.Prompted = true
	}
}

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
	canHavePrompt := func(r Run) bool { return r.Exit == nil && r.StartError == "" }
	return !s.Prompted && (s.Run == nil || !canHavePrompt(*s.Run)) && !slices.ContainsFunc(s.Past, canHavePrompt)
}

package session

import "slices"

// Prompted tells, from the shim, that the run's agent was told the session's prompt, or begins to be.
type Prompted struct {
	Run string
}

func (e Prompted) apply(s *Session) {
	if s.run(e.Run) != nil {
		s.Prompted = true
	}
}

// GivesPrompt tells whether a run that begins now has its agent told the session's prompt: a fresh one does, a resumed one goes on with what was said.
// It only does where no agent can have been told yet, because each has ended before. Of a run whose shim was killed nobody can tell: then a person who
// finds the agent idle is better than one who finds everything done twice.
func (s *Session) GivesPrompt(resumed bool) bool {
	switch {
	case s.Prompt == "":
		return false
	case !resumed:
		return true
	}
	told := func(r Run) bool { return r.Exit == nil && r.StartError == "" }
	return !s.Prompted && (s.Run == nil || !told(*s.Run)) && !slices.ContainsFunc(s.Past, told)
}

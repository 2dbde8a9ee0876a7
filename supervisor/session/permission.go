package session

import "time"

// PermissionRequest is what an agent asks permission for, until it is answered.
type PermissionRequest struct {
	Source    Source        // which decides that it asks
	Since     time.Time     // as in Attention
	Monotonic time.Duration // the same moment by CLOCK_MONOTONIC
	Known     uint64        // the greatest Seq among the words of the shim's sources that tell whether the agent still asks
}

// PermissionRequest returns what the session's agent waits to be permitted, whether or not a person has acknowledged it. ok is false if it waits for no permission.
func (s *Session) PermissionRequest() (p PermissionRequest, ok bool) {
	source, w, ok := s.decides()
	if !ok || w.Activity != Waiting {
		return PermissionRequest{}, false
	}
	a := Attention{Reason: w.Reason}
	if source == FromTitle {
		s.askMore(&a, w)
	}
	if a.Reason != Permission {
		return PermissionRequest{}, false
	}
	p = PermissionRequest{Source: source, Since: w.At, Monotonic: w.Monotonic}
	for _, exact := range []Source{FromOSC7501, FromNotify, FromTitle, FromScreen} {
		heard, _ := s.heard.of(exact)
		p.Known = max(p.Known, heard.Seq)
	}
	return p, true
}

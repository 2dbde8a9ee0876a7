package session

import (
	"time"

	"github.com/corrald/corral/dbusapi/word"
)

// PermissionRequest is a permission that an agent has asked for and has not been answered yet.
type PermissionRequest struct {
	Source    Source        // the source that decides that the agent waits
	Since     time.Time     // as in Attention
	Monotonic time.Duration // Since, by CLOCK_MONOTONIC
	// Known is the greatest Seq among the reports of those sources of the shim that show whether the
	// agent still waits.
	Known uint64
}

// PermissionRequest returns the permission that the session's agent waits for, whether or not a
// person has acknowledged the request. ok is false if the agent does not wait for a permission.
func (s *Session) PermissionRequest() (p PermissionRequest, ok bool) {
	source, report, ok := s.decidingReport()
	if !ok || report.Activity != word.Waiting {
		return PermissionRequest{}, false
	}
	a := Attention{Reason: report.Reason}
	if source == FromTitle {
		s.refineAttention(&a, report)
	}
	if a.Reason != word.Permission {
		return PermissionRequest{}, false
	}
	p = PermissionRequest{Source: source, Since: report.At, Monotonic: report.Monotonic}
	for _, exact := range []Source{FromOSC7501, FromNotify, FromTitle, FromScreen} {
		last, _ := s.received.from(exact)
		p.Known = max(p.Known, last.Seq)
	}
	return p, true
}

package top

import (
	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/word"
)

// waitsForPerson reports whether the agent has asked a question or has ended its turn, and has not
// been answered.
func waitsForPerson(r *row) bool {
	return wording.IsWaiting(r.Session) || wording.IsTurnEnded(r.Session)
}

// waitsForPermission reports whether the agent asks for a permission, which approve and deny
// answer.
func waitsForPermission(r *row) bool {
	return wording.IsWaiting(r.Session) && r.Attention == word.Permission
}

// Two of the levels that urgency returns. A level of calm or more does not need a person.
const (
	calm     = 5
	archived = 10
)

// urgency returns 0 for a session that needs a person most, and a greater number for one that needs
// a person less. A session that a person has seen does not need one, unless its agent has a
// question: the agent waits until that is answered.
func urgency(r *row) int {
	attention := r.Attention != "" && !r.AttentionAcknowledged
	switch {
	case wording.IsWaiting(r.Session) && !r.AttentionAcknowledged:
		return 0
	case wording.IsWaiting(r.Session):
		return 1
	case r.State == word.Stale || r.State == word.Orphaned:
		return 2
	case attention && r.State == word.Failed:
		return 3
	case attention:
		return 4
	}
	switch r.State {
	case word.Starting, word.Running, word.Stopping:
		return calm
	case word.Failed:
		return 6
	case word.Suspended:
		return 7
	case word.Created:
		return 8
	case word.Archived:
		return archived
	}
	return 9
}

// needsPerson reports whether the session needs a person to do something.
func needsPerson(r *row) bool { return urgency(r) < calm }

package top

import "github.com/corrald/corral/cmd/corralctl/wording"

// waitsForPerson reports whether the agent has asked something, or has ended its turn, and has not
// been answered.
func waitsForPerson(r *row) bool {
	return wording.IsWaiting(r.Session) || wording.IsTurnEnded(r.Session)
}

// waitsForPermission reports whether approve and deny answer what the agent asks.
func waitsForPermission(r *row) bool {
	return wording.IsWaiting(r.Session) && r.Attention == "permission"
}

// seen reports whether a person has acknowledged what the session needs.
func seen(r *row) bool { return r.AttentionAcknowledged }

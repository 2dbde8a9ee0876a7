package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/supervisor/session"
)

// TestAccounts: only the last run has no end yet, also where the one before it was never seen to end.
func TestAccounts(t *testing.T) {
	s := &session.Session{ID: "shop", Created: t0}
	for _, e := range []session.Event{
		asked, scope, tmux, agent, tmuxDied, session.ShimDied{Run: run, At: at(40)},
		session.RunAsked{Run: "run-2", BootID: "boot", At: at(50)}, session.ScopeStarted{Run: "run-2", InvocationID: "invocation", ControlGroup: "/corral"},
	} {
		s.Apply(e)
	}
	var ends []time.Time
	for _, a := range s.Accounts() {
		ends = append(ends, a.Ended)
	}
	assert.Equal(t, []time.Time{at(50), {}}, ends)
}

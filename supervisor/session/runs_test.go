package session_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/exitstatus"
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

// TestRunAsked_KeepsTheDurationOfForgottenRuns: the total is that of all runs, also of those that are not remembered.
func TestRunAsked_KeepsTheDurationOfForgottenRuns(t *testing.T) {
	s := &session.Session{ID: "shop", Created: t0}
	const runs = session.MaxPast + 5
	for n := range runs {
		id := fmt.Sprint("run-", n)
		for _, e := range []session.Event{
			session.RunAsked{Run: id, BootID: "boot", At: at(10 * n)},
			session.AgentExited{Status: exitstatus.Status{RunID: id, Code: exitstatus.Exited, Started: at(10 * n), Exited: at(10*n + 3)}},
			session.ScopeEnded{Run: id, At: at(10*n + 3)},
		} {
			s.Apply(e)
		}
	}
	total := s.Forgotten
	for _, a := range s.Accounts() {
		total += a.Duration()
	}
	assert.Equal(t, 3*runs*time.Second, total)
}

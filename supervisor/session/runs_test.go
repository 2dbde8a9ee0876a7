package session_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

// TestRunSummaries checks that only the last run has no end, even if the end of the one before it
// was not observed.
func TestRunSummaries(t *testing.T) {
	s := &session.Session{ID: "shop", Created: t0}
	for _, e := range []session.Event{
		runBegun, scope, tmux, agent, tmuxDied, session.ShimDied{Run: run, At: at(40)},
		session.RunBegun{Run: "run-2", BootID: "boot", At: at(50)},
		session.ScopeStarted{Run: "run-2", InvocationID: "invocation", ControlGroup: "/corral"},
	} {
		s.Apply(e)
	}
	var ends []time.Time
	for _, a := range s.RunSummaries() {
		ends = append(ends, a.Ended)
	}
	assert.Equal(t, []time.Time{at(50), {}}, ends)
}

// TestPast_KeepsTheDurationOfForgottenRuns checks that the total is that of all runs, including
// those that are no longer in the record.
func TestPast_KeepsTheDurationOfForgottenRuns(t *testing.T) {
	s := &session.Session{ID: "shop", Created: t0}
	const runs = session.MaxPast + 5
	for n := range runs {
		id := fmt.Sprint("run-", n)
		for _, e := range []session.Event{
			session.RunBegun{Run: id, BootID: "boot", At: at(10 * n)},
			session.AgentExited{Status: exitstatus.Status{
				RunID: id, Code: exitstatus.Exited, Started: at(10 * n), Exited: at(10*n + 3),
			}},
			session.ScopeEnded{Run: id, At: at(10*n + 3)},
		} {
			s.Apply(e)
		}
	}
	total := s.Forgotten
	for _, a := range s.RunSummaries() {
		total += a.Duration()
	}
	assert.Equal(t, 3*runs*time.Second, total)
}

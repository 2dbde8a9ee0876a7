package session_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

// by puts times into an event: what the wall clock says, and the seconds since boot, 0 where a record of an older version does not tell.
func by(e session.Event, wall time.Time, sinceBoot int) session.Event {
	monotonic := time.Duration(sinceBoot) * time.Second
	switch e := e.(type) {
	case session.AgentExited:
		e.Status.Exited, e.Status.ExitedMonotonic = wall, monotonic
		return e
	case session.EndAsked:
		e.At, e.Monotonic = wall, monotonic
		return e
	case session.ScopeResult:
		e.At, e.Monotonic = wall, monotonic
		return e
	case session.StartFailed:
		e.At, e.Monotonic = wall, monotonic
		return e
	}
	return e
}

// TestTheClockIsSetInBetween: what came first does not depend on what the clock on the wall said.
func TestTheClockIsSetInBetween(t *testing.T) {
	const aYear = 365 * 24 * 3600
	zero, three := exit(exitstatus.Exited, 0), exit(exitstatus.Exited, 3)
	closed := three
	closed.Status.PaneClosed = true
	for _, row := range []struct {
		name          string
		first, second session.Event // as they happened
		end           session.ScopeEnded
		want          session.State
		result        string
	}{
		{"asked to stop, then it exits 3", stop, three, empty, session.Stopped, session.Success},
		{"asked to suspend, then it exits 3", suspend, three, empty, session.Suspended, session.Success},
		{"it exits 3, then it is asked to stop", three, stop, empty, session.Failed, session.ExitCode},
		{"it exits 0, then it is asked to suspend", zero, suspend, empty, session.Completed, session.Success},
		{"its time is up, then it exits 0", timeIsUp, zero, timeoutAt, session.Failed, session.Timeout},
		{"it exits 0, then the time of its scope is up", zero, timeIsUp, timeoutAt, session.Completed, session.Success},
		{"asked to stop, then its time is up", stop, timeIsUp, timeoutAt, session.Stopped, session.Success},
		{"its time is up, then it is asked to stop", timeIsUp, stop, timeoutAt, session.Failed, session.Timeout},
		{"its start fails, then its agent exits 3", notThere, three, empty, session.Failed, session.CannotStart},
		{"it exits 3, then its start is found to have failed", three, notThere, empty, session.Failed, session.ExitCode},
		{"its pane is closed, then it is asked to suspend", closed, suspend, empty, session.Stopped, session.Success},
		{"asked to suspend, then its pane is closed", suspend, closed, empty, session.Suspended, session.Success},
	} {
		for name, jump := range map[string]int{"not set": 1, "set back": -aYear, "set forward": aYear, "held": 0} {
			first, second := by(row.first, at(20), 5000), by(row.second, at(20+jump), 5001)
			orders := map[string][]session.Event{"as it happened": list(first, second)}
			if _, wish := first.(session.EndAsked); !wish { // the daemon itself notes one, in view of what it knows
				orders["the other way round"] = list(second, first)
			}
			for heard, events := range orders {
				s := after(newSession(), list(running, events, row.end))
				assert.Equal(t, row.want, s.View().State, "%s; the clock: %s, and it is heard of %s", row.name, name, heard)
				assert.Equal(t, row.result, s.View().Result, "%s; the clock: %s, and it is heard of %s", row.name, name, heard)
			}
		}
	}
}

// TestOlderRecordsTellWallTimesAlone: an exit that an older shim has written down is compared by what there is.
func TestOlderRecordsTellWallTimesAlone(t *testing.T) {
	for _, row := range []struct {
		name   string
		exited int // by the wall
		want   session.State
	}{
		{"after the stop", 35, session.Stopped},
		{"before the stop", 20, session.Failed},
	} {
		s := after(newSession(), list(running, by(stop, at(30), 5000), by(exit(exitstatus.Exited, 3), at(row.exited), 0), empty))
		assert.Equal(t, row.want, s.View().State, row.name)
	}
}

// TestNoStateDependsOnTheWallClock: whatever the clock says at each moment, the same becomes of the session.
func TestNoStateDependsOnTheWallClock(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 2))
		events := randomHistory(r).shuffled(r)
		set := make([]session.Event, len(events))
		for i, e := range events {
			wall := momentOf(e)
			if wall.IsZero() {
				set[i] = e
				continue
			}
			sinceBoot := 1000 + int(wall.Sub(t0).Seconds())
			events[i], set[i] = by(e, wall, sinceBoot), by(e, at(r.IntN(2000)-1000), sinceBoot)
		}
		want, got := after(newSession(), list(asked, events)).View(), after(newSession(), list(asked, set)).View()
		want.Since, got.Since = time.Time{}, time.Time{}
		require.Equal(t, want, got, "seed %d\n the clock was right: %#v\n it was set: %#v", seed, events, set)
	}
}

// momentOf returns the wall time of an event of which it matters when it was, zero of any other.
func momentOf(e session.Event) time.Time {
	switch e := e.(type) {
	case session.AgentExited:
		return e.Status.Exited
	case session.EndAsked:
		return e.At
	case session.ScopeResult:
		return e.At
	case session.StartFailed:
		return e.At
	}
	return time.Time{}
}

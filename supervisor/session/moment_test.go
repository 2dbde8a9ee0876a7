package session_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

// withTimes sets the times of an event: that of the wall clock, and the seconds since boot, 0 as in
// a record of an older version.
func withTimes(e session.Event, wall time.Time, sinceBoot int) session.Event {
	monotonic := time.Duration(sinceBoot) * time.Second
	switch e := e.(type) {
	case session.AgentExited:
		e.Status.Exited, e.Status.ExitedMonotonic = wall, monotonic
		return e
	case session.IntentSet:
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

// TestClockChange_KeepsTheOrderOfEvents checks that the wall clock does not decide which of two
// events came first.
func TestClockChange_KeepsTheOrderOfEvents(t *testing.T) {
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
		{"a stop is requested, then the agent exits with 3", stop, three, empty, session.Stopped, word.Success},
		{"a suspend is requested, then the agent exits with 3", suspend, three, empty, session.Suspended, word.Success},
		{"the agent exits with 3, then a stop is requested", three, stop, empty, session.Failed, word.ExitCode},
		{"the agent exits with 0, then a suspend is requested", zero, suspend, empty, session.Completed, word.Success},
		{"RuntimeMaxSec expires, then the agent exits with 0", timeIsUp, zero, timeoutAt, session.Failed, word.Timeout},
		{"the agent exits with 0, then RuntimeMaxSec expires", zero, timeIsUp, timeoutAt, session.Completed, word.Success},
		{"a stop is requested, then RuntimeMaxSec expires", stop, timeIsUp, timeoutAt, session.Stopped, word.Success},
		{"RuntimeMaxSec expires, then a stop is requested", timeIsUp, stop, timeoutAt, session.Failed, word.Timeout},
		{"the start fails, then the agent exits with 3", startFailed, three, empty, session.Failed, word.StartFailed},
		{"the agent exits with 3, then the start fails", three, startFailed, empty, session.Failed, word.ExitCode},
		{"the pane is closed, then a suspend is requested", closed, suspend, empty, session.Stopped, word.Success},
		{"a suspend is requested, then the pane is closed", suspend, closed, empty, session.Suspended, word.Success},
	} {
		for name, jump := range map[string]int{"not set": 1, "set back": -aYear, "set forward": aYear, "held": 0} {
			first, second := withTimes(row.first, at(20), 5000), withTimes(row.second, at(20+jump), 5001)
			orders := map[string][]session.Event{"as it happened": list(first, second)}
			// The daemon records a request at once, according to what it knows then.
			if _, isRequest := first.(session.IntentSet); !isRequest {
				orders["in reverse"] = list(second, first)
			}
			for order, events := range orders {
				s := after(newSession(), list(running, events, row.end))
				assert.Equal(t, row.want, s.View().State, "%s; clock: %s; received: %s", row.name, name, order)
				assert.Equal(t, row.result, s.View().Result, "%s; clock: %s; received: %s", row.name, name, order)
			}
		}
	}
}

// TestClockChange_ComparesOldRecordsByWallTime checks that the exit recorded by an older shim,
// which contains only wall time, is compared by that.
func TestClockChange_ComparesOldRecordsByWallTime(t *testing.T) {
	for _, row := range []struct {
		name   string
		exited int // by the wall clock
		want   session.State
	}{
		{"after the stop", 35, session.Stopped},
		{"before the stop", 20, session.Failed},
	} {
		exited := withTimes(exit(exitstatus.Exited, 3), at(row.exited), 0)
		s := after(newSession(), list(running, withTimes(stop, at(30), 5000), exited, empty))
		assert.Equal(t, row.want, s.View().State, row.name)
	}
}

// TestClockChange_NeverAffectsTheView checks that the same becomes of a session whatever the wall
// clock shows at each moment.
func TestClockChange_NeverAffectsTheView(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 2))
		events := randomHistory(r).shuffled(r)
		set := make([]session.Event, len(events))
		for i, e := range events {
			wall := wallTimeOf(e)
			if wall.IsZero() {
				set[i] = e
				continue
			}
			sinceBoot := 1000 + int(wall.Sub(t0).Seconds())
			events[i], set[i] = withTimes(e, wall, sinceBoot), withTimes(e, at(r.IntN(2000)-1000), sinceBoot)
		}
		want := after(newSession(), list(runBegun, events)).View()
		got := after(newSession(), list(runBegun, set)).View()
		want.Since, got.Since = time.Time{}, time.Time{}
		require.Equal(t, want, got, "seed %d\n clock not set: %#v\n clock set: %#v", seed, events, set)
	}
}

// wallTimeOf returns the wall time of an event that is compared with others by time, zero for
// others.
func wallTimeOf(e session.Event) time.Time {
	switch e := e.(type) {
	case session.AgentExited:
		return e.Status.Exited
	case session.IntentSet:
		return e.At
	case session.ScopeResult:
		return e.At
	case session.StartFailed:
		return e.At
	}
	return time.Time{}
}

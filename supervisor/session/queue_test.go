package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/supervisor/session"
)

// TestHoldsPlace lists which sessions count towards MaxRunning=.
func TestHoldsPlace(t *testing.T) {
	running := []session.Event{runBegun, scope, tmux, agent}
	limit := report(word.Idle, word.Limit, 1)
	waits := session.Pending{Op: session.OpRestart, Phase: session.TermAgent}
	for _, row := range []struct {
		name    string
		events  []session.Event
		pending session.Pending
		want    bool
	}{
		{"never started", nil, session.Pending{}, false},
		{"starting", []session.Event{runBegun}, session.Pending{}, true},
		{"the start has failed", []session.Event{runBegun, startFailed}, session.Pending{}, false},
		{"running", running, session.Pending{}, true},
		{"stopping", append(running, stop), session.Pending{}, true},
		{"tmux has died, the agent lives", append(running, session.TmuxDied{Run: run}), session.Pending{}, true},
		{"the agent has exited, processes are left",
			append(running, late(exit(exitstatus.Exited, 0))), session.Pending{}, false},
		{"the agent has exited, and another run is about to begin",
			append(running, stop, late(exit(exitstatus.Exited, 0))), waits, true},
		{"suspended", append(running, suspend, empty), session.Pending{}, false},
		{"the agent waits for the reset of a limit", append(running, limit), session.Pending{}, false},
		{"the agent has continued after it", append(running, limit, report(word.Working, "", 2)), session.Pending{}, true},
		{"another run continues after it", append(running, limit, suspend, empty, func() session.Event {
			next := nextRun
			next.Resumed = true
			return next
		}()), session.Pending{}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newSession()
			for _, e := range row.events {
				s.Apply(e)
			}
			assert.Equal(t, row.want, row.pending.HoldsPlace(s))
		})
	}
}

func report(activity, reason string, seq uint64) session.Event {
	return session.StatusReported{Run: run, Source: session.FromOSC7501, Report: session.Report{
		Activity: activity, Reason: reason, At: at(int(seq)), Monotonic: time.Duration(seq), Seq: seq,
	}}
}

// TestQueued_EndsWhenARunBegins, also one that a version without a queue has begun: it keeps the
// field of the record unchanged.
func TestQueued_EndsWhenARunBegins(t *testing.T) {
	s := newSession()
	assert.True(t, s.Apply(session.RunQueued{Op: word.Start, At: at(1)}))
	assert.True(t, s.IsQueued())
	assert.Equal(t, session.OpStart, s.Queued.Operation())
	assert.True(t, s.Apply(session.RunQueued{Op: word.Resume, At: at(2)}), "it keeps its place")
	assert.Equal(t, session.QueuedRun{Op: word.Resume, At: at(1)}, s.Queued)
	assert.Equal(t, session.OpResume, s.Queued.Operation())
	assert.Equal(t, session.Created, s.View().State)

	kept := s.Queued
	s.Apply(runBegun)
	assert.False(t, s.IsQueued())
	s.Queued = kept
	assert.False(t, s.IsQueued())

	s.Apply(empty)
	s.Apply(session.RunQueued{Op: word.Resume, At: at(3)})
	assert.True(t, s.IsQueued())
	assert.True(t, s.Apply(session.RunUnqueued{}))
	assert.False(t, s.IsQueued())

	s.Apply(session.RunQueued{Op: word.Start, At: at(4)})
	s.Apply(archive)
	assert.False(t, s.IsQueued())
}

package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/supervisor/session"
)

// TestNext_RestartKeepsTheScopeOfAFailedStart: the run that fails was to begin among the leftover
// processes of the one before it. They are still there, so the restart has to end them first.
func TestNext_RestartKeepsTheScopeOfAFailedStart(t *testing.T) {
	s := newSession()
	for _, e := range []session.Event{runBegun, scope, tmux, agent, tmuxDied, allDied} {
		s.Apply(e)
	}
	env := session.Env{
		Moment: session.Moment{At: at(50), Monotonic: time.Hour},
		Grace:  func() time.Duration { return 8 * time.Second },
	}
	var p session.Pending
	restarted := nextRun
	restarted.Run = "restarted"
	for _, e := range []session.Event{
		session.BeginRequested{Op: session.OpResume, Begin: session.Begin{Run: nextRun, Resume: true, Inside: true}},
		session.StartPrepared{CreateConversation: true},
		session.BeginRequested{Op: session.OpRestart, Begin: session.Begin{Run: restarted}},
		session.StartReturned{Run: nextRun.Run, Err: "it was stopped before its conversation was created"},
	} {
		p = session.Next(s, p, e, env).Pending
	}
	assert.Equal(t, nextRun.Run, s.Run.ID)
	assert.True(t, s.Run.Live(), "its scope is not known to be gone")
	assert.True(t, p.WaitsToBegin())
	p = session.Next(s, p, session.ScopeEnded{Run: nextRun.Run, At: at(51)}, env).Pending
	assert.Equal(t, restarted.Run, s.Run.ID)
	assert.Equal(t, session.Prepare, p.Phase)
}

// TestNext_EscalationOfALateLoopIsNotShortened: the save before the first signal takes a minute, so
// that the signal is sent a minute late, and each deadline is noticed late. The agent still has its
// time between SIGTERM and SIGKILL.
func TestNext_EscalationOfALateLoopIsNotShortened(t *testing.T) {
	s := newSession()
	for _, e := range []session.Event{runBegun, scope, tmux, agent} {
		s.Apply(e)
	}
	now := time.Hour
	env := func() session.Env {
		return session.Env{
			Moment: session.Moment{At: at(50), Monotonic: now},
			Grace:  func() time.Duration { return 10 * time.Second },
		}
	}
	step := session.Next(s, session.Pending{}, session.EndRequested{Op: session.OpStop}, env())
	assert.Equal(t, []session.Effect{session.SignalAgent{}}, step.Effects)
	for _, next := range []struct {
		effect session.Effect
		after  time.Duration // since the effect before, which an iteration with a delay of a minute has decided
	}{
		{session.HangUp{}, time.Second}, {session.SignalAll{}, 7 * time.Second}, {session.KillScope{}, 2 * time.Second},
	} {
		assert.Equal(t, next.after, step.Pending.Deadline-now)
		now = step.Pending.Deadline + time.Minute
		step = session.Next(s, step.Pending, session.Tick{}, env())
		assert.Equal(t, []session.Effect{next.effect}, step.Effects)
	}
}

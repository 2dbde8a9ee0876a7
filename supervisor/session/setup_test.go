package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/supervisor/session"
)

func TestSetup_IsRequiredUntilItIsDoneOrARunHasBegun(t *testing.T) {
	for phase, want := range map[session.SetupPhase]bool{
		"": false, session.SetupPending: true, session.SetupRunning: true, session.SetupFailed: true,
		session.SetupDone: false, session.SetupSkipped: false,
	} {
		s := newSession()
		s.Setup.Phase = phase
		assert.False(t, s.Setup.IsRequired(s.Worktree, s.Run), "%s, without a worktree", phase)
		s.Worktree = &session.Worktree{}
		assert.Equal(t, want, s.Setup.IsRequired(s.Worktree, s.Run), phase)
		s.Apply(runBegun)
		assert.False(t, s.Setup.IsRequired(s.Worktree, s.Run), "%s, and a daemon of an older version has begun a run", phase)
	}
}

func TestSetup_EndsTheWaitInTheQueue(t *testing.T) {
	s := newSession()
	s.Apply(session.RunQueued{Op: "start", At: time.Unix(1, 0)})
	assert.True(t, s.IsQueued())
	s.Apply(session.SetupBegun{BootID: "boot"})
	assert.False(t, s.IsQueued())
	s.Apply(session.SetupEnded{Reason: "no network"})
	assert.False(t, s.IsQueued())
}

func TestView_ExplainsTheSetup(t *testing.T) {
	s := newSession()
	assert.True(t, s.Apply(session.SetupBegun{BootID: "boot"}))
	assert.Equal(t, "its worktree is being set up", s.View().Reason)
	assert.True(t, s.Apply(session.SetupEnded{Reason: "no network"}))
	assert.Equal(t, "no network", s.View().Reason)
	assert.Equal(t, session.Created, s.View().State)
	s.Apply(session.SetupBegun{BootID: "boot"})
	s.Apply(session.SetupEnded{})
	assert.Empty(t, s.View().Reason)
}

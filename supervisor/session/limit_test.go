package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/dbusapi/word"
)

// limitedSession returns a session whose agent has reported that its limit resets in an hour, by
// OSC 7501 that its turn has failed, and by a hook why. It also returns the time of the report.
func limitedSession() (s *Session, at time.Time) {
	at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s = &Session{ID: "shop", Created: at, Run: &Run{
		ID: "r", Started: at, Scope: ScopeActive, Shim: Alive, Tmux: Alive, ShimSendsTyped: true,
	}}
	s.Apply(StatusReported{Run: "r", Source: FromReport, Report: Report{
		Activity: word.Idle, Reason: word.Limit, Until: at.Add(time.Hour), At: at, Monotonic: time.Minute, Seq: 1,
	}})
	s.Apply(StatusReported{Run: "r", Source: FromOSC7501, Report: Report{
		Activity: word.Idle, Reason: word.Error, At: at, Monotonic: time.Minute + time.Millisecond, Seq: 1,
	}})
	return s, at
}

func TestLimit_FollowsTheReports(t *testing.T) {
	s, at := limitedSession()
	want := Limit{Run: "r", Until: at.Add(time.Hour), At: at, Monotonic: time.Minute}
	assert.Equal(t, want, s.Limit)
	assert.Equal(t, at.Add(time.Hour), s.Attention().Until)
	assert.False(t, s.Apply(Typed{Run: "r", Monotonic: time.Second}), "typed before")
	assert.True(t, s.Apply(Typed{Run: "r", Monotonic: 2 * time.Minute}))
	want.Typed = true
	assert.Equal(t, want, s.Limit)
	assert.Equal(t, word.Limit, s.Attention().Reason, "typing does not end the limit")
	s.received = nil // as for a new daemon, before the shim has repeated its reports
	s.Apply(Prompted{Run: "other"})
	assert.Equal(t, want, s.Limit)
	works := Report{Activity: word.Working, Monotonic: time.Hour, Seq: 2}
	s.Apply(StatusReported{Run: "r", Source: FromOSC7501, Report: works})
	assert.Zero(t, s.Limit)
	assert.False(t, s.Apply(Typed{Run: "r", Monotonic: 2 * time.Hour}))
}

// TestLimit_OfADialogHasTheTimeOfAHook: Codex asks whether to switch to another model, without a
// time.
func TestLimit_OfADialogHasTheTimeOfAHook(t *testing.T) {
	s, at := limitedSession()
	s.Apply(StatusReported{Run: "r", Source: FromScreen, Report: Report{
		Activity: word.Waiting, Reason: word.Limit, Message: "Switch to another model?", At: at,
		Monotonic: time.Minute, Seq: 2,
	}})
	assert.Equal(t, "Switch to another model?", s.Attention().Message)
	assert.Equal(t, at.Add(time.Hour), s.Limit.Until)
	assert.True(t, s.ShowsLimit())
}

func TestLimit_IsKeptForARunThatContinues(t *testing.T) {
	for _, row := range []struct {
		name    string
		end     []Event
		resumed bool
		kept    bool
	}{
		{"suspended", []Event{IntentSet{Run: "r", Intent: Suspend}, ScopeEnded{Run: "r"}}, true, true},
		{"suspended, then started afresh", []Event{IntentSet{Run: "r", Intent: Suspend}, ScopeEnded{Run: "r"}}, false, false},
		{"suspended, and its hook reports the end", []Event{
			IntentSet{Run: "r", Intent: Suspend},
			StatusReported{Run: "r", Source: FromReport, Report: Report{Activity: word.Idle, Monotonic: time.Hour, Seq: 2}},
			ScopeEnded{Run: "r"},
		}, true, true},
		{"the machine went down", []Event{MachineWentDown{Run: "r", At: time.Now()}}, true, true},
		{"stopped", []Event{IntentSet{Run: "r", Intent: Stop}, ScopeEnded{Run: "r"}}, true, false},
		{"its scope is gone", []Event{ScopeEnded{Run: "r"}}, true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, at := limitedSession()
			s.ResumeCommand = []string{"true"}
			for _, e := range row.end {
				s.Apply(e)
			}
			assert.NotZero(t, s.Limit)
			assert.Equal(t, row.kept || !row.resumed, !s.ContinueAt(0).IsZero())
			s.Apply(RunBegun{Run: "next", Resumed: row.resumed, At: at})
			assert.Equal(t, row.kept, s.Limit != Limit{})
		})
	}
}

// TestContinueAt_IsSpread: over two minutes, in the same way for each daemon.
func TestContinueAt_IsSpread(t *testing.T) {
	s, at := limitedSession()
	seen := map[time.Duration]bool{}
	for i := range 1000 {
		s.Created = at.Add(time.Duration(i) * 1237 * time.Microsecond)
		delay := s.ContinueAt(0).Sub(s.Limit.Until)
		assert.GreaterOrEqual(t, delay, time.Duration(0))
		assert.Less(t, delay, 2*time.Minute)
		assert.Equal(t, delay+5*time.Minute, s.ContinueAt(5*time.Minute).Sub(s.Limit.Until))
		seen[delay] = true
	}
	assert.Greater(t, len(seen), 110)
}

func TestContinueAt_IsZeroAfterTheSameReset(t *testing.T) {
	s, _ := limitedSession()
	until := s.Limit.Until
	s.Apply(ContinueTextSent{Until: until})
	assert.Zero(t, s.ContinueAt(0))
	s.Limit.Until = until.Add(time.Minute)
	assert.Zero(t, s.ContinueAt(0), "the text has only minutes")
	s.Limit.Until = until.Add(5 * time.Hour)
	assert.NotZero(t, s.ContinueAt(0))
	s.Limit.Typed = true
	assert.Zero(t, s.ContinueAt(0))
}

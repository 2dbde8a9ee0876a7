package wording

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
)

// TestWording_OfEachKindOfSession checks the text, colour, mark and age that each kind of session
// is shown with. Times are in seconds; every session's state changed at 10.
func TestWording_OfEachKindOfSession(t *testing.T) {
	now := time.Unix(100, 0)
	at := func(second uint64) uint64 { return second * 1e6 }
	live := func(change func(*client.Session)) client.Session {
		s := client.Session{State: "running", Activity: "working", AgentAlive: true}
		change(&s)
		return s
	}
	asks := func(reason, message string) client.Session {
		return live(func(s *client.Session) {
			s.Activity, s.Attention, s.AttentionMessage, s.AttentionTimestamp = "waiting", reason, message, at(80)
			s.IdleHint, s.IdleSinceHint = true, at(70)
		})
	}
	ended := func(activity, message string) client.Session {
		s := asks(word.TurnEnded, message)
		s.Activity = activity
		return s
	}
	seen := func(s client.Session) client.Session {
		s.AttentionAcknowledged = true
		return s
	}
	failed := func(result string, status int32) client.Session {
		return client.Session{State: "failed", Result: result, ExecMainStatus: status}
	}
	reason := func(state, reason string) client.Session {
		return client.Session{State: state, Reason: reason}
	}
	caused := func(cause, state, text string) client.Session {
		return client.Session{State: state, Reason: text, EndCause: cause}
	}
	for _, row := range []struct {
		name         string
		session      client.Session
		text, detail string
		colour       string // of the detail
		mark, shade  string
		age          string
	}{
		{"working", live(func(*client.Session) {}), "running", "working", "", "●", Green, "1m 30s"},
		{"idle", live(func(s *client.Session) { s.Activity, s.IdleHint, s.IdleSinceHint = "idle", true, at(60) }),
			"running (idle 40s)", "idle", "", "●", Green, "40s"},
		{"frozen", live(func(s *client.Session) { s.Frozen = true }), "running (frozen)", "working", "", "●", Green,
			"1m 30s"},
		{"activity unknown", live(func(s *client.Session) { s.Activity = "unknown" }), "running", "-", "", "●",
			Green, "1m 30s"},
		{"agent asks for permission", asks("permission", "Run rm -rf build?"),
			"running (waiting: permission)", "waiting: permission: Run rm -rf build?", Yellow, "●", Yellow, "20s"},
		{"agent asks for permission, acknowledged", seen(asks("permission", "Run rm -rf build?")),
			"running (waiting: permission)", "waiting: permission: Run rm -rf build?", Yellow, "●", Dim, "20s"},
		{"agent waits without a reason", live(func(s *client.Session) { s.Activity, s.IdleSinceHint = "waiting", at(70) }),
			"running (waiting)", "waiting", Yellow, "●", Yellow, "30s"},
		{"turn ended", ended("idle", "finished task"), "running (turn ended)", "turn ended: finished task", Cyan, "◆",
			Cyan, "20s"},
		{"turn ended, and the agent reports that it waits", ended("waiting", ""), "running (turn ended)", "turn ended", Cyan,
			"◆", Cyan, "20s"},
		{"turn ended, acknowledged", seen(ended("idle", "finished task")),
			"running (turn ended)", "turn ended: finished task", Cyan, "◆", Dim, "20s"},
		{"agent reports an error", live(func(s *client.Session) {
			s.Activity, s.Attention, s.AttentionMessage, s.AttentionTimestamp = "idle", "error", "overloaded", at(90)
		}), "running (error)", "error: overloaded", Red, "●", Red, "10s"},
		{"agent tries again", live(func(s *client.Session) { s.StatusText = "retrying (overloaded)" }),
			"running", "working: retrying (overloaded)", "", "●", Green, "1m 30s"},
		{"agent has reached a limit", live(func(s *client.Session) {
			s.Activity, s.Attention, s.AttentionMessage, s.AttentionTimestamp = "idle", "limit", "resets at 7:30", at(90)
		}), "running (limit)", "limit: resets at 7:30", Yellow, "●", Yellow, "10s"},
		{"agent waits while it is being stopped",
			live(func(s *client.Session) { s.State, s.Activity = "stopping", "waiting" }),
			"stopping", "waiting", Yellow, "●", Yellow, "1m 30s"},

		{"failed with an exit code", failed("exit-code", 3), "failed", "exit 3", Red, "●", Red, "1m 30s"},
		{"failed by a signal", failed("signal", 9), "failed", "SIGKILL", Red, "●", Red, "1m 30s"},
		{"failed with a core dump", failed("core-dump", 11), "failed", "SIGSEGV (core)", Red, "●", Red, "1m 30s"},
		{"the power failed", client.Session{State: "failed", Result: "session-lost", EndCause: "shutdown"},
			"failed", "machine went down", Red, "●", Red, "1m 30s"},
		{"failed, reported by an older daemon", reason("failed", "command exited with code 3"),
			"failed", "command exited with code 3", Red, "●", Red, "1m 30s"},
		{"completed", client.Session{State: "completed", Result: "success"}, "completed", "-", "", "○", Dim, "1m 30s"},
		{"stopped", reason("stopped", ""), "stopped", "-", "", "○", Dim, "1m 30s"},
		{"stopped by systemctl", caused("scope-stopped", "stopped", "its scope was stopped"),
			"stopped", "scope was stopped", "", "○", Dim, "1m 30s"},
		{"stopped by closing its terminal", caused("terminal-closed", "stopped", "its terminal was closed"),
			"stopped", "terminal was closed", "", "○", Dim, "1m 30s"},
		{"suspended", reason("suspended", ""), "suspended", "by user", "", "○", "", "1m 30s"},
		{"suspended because idle", caused("idle", "suspended", "its agent was idle for 10m0s"),
			"suspended", "idle", "", "○", "", "1m 30s"},
		{"suspended by a shutdown", caused("shutdown", "suspended", "the machine was shut down"),
			"suspended", "shutdown", "", "○", "", "1m 30s"},
		{"suspended, reported by an older daemon", reason("suspended", "its agent was idle for 10m0s"),
			"suspended", "its agent was idle for 10m0s", "", "○", "", "1m 30s"},
		{"suspended at logout", caused("shutdown", "suspended", "the login session ended"),
			"suspended", "shutdown", "", "○", "", "1m 30s"},
		{"stale", live(func(s *client.Session) { s.State, s.Attention, s.AttentionTimestamp = "stale", "stale", at(20) }),
			"stale", "tmux died, agent running", Yellow, "●", Yellow, "1m 30s"},
		{"stale, and the agent asks",
			func() client.Session { s := seen(asks("question", "which?")); s.State = "stale"; return s }(),
			"stale", "tmux died, agent running", Yellow, "●", Yellow, "1m 30s"},
		{"stale, without an agent", reason("stale", ""), "stale (2 processes left)", "tmux died", Yellow, "●", Yellow,
			"1m 30s"},
		{"orphaned", live(func(s *client.Session) { s.State = "orphaned" }), "orphaned", "workspace gone", Yellow, "●",
			Yellow, "1m 30s"},
		{"read from its record, corrald not running", client.Session{State: UnknownState}, UnknownState, "-", "", "○", Yellow,
			"1m 30s"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := row.session
			s.StateChangeTimestamp = at(10)
			left := func(s client.Session) int {
				if s.State == "stale" {
					return 2
				}
				return 0
			}
			assert.Equal(t, row.text, StateText(s, left, now))
			detail, colour := Detail(s)
			assert.Equal(t, row.detail, detail)
			assert.Equal(t, row.colour, colour)
			mark, shade := Mark(s)
			assert.Equal(t, row.mark+row.shade, mark+shade)
			assert.Equal(t, row.age, Since(s, now))
		})
	}
}

func TestActivity_OmitsTheAgentsMessage(t *testing.T) {
	s := client.Session{State: "running", Activity: "waiting", Attention: "permission",
		AttentionMessage: "Run rm -rf build?"}
	text, _ := Activity(s)
	assert.Equal(t, "waiting: permission", text)
	s.Attention = word.TurnEnded
	text, _ = Activity(s)
	assert.Equal(t, "turn ended", text)
}

func TestMatches_StatesAndActivities(t *testing.T) {
	ended := client.Session{State: "running", Activity: "idle", Attention: word.TurnEnded}
	for _, word := range []string{"running", "idle", "turn-ended"} {
		assert.True(t, Matches(ended, word), word)
	}
	for _, word := range []string{"waiting", "failed", "ended"} {
		assert.False(t, Matches(ended, word), word)
	}
	ended.State = "completed"
	assert.False(t, Matches(ended, "turn-ended"), "no agent is left whose turn could end")
	assert.False(t, Matches(ended, "idle"))
}

func TestEllipsizeDetail_DropsThePrefixFirst(t *testing.T) {
	const asks = "waiting: permission: Run rm -rf build?"
	assert.Equal(t, asks, EllipsizeDetail(asks, 38))
	assert.Equal(t, "permission: Run rm -rf build?", EllipsizeDetail(asks, 37))
	assert.Equal(t, "permission: Run rm…", EllipsizeDetail(asks, 19))
	assert.Equal(t, "turn ended: fin…", EllipsizeDetail("turn ended: finished task", 16))
	assert.Equal(t, "waiting", EllipsizeDetail("waiting", 7))
}

func TestTurnsEnded_IsPluralized(t *testing.T) {
	assert.Equal(t, "1 turn ended", TurnsEnded(1))
	assert.Equal(t, "2 turns ended", TurnsEnded(2))
}

// TestQueued_IsShownWithItsPosition in tables and in the status. What does not know the position
// shows the word.
func TestQueued_IsShownWithItsPosition(t *testing.T) {
	for position, want := range map[uint32]string{
		0: "queued", 1: "queued, 1st", 2: "queued, 2nd", 3: "queued, 3rd", 4: "queued, 4th", 11: "queued, 11th",
		12: "queued, 12th", 21: "queued, 21st", 113: "queued, 113th", 1002: "queued, 1002nd",
	} {
		s := client.Session{State: word.Suspended, Reason: "idle", QueuedTimestamp: 7, QueuePosition: position}
		text, _ := Detail(s)
		assert.Equal(t, want, text)
		assert.Equal(t, "suspended ("+want+")", StateText(s, nil, time.Now()))
		activity, _ := Activity(s)
		assert.Equal(t, "queued", activity)
		assert.True(t, Matches(s, QueuedWord) && Matches(s, word.Suspended))
		assert.EqualValues(t, 7, SinceUSec(s))
	}
}

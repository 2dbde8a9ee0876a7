package supervisor

import (
	"context"
	"log/slog"
	"time"

	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/journal"
	"github.com/corrald/corral/internal/outcome"
	"github.com/corrald/corral/supervisor/session"
)

// logState logs a change of a session's state, in one record. Before is the previous state, "" for
// a new session.
func (s *Supervisor) logState(e *entry, before string) {
	now := e.published
	text := now.ID + ": " + now.State
	if before != "" {
		text = now.ID + ": " + before + " -> " + now.State
	}
	if now.Reason != "" {
		text += " (" + now.Reason + ")"
	}
	attrs := []any{
		"text", text, "session", now.ID, "agent", now.Agent, "state", now.State,
		"message_id", journal.SessionStateChanged, "unit", now.Unit,
	}
	if now.Result != "" {
		attrs = append(attrs, "result", now.Result)
	}
	if r := e.rec.Run; r != nil {
		attrs = append(attrs, "run", r.ID)
		attrs = append(attrs, exitAttrs(r.Exit)...)
	}
	level := stateLevel(session.State(now.State))
	if level > slog.LevelInfo {
		if at := s.LastOutput(now.ID); !at.IsZero() {
			attrs = append(attrs, "last_activity", at.UTC().Format(time.RFC3339Nano))
		}
	}
	s.Log.Log(context.Background(), level, "the state of a session has changed", attrs...)
}

// stateLevel returns the priority of the record: err if an agent has failed, warning if a session
// is degraded.
func stateLevel(state session.State) slog.Level {
	switch state {
	case session.Failed:
		return slog.LevelError
	case session.Stale, session.Orphaned:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// exitAttrs returns the exit code of an agent, or the signal that has killed it, as attributes of a
// record.
func exitAttrs(exit *exitstatus.Status) []any {
	switch {
	case exit == nil:
		return nil
	case exit.Code == exitstatus.Exited:
		return []any{"exit_code", exit.Value}
	case exit.Code == exitstatus.Killed, exit.Code == exitstatus.Dumped:
		return []any{"signal", outcome.SignalName(exit.Value)}
	}
	return nil
}

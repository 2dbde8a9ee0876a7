package supervisor

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/exitstatus"
	"github.com/corrald/corral/internal/journal"
	"github.com/corrald/corral/internal/outcome"
	"github.com/corrald/corral/supervisor/session"
)

// Publisher publishes changes to clients, in the order of the calls. It must not block, and must
// not call the Supervisor.
type Publisher interface {
	// Prepare begins to prepare the changes of one iteration for clients. Meanwhile, the caller saves
	// them. Then, and before it calls Prepare again, it calls publish, which publishes them. Once all
	// of them are on their way to clients, the functions of after are called, in order: they answer
	// calls.
	Prepare(changes []Change) (publish func(after []func()))
	// PublishProblems publishes the current problems. It is called when they have changed. Between
	// Prepare and publish, it adds them to the changes: a client that sees a state sees the problem of
	// saving it, too.
	PublishProblems(all []Problem)
}

// Change is one session's change in an iteration. Old is nil for a new one, New for a removed one.
type Change struct {
	Old, New *Snapshot
}

// affectsCounts reports whether the counts, or the time of the next suspension, may have changed.
func (c Change) affectsCounts() bool {
	return c.Old == nil || c.New == nil || c.Old.State != c.New.State || c.Old.Activity != c.New.Activity ||
		c.Old.Attention != c.New.Attention || c.Old.Queued.IsZero() != c.New.Queued.IsZero() ||
		c.Old.SuspendsAt != c.New.SuspendsAt
}

// replaceSnapshot replaces the session's published snapshot by a current one, and returns the
// change. It returns false if there is nothing to publish.
func (e *entry) replaceSnapshot() (c Change, ok bool) {
	old := e.published
	if e.removed {
		e.continuation.schedule(time.Time{})
		e.published = nil
		return Change{Old: old}, old != nil
	}
	if len(e.waiting) > 0 && !e.client.unattended && e.rec.View().Result == word.StartFailed {
		e.client.run = e.rec.Run.ID // a client waits, and its call returns that the agent could not be started
	}
	e.published = e.takeSnapshot()
	e.continuation.schedule(e.published.ContinueAt)
	e.loop.expiry.changed(old.expiry(), e.published.Expires)
	return Change{Old: old, New: e.published}, true
}

// logState logs a change of a session's state, in one record. It is called after the change was
// published, so that it does not delay that.
func (e *entry) logState(c Change) {
	before := string(e.adoptedState) // "" for a new session
	if c.Old != nil {
		before = c.Old.State
	}
	now := c.New
	if now == nil || before == now.State {
		return
	}
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
		if at := e.loop.lastOutput(now.ID); !at.IsZero() {
			attrs = append(attrs, "last_activity", at.UTC().Format(time.RFC3339Nano))
		}
	}
	e.loop.log.Log(context.Background(), level, "the state of a session has changed", attrs...)
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

// status is the status of the daemon as it was last reported to the service manager.
type status struct {
	loop          *loop
	text          string // the last argument of Callbacks.SetStatus
	anyAgentAlive bool   // the last argument of Callbacks.SetAnyAgentAlive
}

// report reports the counts, and whether any agent is alive, if they have changed.
func (s *status) report() {
	var c Counts
	alive := false
	for _, e := range s.loop.sessions.byID {
		if e.published != nil {
			c = c.with(e.published)
		}
		alive = alive || e.rec.Run.AgentAlive()
	}
	if text := c.String(); text != s.text && s.loop.callbacks.SetStatus != nil {
		s.text = text
		s.loop.callbacks.SetStatus(text)
	}
	if alive != s.anyAgentAlive && s.loop.callbacks.SetAnyAgentAlive != nil {
		s.anyAgentAlive = alive
		s.loop.callbacks.SetAnyAgentAlive(alive)
	}
}

// Counts is the number of sessions, in total and by state, without archived ones.
type Counts struct {
	Sessions, Running, Waiting, TurnsEnded, Limited, Failed, Stale, Suspended, Queued uint32
}

// CountOf counts the sessions of the snapshots.
func CountOf(all []*Snapshot) Counts {
	var c Counts
	for _, snap := range all {
		c = c.with(snap)
	}
	return c
}

// with returns the counts including one more session.
func (c Counts) with(snap *Snapshot) Counts {
	if snap.State == word.Archived {
		return c
	}
	c.Sessions++
	switch session.State(snap.State) {
	case session.Running:
		c.Running++
	case session.Failed:
		c.Failed++
	case session.Stale:
		c.Stale++
	case session.Suspended:
		c.Suspended++
	}
	if snap.Activity == word.Waiting {
		c.Waiting++
	}
	if !snap.Queued.IsZero() {
		c.Queued++
	}
	switch snap.Attention {
	case word.TurnEnded:
		c.TurnsEnded++
	case word.Limit:
		c.Limited++
	}
	return c
}

// String returns the counts as systemctl status shows them: "3 running, 1 failed".
func (c Counts) String() string {
	var parts []string
	add := func(n uint32, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(c.Running, word.Running)
	add(c.Waiting, word.Waiting)
	switch c.TurnsEnded {
	case 1:
		add(1, "turn ended")
	default:
		add(c.TurnsEnded, "turns ended")
	}
	add(c.Limited, "at a limit")
	add(c.Failed, word.Failed)
	add(c.Stale, word.Stale)
	add(c.Suspended, word.Suspended)
	add(c.Queued, "queued")
	if len(parts) == 0 {
		return "no sessions running"
	}
	return strings.Join(parts, ", ")
}

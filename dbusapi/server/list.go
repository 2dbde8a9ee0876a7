package server

import (
	"cmp"
	"context"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor"
)

// noExtraFacts is shared by all rows without extra facts.
var noExtraFacts = map[string]dbus.Variant{}

func listSessionsEx(_ context.Context, o *object, _ *dbus.Message) ([]any, error) {
	all := o.server.snapshots() // leftover processes are counted afterwards, because that may take some time
	rows := make([]dbusapi.SessionRowEx, len(all))
	now := time.Now()
	for i, n := range all {
		rows[i] = rowEx(n, now)
	}
	return []any{rows}, nil
}

// rowEx returns a session's row of ListSessionsEx.
func rowEx(n *supervisor.Snapshot, now time.Time) dbusapi.SessionRowEx {
	row := dbusapi.SessionRowEx{
		ID:          n.ID,
		Agent:       n.Agent,
		State:       n.State,
		Activity:    n.Activity,
		Attention:   n.Attention,
		Reason:      n.Reason,
		Workspace:   n.WorkingDirectory,
		Description: n.Description,
		Unit:        n.Unit,
		StateChange: cmp.Or(usec(n.StateChanged), usec(n.Created)),
		ActiveSince: usec(n.LastActivity),
		OnLogin:     n.OnLogin,
		Path:        dbusapi.SessionPath(n.ID),
		More:        extraFacts(n, now),
	}
	if n.Idle {
		row.ActiveSince = usec(n.IdleSince)
	}
	if !n.AgentAlive {
		row.Leftovers = uint32(shimwire.CountLeftovers(n.ControlGroup))
	}
	return row
}

// extraFacts returns the facts of a session's row that have no column of their own.
func extraFacts(n *supervisor.Snapshot, now time.Time) map[string]dbus.Variant {
	more := noExtraFacts
	add := func(name string, value any) {
		if len(more) == 0 {
			more = map[string]dbus.Variant{}
		}
		more[name] = dbus.MakeVariant(value)
	}
	if n.Frozen {
		add("Frozen", true)
	}
	if program := n.Program(); program != n.Agent {
		add("Program", program)
	}
	if n.Parent != "" {
		add("Parent", n.Parent)
	}
	if n.Worktree != "" {
		add("Worktree", n.Worktree)
		add("Repository", n.Repository)
	}
	if len(n.Labels) > 0 {
		add("Labels", n.Labels)
	}
	if ran := n.TotalRuntime(now); ran > 0 {
		add("TotalRuntimeUSec", uint64(ran.Microseconds()))
	}
	if n.Attention != "" {
		add("AttentionTimestamp", usec(n.AttentionSince))
	}
	if !n.AttentionUntil.IsZero() {
		add("AttentionUntil", usec(n.AttentionUntil))
	}
	if !n.ContinueAt.IsZero() {
		add("ContinueTimestamp", usec(n.ContinueAt))
	}
	if !n.Queued.IsZero() {
		add("QueuedTimestamp", usec(n.Queued))
	}
	if n.AttentionMessage != "" {
		add("AttentionMessage", n.AttentionMessage)
	}
	if n.StatusText != "" {
		add("StatusText", n.StatusText)
	}
	if n.AttentionAcknowledged {
		add("AttentionAcknowledged", true)
	}
	if n.Result != "" {
		add("Result", n.Result)
		add("ExecMainCode", n.ExecMainCode)
		add("ExecMainStatus", n.ExecMainStatus)
	}
	if n.EndCause != "" {
		add("EndCause", n.EndCause)
	}
	if n.State == word.Stale && n.AgentAlive {
		add("AgentAlive", true)
	}
	return more
}

package server

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/supervisor"
)

// rowEx returns a session's row of ListSessionsEx as a client decodes it, beside that of another
// session.
func rowEx(t *testing.T, n *supervisor.Snapshot, now time.Time) dbusapi.SessionRowEx {
	t.Helper()
	m := marshalRowsEx([]*supervisor.Snapshot{{ID: "other", State: "stale", AgentAlive: true}, n}, now)
	var rows []dbusapi.SessionRowEx
	require.NoError(t, dbus.Store(unmarshal(t, m.Signature, m.Body), &rows))
	require.Len(t, rows, 2)
	return rows[1]
}

func TestRowEx_HasTheColumnsOfATable(t *testing.T) {
	at := func(usec int64) time.Time { return time.UnixMicro(usec) }
	idle := &supervisor.Snapshot{
		ID: "fix-auth", Agent: "claude", State: "running", Activity: "idle", Attention: "turn-ended", Reason: "r",
		WorkingDirectory: "/w", Description: "d", Unit: "u.scope", Created: at(1), StateChanged: at(2),
		Idle: true, IdleSince: at(3), LastActivity: at(4), OnLogin: "resume", AgentAlive: true, Frozen: true,
	}
	assert.Equal(t, dbusapi.SessionRowEx{
		ID: "fix-auth", Agent: "claude", State: "running", Activity: "idle", Attention: "turn-ended", Reason: "r",
		Workspace: "/w", Description: "d", Unit: "u.scope", StateChange: 2, ActiveSince: 3, OnLogin: "resume",
		Path: dbusapi.SessionPath("fix-auth"),
		More: properties{"Frozen": true, "AttentionTimestamp": uint64(0)}.variants(),
	}, rowEx(t, idle, at(5)))
	assert.Equal(t, dbusapi.SessionRowEx{
		ID: "new", State: "created", StateChange: 1,
		Path: dbusapi.SessionPath("new"), More: map[string]dbus.Variant{},
	}, rowEx(t, &supervisor.Snapshot{ID: "new", State: "created", Created: at(1)}, at(5)),
		"the state of a new session is as old as the session")
}

// TestRowEx_HasExtraFacts: some sessions have facts that have no column.
func TestRowEx_HasExtraFacts(t *testing.T) {
	at := time.UnixMicro
	for _, row := range []struct {
		name string
		n    supervisor.Snapshot
		want properties
	}{
		{
			"an agent without a question",
			supervisor.Snapshot{State: "running", AgentAlive: true},
			properties{},
		},
		{"a child", supervisor.Snapshot{State: "running", AgentAlive: true, Parent: "a"}, properties{"Parent": "a"}},
		{
			"a worktree",
			supervisor.Snapshot{State: "running", Worktree: "fix", Repository: "/src/shop"},
			properties{"Worktree": "fix", "Repository": "/src/shop"},
		},
		{
			"a plain command",
			supervisor.Snapshot{Agent: "command", Command: []string{"/usr/bin/vim", "a"}},
			properties{"Program": "vim"},
		},
		{
			"an agent that is not a plain command",
			supervisor.Snapshot{Agent: "claude", Command: []string{"/usr/bin/node", "a"}},
			properties{},
		},
		{
			"labels",
			supervisor.Snapshot{Labels: map[string]string{"team": "web"}},
			properties{"Labels": map[string]string{"team": "web"}},
		},
		{
			"running again after an earlier run",
			supervisor.Snapshot{AgentAlive: true, Started: at(13), Ran: 5 * time.Microsecond},
			properties{"TotalRuntimeUSec": uint64(12)},
		},
		{
			"not running, after a run",
			supervisor.Snapshot{Started: at(13), Ran: 5 * time.Microsecond},
			properties{"TotalRuntimeUSec": uint64(5)},
		},
		{
			"a question",
			supervisor.Snapshot{
				State: "running", Attention: "permission", AttentionMessage: "Run rm?", AttentionSince: at(7),
			},
			properties{"AttentionMessage": "Run rm?", "AttentionTimestamp": uint64(7)},
		},
		{
			"an acknowledged request",
			supervisor.Snapshot{
				State: "running", Attention: "turn-ended", AttentionSince: at(7), AttentionAcknowledged: true,
			},
			properties{"AttentionTimestamp": uint64(7), "AttentionAcknowledged": true},
		},
		{
			"a usage limit",
			supervisor.Snapshot{
				State: "running", Attention: "limit", AttentionSince: at(7), AttentionUntil: at(8), ContinueAt: at(9),
			},
			properties{"AttentionTimestamp": uint64(7), "AttentionUntil": uint64(8), "ContinueTimestamp": uint64(9)},
		},
		{"a queued session", supervisor.Snapshot{State: "created", Queued: at(9)}, properties{"QueuedTimestamp": uint64(9)}},
		{
			"a request that is tried again",
			supervisor.Snapshot{State: "running", StatusText: "retrying (overloaded)"},
			properties{"StatusText": "retrying (overloaded)"},
		},
		{
			"an exit",
			supervisor.Snapshot{State: "failed", Result: "exit-code", ExecMainCode: 1, ExecMainStatus: 3},
			properties{"Result": "exit-code", "ExecMainCode": int32(1), "ExecMainStatus": int32(3)},
		},
		{
			"the tmux server died and the agent is running",
			supervisor.Snapshot{State: "stale", AgentAlive: true},
			properties{"AgentAlive": true},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want.variants(), rowEx(t, &row.n, at(20)).More)
		})
	}
}

// TestManager_ListsUnacknowledgedAttention: sessions that are acknowledged are not listed; the
// Manager still counts a finished turn until the agent continues.
func TestManager_ListsUnacknowledgedAttention(t *testing.T) {
	asks := &supervisor.Snapshot{ID: "asks", State: "running", Activity: "waiting", Attention: "question"}
	seen := &supervisor.Snapshot{
		ID: "seen", State: "running", Activity: "waiting", Attention: "question", AttentionAcknowledged: true,
	}
	ended := &supervisor.Snapshot{
		ID: "ended", State: "running", Activity: "idle", Attention: "turn-ended", AttentionAcknowledged: true,
	}
	limited := &supervisor.Snapshot{ID: "limited", State: "running", Activity: "idle", Attention: "limit"}
	limited.AttentionAcknowledged = true
	queued := &supervisor.Snapshot{ID: "queued", State: "created", Queued: time.UnixMicro(1)}
	p := countProperties([]*supervisor.Snapshot{asks, seen, ended, limited, queued})
	want := []dbusapi.AttentionRow{{ID: "asks", Reason: "question", Path: dbusapi.SessionPath("asks")}}
	assert.Equal(t, want, p["Attention"])
	assert.EqualValues(t, 2, p["NWaiting"])
	assert.EqualValues(t, 1, p["NTurnEnded"])
	assert.EqualValues(t, 1, p["NLimited"])
	assert.EqualValues(t, 1, p["NQueued"])
}

func TestAttentionRequested_IsSentForUnacknowledgedRequests(t *testing.T) {
	nothing := &supervisor.Snapshot{}
	asks := &supervisor.Snapshot{Attention: "question", AttentionMessage: "which?"}
	seen := &supervisor.Snapshot{Attention: "question", AttentionMessage: "which?", AttentionAcknowledged: true}
	asksMore := &supervisor.Snapshot{Attention: "question", AttentionMessage: "and which?"}
	for _, row := range []struct {
		name        string
		before, now *supervisor.Snapshot
		want        bool
	}{
		{"a question", nothing, asks, true},
		{"nothing has changed", asks, asks, false},
		{"a person has seen the question", asks, seen, false},
		{"the question is answered", seen, nothing, false},
		{"the question is asked again", seen, asks, true},
		{"another question", asks, asksMore, true},
		{"a new question was already acknowledged", nothing, seen, false},
	} {
		t.Run(row.name, func(t *testing.T) { assert.Equal(t, row.want, hasNewAttention(row.before, row.now)) })
	}
}

func TestLeftovers_ExcludeShimAndTmux(t *testing.T) {
	group, err := proc.Cgroup(os.Getpid())
	require.NoError(t, err)
	before := shimwire.CountLeftovers(group)
	assert.Positive(t, before, "this very process is one")
	child := exec.Command("sleep", "1000")
	require.NoError(t, child.Start())
	assert.Equal(t, before+1, shimwire.CountLeftovers(group))
	require.NoError(t, child.Process.Kill())
	_ = child.Wait()
	assert.Equal(t, before, shimwire.CountLeftovers(group))
	assert.Zero(t, shimwire.CountLeftovers(""))
	assert.Zero(t, shimwire.CountLeftovers("/no/such.scope"))
	alive := rowEx(t, &supervisor.Snapshot{ControlGroup: group, AgentAlive: true}, time.UnixMicro(20))
	assert.Zero(t, alive.Leftovers, "leftovers are counted only after the agent has exited")
	assert.EqualValues(t, before, rowEx(t, &supervisor.Snapshot{ControlGroup: group}, time.UnixMicro(20)).Leftovers)
}

func TestRowEx_StateChangeMayPrecedeCreation(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	created := noon.Add(time.Hour) // then the clock was set back
	now := time.UnixMicro(20)
	changed := rowEx(t, &supervisor.Snapshot{Created: created, StateChanged: noon}, now)
	assert.Equal(t, uint64(noon.UnixMicro()), changed.StateChange)
	unchanged := rowEx(t, &supervisor.Snapshot{Created: created}, now)
	assert.Equal(t, uint64(created.UnixMicro()), unchanged.StateChange)
}

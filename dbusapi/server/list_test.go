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
	"github.com/corrald/corral/supervisor"
)

func TestARowHasWhatATableShows(t *testing.T) {
	at := func(usec int64) time.Time { return time.UnixMicro(usec) }
	idle := &supervisor.Snapshot{
		ID: "fix-auth", Agent: "claude", State: "running", Activity: "idle", Attention: "turn-ended", Reason: "r", WorkingDirectory: "/w", Description: "d",
		Unit: "u.scope", Created: at(1), StateChanged: at(2), Idle: true, IdleSince: at(3), LastActivity: at(4), OnLogin: "resume", AgentAlive: true, Frozen: true,
	}
	assert.Equal(t, dbusapi.SessionRowEx{
		ID: "fix-auth", Agent: "claude", State: "running", Activity: "idle", Attention: "turn-ended", Reason: "r", Workspace: "/w", Description: "d",
		Unit: "u.scope", StateChange: 2, ActiveSince: 3, OnLogin: "resume", Path: dbusapi.SessionPath("fix-auth"),
		More: map[string]dbus.Variant{"Frozen": dbus.MakeVariant(true)},
	}, rowEx(idle))
	assert.Equal(t, dbusapi.SessionRowEx{ID: "new", State: "created", StateChange: 1, Path: dbusapi.SessionPath("new"), More: map[string]dbus.Variant{}},
		rowEx(&supervisor.Snapshot{ID: "new", State: "created", Created: at(1)}), "its state is as old as it is")
}

func TestLeftoversAreCountedBesideShimAndTmux(t *testing.T) {
	group, err := proc.Cgroup(os.Getpid())
	require.NoError(t, err)
	before := leftovers(group)
	assert.Positive(t, before, "this very process is one")
	child := exec.Command("sleep", "1000")
	require.NoError(t, child.Start())
	assert.Equal(t, before+1, leftovers(group))
	require.NoError(t, child.Process.Kill())
	_ = child.Wait()
	assert.Equal(t, before, leftovers(group))
	assert.Zero(t, leftovers(""))
	assert.Zero(t, leftovers("/no/such.scope"))
	alive := rowEx(&supervisor.Snapshot{ControlGroup: group, AgentAlive: true})
	assert.Zero(t, alive.Leftovers, "an agent that lives leaves nothing behind")
	assert.Equal(t, before, rowEx(&supervisor.Snapshot{ControlGroup: group}).Leftovers)
}

func TestASessionHasChangedWhenItDidWhateverTheClockWas(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	created := noon.Add(time.Hour) // before the clock was set back
	assert.Equal(t, uint64(noon.UnixMicro()), rowEx(&supervisor.Snapshot{Created: created, StateChanged: noon}).StateChange)
	assert.Equal(t, uint64(created.UnixMicro()), rowEx(&supervisor.Snapshot{Created: created}).StateChange)
}

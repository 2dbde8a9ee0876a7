package effects

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/testbed"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/units"
)

func TestMain(m *testing.M) { testbed.Main(m) }

// process returns the process with this id.
func process(t *testing.T, pid int) session.Process {
	t.Helper()
	st, err := proc.Stat(pid)
	require.NoError(t, err)
	return session.Process(st.Identity)
}

// TestTarget_WithoutControlGroupIsNotTheRootGroup uses a run without a scope: a start that waits.
// In a container, the root of the hierarchy also has files that kill and freeze all its processes.
func TestTarget_WithoutControlGroupIsNotTheRootGroup(t *testing.T) {
	u, err := units.Connect(t.Context(), os.Getenv("DBUS_SESSION_BUS_ADDRESS"), os.Getenv("XDG_RUNTIME_DIR"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = u.Close() })
	files := map[string]string{
		"cgroup.kill": "", "cgroup.freeze": "1", "cgroup.events": "populated 1\nfrozen 1\n",
		"memory.current": "1000000000\n", "cpu.stat": "usage_usec 5\n",
	}
	groups := controlGroups{t.TempDir()}
	x := &Executor{units: u, cgroups: groups}
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(groups.root, name), []byte(text), 0o600))
	}
	run := supervisor.Target{ID: "shop", Unit: "app-corral-command-shop.scope"}
	require.NoError(t, x.kill(t.Context(), run))
	require.NoError(t, x.thaw(t.Context(), run))
	assert.False(t, groups.StaysPopulated(""))
	assert.False(t, groups.IsPopulated(""))
	assert.False(t, groups.IsFrozen(""))
	assert.Empty(t, groups.EventsFile(""))
	_, exists := groups.Usage("")
	assert.False(t, exists)
	err = x.rejoin(t.Context(), run, supervisor.Plan{ID: "shop"}, nil)
	require.ErrorContains(t, err, "cannot join the existing scope")
	for name, text := range files {
		now, err := os.ReadFile(filepath.Join(groups.root, name))
		require.NoError(t, err)
		assert.Equal(t, text, string(now), name)
	}
}

package units

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/testbed"
)

// TestList_ReadsRunningScopesFromTheKernel: the kernel and systemd's files give the same result as
// a call to systemd.
func TestList_ReadsRunningScopesFromTheKernel(t *testing.T) {
	m := connect(t)
	var want []Unit
	for _, name := range []string{"app-corral-a.scope", "app-corral-b.scope", "app-corral-c.scope"} {
		_, started := start(t, m, name)
		want = append(want, runningUnit(name, started))
	}
	elsewhere := "app-corral-elsewhere.scope"
	_, started := start(t, m, elsewhere, property("Slice", "app-other.slice"))
	want = append(want, runningUnit(elsewhere, started))
	list := func() []Unit {
		t.Helper()
		units, err := m.List(t.Context(), "app-corral-*.scope")
		require.NoError(t, err)
		slices.SortFunc(units, func(a, b Unit) int { return strings.Compare(a.Name, b.Name) })
		return units
	}
	assert.Equal(t, want, list())
	for _, u := range want[1:3] {
		found := Unit{Name: u.Name, Active: "active"}
		assert.True(t, m.readFromKernel(&found, filepath.Dir(want[0].ControlGroup)))
		assert.Equal(t, u, found)
	}
	assert.False(t, m.readFromKernel(&Unit{Name: elsewhere}, filepath.Dir(want[0].ControlGroup)),
		"a scope in another slice is read from systemd")

	m.runtimeDir = t.TempDir()
	assert.Equal(t, want, list(), "without systemd's files, the scopes are read from systemd")
}

// TestList_WaitsForPendingStartJobs: a scope whose start has to wait for another unit looks like
// one that has ended.
// TestDescribe_DetectsAnEndedScope: the scope has ended after it was listed.
func TestDescribe_DetectsAnEndedScope(t *testing.T) {
	m := connect(t)
	u := Unit{Name: "app-corral-ended.scope", Active: "active"}
	require.NoError(t, m.describe(t.Context(), &u))
	assert.Equal(t, Unit{Name: u.Name, Active: "inactive"}, u)
}

func TestList_WaitsForPendingStartJobs(t *testing.T) {
	m := connect(t)
	const name, slow = "app-corral-waits.scope", "corral-slow.service"
	gate := filepath.Join(testbed.Dir(t), "gate")
	require.NoError(t, unix.Mkfifo(gate, 0o600))
	testbed.Systemctl(t, "reset-failed")
	out, err := exec.Command("systemd-run", "--user", "--no-block", "--quiet", "--unit="+slow, "-p", "Type=oneshot", "cat",
		gate).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Cleanup(func() { _ = exec.Command("systemctl", "--user", "stop", slow).Run() })

	pid := process(t)
	result := make(chan error, 1)
	go func() {
		_, err := m.Start(t.Context(),
			Scope{Name: name, PIDs: []int{pid}, Properties: []Property{property("After", []string{slow})}})
		result <- err
	}()
	clearAfterwards(t, name)
	testbed.Poll(t, "a start job", func() bool {
		rows, err := m.listOnce(t.Context(), name)
		return err == nil && hasStartJob(rows)
	})

	began := time.Now()
	units, err := m.List(t.Context(), name)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(began), startJobWait)
	require.Len(t, units, 1)
	assert.Equal(t, "inactive", units[0].Active, "the wait is bounded")

	listed := make(chan []Unit, 1)
	go func() {
		units, _ := m.List(t.Context(), name)
		listed <- units
	}()
	testbed.Poll(t, "the list waits", func() bool {
		var waits bool
		require.NoError(t, m.runOnLoop(t.Context(), func(ws *watches) { waits = len(ws.jobWaiters) == 1 }))
		return waits
	})
	require.NoError(t, os.WriteFile(gate, nil, 0))
	require.NoError(t, testbed.Receive(t, result, "the start"))
	units = testbed.Receive(t, listed, "the list")
	require.Len(t, units, 1)
	assert.Equal(t, "active", units[0].Active)
	testbed.Poll(t, "the list no longer waits", func() bool {
		var waiters int
		require.NoError(t, m.runOnLoop(t.Context(), func(ws *watches) { waiters = len(ws.jobWaiters) }))
		return waiters == 0
	})
	kill(t, pid)
	assert.Equal(t, Ended{Name: name, Result: "success"}, next(t, m))
}

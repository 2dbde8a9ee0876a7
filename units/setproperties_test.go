package units

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/testbed"
)

func TestSetProperties_ChangesRunningScope(t *testing.T) {
	m := connect(t)
	const name = "app-corral-limits.scope"
	_, started := start(t, m, name)
	set := func(props ...Property) error { return m.SetProperties(t.Context(), started.InvocationID, props) }

	require.NoError(t, set(
		property("TasksMax", uint64(100)), property("Description", "another"), property("AllowedCPUs", []byte{1}),
		property("CPUQuotaPerSecUSec", uint64(250_000)), property("MemoryHigh", ^uint64(0)),
		property("CPUWeight", uint64(0)), property("MemoryMaxScale", uint32(1<<31)),
	))
	for read, want := range map[string]string{
		"TasksMax": "100", "Description": "another", "AllowedCPUs": "0",
		"CPUQuotaPerSecUSec": "250ms", "MemoryHigh": "infinity",
	} {
		assert.Equal(t, want, show(t, name, read), read)
	}

	for _, bad := range []Property{
		property("Frobnicate", true), property("TasksMax", uint64(0)), property("TasksMax", "many"),
		property("OOMPolicy", "kill"), property("Environment", []string{"A=b"}),
	} {
		err := set(property("TasksMax", uint64(7)), bad, property("CPUWeight", uint64(50)))
		var refused *PropertyError
		require.ErrorAs(t, err, &refused, "%v", bad)
		assert.Equal(t, bad.Name, refused.Name)
		assert.NotEmpty(t, refused.Text)
		assert.Equal(t, "100", show(t, name, "TasksMax"), "all properties are set, or none")
	}
	require.NoError(t, set())
}

func TestSetProperties_FailsForEndedScope(t *testing.T) {
	m := connect(t)
	const name = "app-corral-left.scope"
	pid, started := start(t, m, name)
	kill(t, pid)
	assert.Equal(t, Ended{Name: name, Result: "success"}, next(t, m))
	_, _ = start(t, m, name, property("TasksMax", uint64(50)))
	err := m.SetProperties(t.Context(), started.InvocationID, []Property{property("TasksMax", uint64(7))})
	require.ErrorIs(t, err, ErrNoScope)
	assert.Equal(t, "50", show(t, name, "TasksMax"), "the next scope of that name is unchanged")
	assert.NoFileExists(t, filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "systemd/user.control", name+".d"))
}

func TestCheckProperties_StartsNoScope(t *testing.T) {
	m := connect(t)
	require.NoError(t, m.CheckProperties(t.Context(), nil))
	require.NoError(t, m.CheckProperties(t.Context(), []Property{property("RuntimeMaxUSec", uint64(1e6)),
		property("MemoryMax", uint64(1<<29)), property("Delegate", true)}))
	for _, bad := range []Property{
		property("Frobnicate", true), property("TasksMax", uint64(0)),
		property("RuntimeMaxUSec", "1h"), property("Slice", "?"),
	} {
		err := m.CheckProperties(t.Context(), []Property{property("MemoryMax", uint64(1<<29)), bad})
		var refused *PropertyError
		require.ErrorAs(t, err, &refused, "%v", bad)
		assert.Equal(t, bad.Name, refused.Name)
	}
	assert.Empty(t, testbed.Systemctl(t, "list-units", "--all", "--plain", "--no-legend", "app-corral-check*"),
		"nothing of it stays")
}

func TestStartScope_NamesRejectedProperty(t *testing.T) {
	m := connect(t)
	for _, bad := range []Property{property("Frobnicate", true), property("TasksMax", "many"), property("Slice", "?")} {
		_, err := m.Start(t.Context(), Scope{Name: "app-corral-refused.scope", PIDs: []int{process(t)},
			Properties: []Property{property("CPUWeight", uint64(50)), bad}})
		require.ErrorContains(t, err, bad.Name)
	}
	_, err := m.Start(t.Context(),
		Scope{Name: "nonsense", PIDs: []int{process(t)}, Properties: []Property{property("CPUWeight", uint64(50))}})
	require.Error(t, err)
	require.NotErrorAs(t, err, new(*PropertyError))
}

func TestFreezeAndThaw(t *testing.T) {
	m := connect(t)
	const name = "app-corral-frozen.scope"
	_, started := start(t, m, name)
	frozen := func() bool { frozen, _ := proc.Frozen(started.ControlGroup); return frozen }
	require.NoError(t, m.Freeze(t.Context(), name))
	assert.True(t, frozen())
	assert.Equal(t, "frozen", show(t, name, "FreezerState"))
	require.NoError(t, m.Freeze(t.Context(), name), "again")
	require.NoError(t, m.Thaw(t.Context(), name))
	assert.False(t, frozen())
	require.NoError(t, m.Thaw(t.Context(), name), "again")

	require.Error(t, m.Freeze(t.Context(), "app-corral-nothing.scope"))
	require.NoError(t, m.Thaw(t.Context(), "app-corral-nothing.scope"))
}

package units

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEnableUnit_EnablesDisabledUnitsOnly(t *testing.T) {
	m := connect(t)
	// The manager searches this directory for unit files.
	folder := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "systemd/user")
	file, wanted := filepath.Join(folder, "one.service"), filepath.Join(folder, "default.target.wants/one.service")
	require.NoError(t, os.MkdirAll(folder, 0o700))
	t.Cleanup(func() { _ = os.Remove(file); _ = os.Remove(wanted) })

	enabled, err := m.EnableUnit(t.Context(), "one.service")
	require.NoError(t, err, "a unit without a file is left as it is")
	assert.False(t, enabled)

	require.NoError(t,
		os.WriteFile(file, []byte("[Service]\nExecStart=true\n[Install]\nWantedBy=default.target\n"), 0o600))
	enabled, err = m.EnableUnit(t.Context(), "one.service")
	require.NoError(t, err)
	assert.True(t, enabled)
	_, err = os.Lstat(wanted)
	require.NoError(t, err)

	enabled, err = m.EnableUnit(t.Context(), "one.service")
	require.NoError(t, err)
	assert.False(t, enabled, "it was already")
}

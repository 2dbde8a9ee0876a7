package logind

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLingerFile_EscapesTheUserName(t *testing.T) {
	for user, name := range map[string]string{
		"anna":               "anna",
		`EXAMPLE\anna`:       `EXAMPLE\\anna`,
		"zoé":                `zo\303\251`,
		"o'hara@example.org": `o\'hara@example.org`,
		"host$":              "host$",
	} {
		assert.Equal(t, name, escapeUserName(user))
	}
}

// TestWatchLinger_ReportsEveryChange: the file changes, and so does its directory, which the login
// manager creates for the first user who enables lingering.
func TestWatchLinger_ReportsEveryChange(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "systemd", "linger")
	w, err := watchLinger(filepath.Join(dir, "ann"))
	require.NoError(t, err)
	changes, ended := make(chan bool, 8), make(chan struct{})
	go func() { defer close(ended); w.Run(func(on bool) { changes <- on }) }()
	next := func() bool {
		t.Helper()
		select {
		case on := <-changes:
			return on
		case <-time.After(20 * time.Second):
			t.Fatal("no change was reported")
			return false
		}
	}

	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bob"), nil, 0o600)) // another user
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ann"), nil, 0o600))
	assert.True(t, next(), "the directory and the file are created")
	require.NoError(t, os.Remove(filepath.Join(dir, "ann")))
	assert.False(t, next())
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".tmp"), nil, 0o600))
	require.NoError(t, os.Rename(filepath.Join(dir, ".tmp"), filepath.Join(dir, "ann")))
	assert.True(t, next(), "the file is moved to its place")
	require.NoError(t, os.RemoveAll(filepath.Join(top, "systemd")))
	assert.False(t, next(), "the directory is removed")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ann"), nil, 0o600))
	assert.True(t, next(), "the directory is created again")

	require.NoError(t, w.Close())
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("Run does not end")
	}
	assert.Empty(t, changes)
}

package sshagent_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/sshagent"
)

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestUpdateLink_PointsToLiveSocket(t *testing.T) {
	dir, logins := t.TempDir(), t.TempDir()
	link := filepath.Join(dir, sshagent.LinkName)
	first, second := filepath.Join(logins, "1"), filepath.Join(logins, "2")
	target := func() string {
		path, err := sshagent.Target(dir)
		require.NoError(t, err)
		return path
	}
	update := func(socket string) { t.Helper(); require.NoError(t, sshagent.UpdateLink(dir, socket)) }

	update(first)
	assert.Empty(t, target(), "no process listens there")
	one := listen(t, first)
	update(first)
	assert.Equal(t, first, target())
	update(link)
	assert.Equal(t, first, target(), "the link does not point to itself")

	listen(t, second)
	update(second)
	assert.Equal(t, second, target())
	require.NoError(t, one.Close())
	update(first)
	assert.Equal(t, second, target(), "the first login has ended")

	require.NoError(t, os.WriteFile(filepath.Join(logins, "file"), nil, 0o600))
	for _, none := range []string{"", "relative", filepath.Join(logins, "file"), logins, "/nonexistent"} {
		update(none)
		assert.Equal(t, second, target(), "%q", none)
	}
	alias := filepath.Join(logins, "alias")
	require.NoError(t, os.Symlink(link, alias))
	update(alias)
	assert.Equal(t, second, target(), "an alias of the link is not used")
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, names, 1, "nothing else is left")
}

// TestIsLive_RequiresOwnSocket: keys must not be sent to another user's agent.
func TestIsLive_RequiresOwnSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := listen(t, path)
	assert.True(t, sshagent.IsLive(path))
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(path, 12345, -1))
		assert.False(t, sshagent.IsLive(path))
	}
	require.NoError(t, l.Close())
	assert.False(t, sshagent.IsLive(path))
}

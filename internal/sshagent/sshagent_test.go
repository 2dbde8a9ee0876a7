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
	led := func() string {
		to, err := sshagent.Target(dir)
		require.NoError(t, err)
		return to
	}
	follow := func(socket string) { t.Helper(); require.NoError(t, sshagent.UpdateLink(dir, socket)) }

	follow(first)
	assert.Empty(t, led(), "nobody listens there")
	one := listen(t, first)
	follow(first)
	assert.Equal(t, first, led())
	follow(link)
	assert.Equal(t, first, led(), "never to itself")

	listen(t, second)
	follow(second)
	assert.Equal(t, second, led())
	require.NoError(t, one.Close())
	follow(first)
	assert.Equal(t, second, led(), "the first login is over")

	require.NoError(t, os.WriteFile(filepath.Join(logins, "file"), nil, 0o600))
	for _, none := range []string{"", "relative", filepath.Join(logins, "file"), logins, "/nonexistent"} {
		follow(none)
		assert.Equal(t, second, led(), "%q", none)
	}
	alias := filepath.Join(logins, "alias")
	require.NoError(t, os.Symlink(link, alias))
	follow(alias)
	assert.Equal(t, second, led(), "a name for the link is the link")
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, names, 1, "nothing else is left")
}

// TestIsLive_RequiresOwnSocket: somebody else's agent is nobody to hand keys to.
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

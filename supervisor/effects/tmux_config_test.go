package effects

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/supervisor"
)

// TestTmuxConfigs_AreThoseThatTmuxWouldRead checks TmuxConfig=user, with files in none, one, two
// and all three of the places where tmux looks for them.
func TestTmuxConfigs_AreThoseThatTmuxWouldRead(t *testing.T) {
	home, xdg := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", xdg)
	user := supervisor.Plan{TmuxConfig: "user"}
	got, err := tmuxConfigs(user)
	require.NoError(t, err)
	assert.Empty(t, got)
	var all []string
	for _, file := range []string{home + "/.tmux.conf", xdg + "/tmux/tmux.conf", home + "/.config/tmux/tmux.conf"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		all = append(all, file)
		got, err = tmuxConfigs(user)
		require.NoError(t, err)
		assert.Equal(t, all, got)
	}
	t.Setenv("XDG_CONFIG_HOME", home+"/.config")
	got, err = tmuxConfigs(user)
	require.NoError(t, err)
	assert.Equal(t, []string{all[0], all[2]}, got, "each file once")

	got, err = tmuxConfigs(supervisor.Plan{TmuxConfig: all[1]})
	require.NoError(t, err)
	assert.Equal(t, all[1:2], got)
	_, err = tmuxConfigs(supervisor.Plan{TmuxConfig: "/nowhere/tmux.conf"})
	require.EqualError(t, err, `cannot read tmux's configuration "/nowhere/tmux.conf": no such file or directory`)
	got, err = tmuxConfigs(supervisor.Plan{})
	require.NoError(t, err)
	assert.Empty(t, got)
}

package effects

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/testbed"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/tmux"
)

// TestStartServer_FailsOnceTmuxExits checks that the wait for the socket ends when tmux has exited.
func TestStartServer_FailsOnceTmuxExits(t *testing.T) {
	program, err := tmux.Prepare(testbed.Dir(t), os.Environ(), "")
	require.NoError(t, err)
	program.Program = "/bin/false"
	x := &Executor{tmux: program}
	s, err := x.startServer(supervisor.Plan{ID: "shop", RuntimeDir: testbed.Dir(t)}, -1)
	require.NoError(t, err)
	defer s.child.Close()
	s.child.Execute()
	require.ErrorContains(t, waitForSocket(t.Context(), s), "tmux exited at once")
	s.kill()
}

// TestAnticipateStart_MovesNothing checks that this process stays in its control group, which it is
// permitted to write to.
func TestAnticipateStart_MovesNothing(t *testing.T) {
	root, err := proc.CgroupRoot()
	require.NoError(t, err)
	x := &Executor{cgroups: controlGroups{root}}
	before, err := proc.Cgroup(os.Getpid())
	require.NoError(t, err)
	err = x.cgroups.write(before, "cgroup.procs", strconv.Itoa(os.Getpid()))
	require.NoError(t, err, "the user's own control group")
	x.anticipateStart()
	testbed.Poll(t, "the move is done", func() bool { return !x.anticipating.Load() })
	after, err := proc.Cgroup(os.Getpid())
	require.NoError(t, err)
	assert.Equal(t, before, after)
}

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

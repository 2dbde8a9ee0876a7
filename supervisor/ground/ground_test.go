package ground

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/testbed"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
	"github.com/corrald/corral/tmux"
	"github.com/corrald/corral/units"
)

func TestMain(m *testing.M) { testbed.Main(m) }

// TestARunWithoutAControlGroupIsNotTheWholeHierarchy: a start that has to wait has no scope yet. In a container the root of the hierarchy, too, can be
// killed and frozen by its files.
func TestARunWithoutAControlGroupIsNotTheWholeHierarchy(t *testing.T) {
	u, err := units.Connect(t.Context(), os.Getenv("DBUS_SESSION_BUS_ADDRESS"), os.Getenv("XDG_RUNTIME_DIR"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = u.Close() })
	files := map[string]string{
		"cgroup.kill": "", "cgroup.freeze": "1", "cgroup.events": "populated 1\nfrozen 1\n", "memory.current": "1000000000\n", "cpu.stat": "usage_usec 5\n",
	}
	g := &Ground{Units: u, cgroups: t.TempDir()}
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(g.cgroups, name), []byte(text), 0o600))
	}
	run := supervisor.Target{ID: "shop", Unit: "app-corral-command-shop.scope"}
	require.NoError(t, g.Kill(t.Context(), run))
	require.NoError(t, g.Thaw(t.Context(), run))
	assert.False(t, g.Populated(""))
	assert.False(t, g.Occupied(""))
	assert.False(t, g.Frozen(""))
	assert.Empty(t, g.FreezerFile(""))
	assert.Empty(t, g.Usage(""))
	require.ErrorContains(t, g.Rejoin(t.Context(), run, supervisor.Plan{ID: "shop"}, nil), "cannot join the existing scope")
	for name, text := range files {
		now, err := os.ReadFile(filepath.Join(g.cgroups, name))
		require.NoError(t, err)
		assert.Equal(t, text, string(now), name)
	}
}

// TestListening_EndsWithTheServer: a tmux that cannot run is an error at once.
func TestListening_EndsWithTheServer(t *testing.T) {
	x, err := tmux.Prepare(testbed.Dir(t), os.Environ(), "")
	require.NoError(t, err)
	x.Program = "/bin/false"
	g := &Ground{Tmux: x}
	s, err := g.startServer(supervisor.Plan{ID: "shop", RuntimeDir: testbed.Dir(t)}, -1)
	require.NoError(t, err)
	defer s.child.Close()
	s.child.Execute()
	require.ErrorContains(t, listening(t.Context(), s), "tmux exited at once")
	s.kill()
}

// TestExpectStart_MovesNothing: this process stays where it is, which it may write.
func TestExpectStart_MovesNothing(t *testing.T) {
	root, err := proc.CgroupRoot()
	require.NoError(t, err)
	g := &Ground{cgroups: root}
	before, err := proc.Cgroup(os.Getpid())
	require.NoError(t, err)
	require.NoError(t, g.write(before, "cgroup.procs", strconv.Itoa(os.Getpid())), "the user's own control group")
	g.ExpectStart()
	testbed.Poll(t, "it is done", func() bool { return !g.expecting.Load() })
	after, err := proc.Cgroup(os.Getpid())
	require.NoError(t, err)
	assert.Equal(t, before, after)
}

// TestTheLastOfSeveralValuesOfALimitCounts, however each is written: systemd keeps a share of what the machine has and a number under different names.
func TestTheLastOfSeveralValuesOfALimitCounts(t *testing.T) {
	plan := supervisor.Plan{
		Unit: "app-corral-claude-shop.scope", Scope: []string{"MemoryMax=50%", "TasksMax=10%", "OOMPolicy=stop", "MemoryMax=1G", "TasksMax=99"},
		Properties: []session.Property{{Name: "TasksMaxScale", Signature: "u", Value: "7"}, {Name: "OOMPolicy", Signature: "s", Value: `"kill"`}},
	}
	scope, err := new(Ground).scope(plan)
	require.NoError(t, err)
	given := map[string]any{}
	for _, p := range append(scope.Properties, scope.Optional...) {
		assert.NotContains(t, given, p.Name)
		given[p.Name] = p.Value.Value()
	}
	assert.Equal(t, uint64(1<<30), given["MemoryMax"])
	assert.NotContains(t, given, "MemoryMaxScale")
	assert.Equal(t, uint32(7), given["TasksMaxScale"])
	assert.NotContains(t, given, "TasksMax")
	assert.Equal(t, "kill", given["OOMPolicy"])
}

// FuzzCPUUsage holds that a time is one that is there, and not one that has overflowed.
func FuzzCPUUsage(f *testing.F) {
	for _, seed := range []string{"usage_usec 1500\nuser_usec 1000\n", "usage_usec 18446744073709551615\n", "usage_usec -1\n", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stat string) {
		if n, ok := cpuUsage(stat); ok {
			require.Zero(t, n%1000)
			require.Contains(t, stat, strconv.FormatUint(n/1000, 10))
		}
	})
}

// FuzzLastID holds that what is taken for a conversation's id can be put into a command.
func FuzzLastID(f *testing.F) {
	for _, seed := range []string{"c-17\n", "warning: x\r\n c-17 \r\n\n", "--flag\n", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, printed string) {
		if id, ok := lastID(printed); ok {
			require.True(t, config.ValidConversationID(id))
			require.Contains(t, printed, id)
		}
	})
}

// TestATmuxServerThatEndsBeforeItIsWatched is collected: nobody waits for it.
func TestATmuxServerThatEndsBeforeItIsWatched(t *testing.T) {
	cmd := exec.Command("sleep", "infinity")
	require.NoError(t, cmd.Start())
	st, err := proc.Stat(cmd.Process.Pid)
	require.NoError(t, err)
	server := session.Process(st.Identity)
	g := &Ground{}
	pidfd, alive := g.Alive(server)
	require.True(t, alive)
	defer func() { _ = unix.Close(pidfd) }()
	other := server
	other.Start++
	require.NoError(t, cmd.Process.Kill())
	_, err = unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(testbed.Timeout.Milliseconds()))
	require.NoError(t, err)
	_, alive = g.Alive(other)
	assert.False(t, alive)
	_, err = proc.Stat(server.PID)
	require.NoError(t, err, "another process's status is left to who waits for it")
	_, alive = g.Alive(server)
	assert.False(t, alive)
	_, err = proc.Stat(server.PID)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// TestSignal_LeavesAReusedNumberAlone: the number of a leftover process was listed, the process
// ended, and another one outside of the scope got its number before the signal is sent.
func TestSignal_LeavesAReusedNumberAlone(t *testing.T) {
	stranger := exec.CommandContext(t.Context(), "sleep", "infinity")
	require.NoError(t, stranger.Start())
	pid := stranger.Process.Pid
	own, err := proc.Cgroup(pid)
	require.NoError(t, err)
	require.NoError(t, signalMember(pid, filepath.Join(own, "app-corral-command-shop.scope"), unix.SIGTERM))
	require.NoError(t, signalMember(pid, strings.TrimSuffix(own, own[len(own)-1:]), unix.SIGTERM), "the beginning of a name is no group above")
	require.NoError(t, signalMember(pid, own, unix.SIGUSR1), "a member gets it, and is ended by it: the first one of all")
	err = stranger.Wait()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, unix.SIGUSR1, exit.Sys().(syscall.WaitStatus).Signal())
	require.NoError(t, signalMember(pid, own, unix.SIGTERM), "one that is gone is no error")
}

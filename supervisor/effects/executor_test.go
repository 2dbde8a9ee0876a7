package effects

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
	x := &Executor{Units: u, cgroups: t.TempDir()}
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(x.cgroups, name), []byte(text), 0o600))
	}
	run := supervisor.Target{ID: "shop", Unit: "app-corral-command-shop.scope"}
	require.NoError(t, x.kill(t.Context(), run))
	require.NoError(t, x.thaw(t.Context(), run))
	assert.False(t, x.StaysPopulated(""))
	assert.False(t, x.IsPopulated(""))
	assert.False(t, x.IsFrozen(""))
	assert.Empty(t, x.EventsFile(""))
	assert.Empty(t, x.Usage(""))
	err = x.rejoin(t.Context(), run, supervisor.Plan{ID: "shop"}, nil)
	require.ErrorContains(t, err, "cannot join the existing scope")
	for name, text := range files {
		now, err := os.ReadFile(filepath.Join(x.cgroups, name))
		require.NoError(t, err)
		assert.Equal(t, text, string(now), name)
	}
}

// TestStartServer_FailsOnceTmuxExits checks that the wait for the socket ends when tmux has exited.
func TestStartServer_FailsOnceTmuxExits(t *testing.T) {
	program, err := tmux.Prepare(testbed.Dir(t), os.Environ(), "")
	require.NoError(t, err)
	program.Program = "/bin/false"
	x := &Executor{Tmux: program}
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
	x := &Executor{cgroups: root}
	before, err := proc.Cgroup(os.Getpid())
	require.NoError(t, err)
	require.NoError(t, x.write(before, "cgroup.procs", strconv.Itoa(os.Getpid())), "the user's own control group")
	x.anticipateStart()
	testbed.Poll(t, "the move is done", func() bool { return !x.anticipating.Load() })
	after, err := proc.Cgroup(os.Getpid())
	require.NoError(t, err)
	assert.Equal(t, before, after)
}

// TestScope_UsesTheLastValueOfALimit checks limits in both forms: a percentage, as in
// MemoryMax=50%, sets another property of systemd (MemoryMaxScale) than a number does.
func TestScope_UsesTheLastValueOfALimit(t *testing.T) {
	plan := supervisor.Plan{
		Unit:          "app-corral-claude-shop.scope",
		ScopeSettings: []string{"MemoryMax=50%", "TasksMax=10%", "OOMPolicy=stop", "MemoryMax=1G", "TasksMax=99"},
		Properties: []session.Property{
			{Name: "TasksMaxScale", Signature: "u", Value: "7"}, {Name: "OOMPolicy", Signature: "s", Value: `"kill"`},
		},
	}
	scope, err := new(Executor).scope(plan)
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

// FuzzCPUUsage checks that a time is returned only if the text contains it, and that it has not
// overflowed.
func FuzzCPUUsage(f *testing.F) {
	for _, seed := range []string{
		"usage_usec 1500\nuser_usec 1000\n", "usage_usec 18446744073709551615\n", "usage_usec -1\n", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stat string) {
		if n, ok := cpuUsage(stat); ok {
			require.Zero(t, n%1000)
			require.Contains(t, stat, strconv.FormatUint(n/1000, 10))
		}
	})
}

// FuzzLastID checks that an id is only accepted if it can be used in a command.
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

// TestOpenPidfd_ReapsAnExitedTmuxServer uses a server that exits before the daemon watches it:
// nothing else waits for it.
func TestOpenPidfd_ReapsAnExitedTmuxServer(t *testing.T) {
	cmd := exec.Command("sleep", "infinity")
	require.NoError(t, cmd.Start())
	st, err := proc.Stat(cmd.Process.Pid)
	require.NoError(t, err)
	server := session.Process(st.Identity)
	x := &Executor{}
	pidfd, alive := x.OpenPidfd(server)
	require.True(t, alive)
	defer func() { _ = unix.Close(pidfd) }()
	other := server
	other.Start++
	require.NoError(t, cmd.Process.Kill())
	_, err = unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(testbed.Timeout.Milliseconds()))
	require.NoError(t, err)
	_, alive = x.OpenPidfd(other)
	assert.False(t, alive)
	_, err = proc.Stat(server.PID)
	require.NoError(t, err, "another process is not reaped")
	_, alive = x.OpenPidfd(server)
	assert.False(t, alive)
	_, err = proc.Stat(server.PID)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// TestSignal_SparesAReusedPID simulates that a leftover process was listed and exited, and that
// another process outside of the scope got its PID before the signal is sent.
func TestSignal_SparesAReusedPID(t *testing.T) {
	other := exec.CommandContext(t.Context(), "sleep", "infinity")
	require.NoError(t, other.Start())
	pid := other.Process.Pid
	own, err := proc.Cgroup(pid)
	require.NoError(t, err)
	require.NoError(t, signalMember(pid, filepath.Join(own, "app-corral-command-shop.scope"), unix.SIGTERM))
	prefix := strings.TrimSuffix(own, own[len(own)-1:])
	require.NoError(t, signalMember(pid, prefix, unix.SIGTERM), "a prefix of the name is not the parent group")
	require.NoError(t, signalMember(pid, own, unix.SIGUSR1), "a member gets the signal, the first one of all, and exits")
	err = other.Wait()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, unix.SIGUSR1, exit.Sys().(syscall.WaitStatus).Signal())
	require.NoError(t, signalMember(pid, own, unix.SIGTERM), "it has exited")
}

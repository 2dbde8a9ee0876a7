package effects

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/testbed"
	"github.com/corrald/corral/supervisor/session"
)

// TestOpenPidfd_ReapsAnExitedTmuxServer uses a server that exits before the daemon watches it: no
// other code reaps it.
func TestOpenPidfd_ReapsAnExitedTmuxServer(t *testing.T) {
	cmd := exec.Command("sleep", "infinity")
	require.NoError(t, cmd.Start())
	server := process(t, cmd.Process.Pid)
	pidfd, alive := processes{}.OpenPidfd(server)
	require.True(t, alive)
	defer func() { _ = unix.Close(pidfd) }()
	other := server
	other.Start++
	require.NoError(t, cmd.Process.Kill())
	_, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(testbed.Timeout.Milliseconds()))
	require.NoError(t, err)
	_, alive = processes{}.OpenPidfd(other)
	assert.False(t, alive)
	_, err = proc.Stat(server.PID)
	require.NoError(t, err, "another process is not reaped")
	_, alive = processes{}.OpenPidfd(server)
	assert.False(t, alive)
	_, err = proc.Stat(server.PID)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestIsRunning_DetectsZombiesAndReusedPIDs(t *testing.T) {
	child := exec.Command("cat")
	stdin, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	p := process(t, child.Process.Pid)
	kernel := processes{}
	assert.True(t, kernel.IsRunning(p))
	assert.Equal(t, os.Getpid(), kernel.Parent(p.PID))
	other := session.Process{PID: p.PID, Start: p.Start + 1}
	assert.False(t, kernel.IsRunning(other), "another process with this PID")
	require.NoError(t, child.Process.Signal(unix.SIGSTOP))
	assert.True(t, kernel.IsRunning(p), "a stopped process has not exited")
	require.NoError(t, child.Process.Signal(unix.SIGCONT))
	require.NoError(t, stdin.Close())
	require.NoError(t, unix.Waitid(unix.P_PID, p.PID, nil, unix.WEXITED|unix.WNOWAIT, nil))
	assert.False(t, kernel.IsRunning(p), "a zombie has exited")
	require.NoError(t, child.Wait())
	assert.False(t, kernel.IsRunning(p))
	assert.Zero(t, kernel.Parent(p.PID))
}

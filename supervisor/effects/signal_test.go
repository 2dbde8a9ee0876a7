package effects

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/proc"
)

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
	require.NoError(t, signalMember(pid, own, unix.SIGUSR1), "a member gets it, the first signal of all, and exits")
	err = other.Wait()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, unix.SIGUSR1, exit.Sys().(syscall.WaitStatus).Signal())
	require.NoError(t, signalMember(pid, own, unix.SIGTERM), "it has exited")
}

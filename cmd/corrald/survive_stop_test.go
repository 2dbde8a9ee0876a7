package main

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// TestAStopThatADeadDaemonWasAskedFor: systemd leaves it to the daemon to stop a scope, and waits. The next daemon does it, as politely and for the same reason.
func TestAStopThatADeadDaemonWasAskedFor(t *testing.T) {
	d := startDaemon(t)
	s := d.polite(t, "asked")
	require.NoError(t, d.process.Process.Signal(syscall.SIGSTOP))
	stop := exec.CommandContext(t.Context(), "systemctl", "--user", "stop", s.unit())
	require.NoError(t, stop.Start())
	testbed.Poll(t, "the scope is being stopped", func() bool {
		return testbed.Systemctl(t, "show", "--value", "--property=ActiveState", s.unit()) == "deactivating"
	})
	require.Equal(t, -1, d.kill(syscall.SIGKILL))
	d.launch()
	s.ends(outcome{"stopped", "success", 1, 0, "its scope was stopped", "active"})
	assert.Equal(t, "TERM\n", s.file("asked"))
	require.NoError(t, stop.Wait())
}

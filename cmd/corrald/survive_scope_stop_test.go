package main

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

const byScope = "its scope was stopped"

// TestStop_OfAScopeAndTheDaemonAtOnce stops a scope and the daemon at the same time: systemd leaves
// it to the daemon, although that is being stopped itself, to ask the agent to exit. The daemon
// waits for that agent and for nothing else.
func TestStop_OfAScopeAndTheDaemonAtOnce(t *testing.T) {
	d := startDaemon(t)
	s, runs := d.politeSession(t, "asked"), d.run(t, "runs", "exec sleep 1000")
	pid := runs.properties().number("MainPID")
	require.NoError(t, d.process.Process.Signal(syscall.SIGSTOP))
	stop := exec.CommandContext(t.Context(), "systemctl", "--user", "stop", s.unit())
	require.NoError(t, stop.Start())
	testbed.Poll(t, "the scope is being stopped", func() bool {
		return testbed.Systemctl(t, "show", "--value", "--property=ActiveState", s.unit()) == "deactivating"
	})
	require.NoError(t, d.process.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 0, d.kill(syscall.SIGCONT))
	require.NoError(t, stop.Wait()) // without another daemon
	assert.Equal(t, "TERM\n", s.awaitFile("asked"))
	d.launch()
	s.assertOutcome(outcome{"stopped", "success", 1, 0, byScope, "active"})
	runs.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
	assert.Equal(t, pid, runs.properties().number("MainPID"))
}

// TestShutDown_LeavesScopesToSystemd: what is stopped after the daemon's exit gets its SIGTERM from
// systemd, even if that has not noticed yet that the scope's controller has left the bus.
func TestShutDown_LeavesScopesToSystemd(t *testing.T) {
	d := startDaemon(t)
	s := d.politeSession(t, "asked")
	require.Equal(t, 0, d.kill(syscall.SIGTERM))
	assert.Equal(t, "abandoned", testbed.Systemctl(t, "show", "--value", "--property=SubState", s.unit()))
	testbed.Systemctl(t, "stop", s.unit())
	assert.Equal(t, "TERM\n", s.awaitFile("asked"))
	d.launch()
	s.assertOutcome(outcome{"stopped", "success", 1, 0, byScope, "active"})
}

// TestStop_IgnoredSIGTERMWhileTheDaemonIsAway stops the scope of an agent that ignores SIGTERM:
// systemd kills it together with its shim. The stop is recognised by the scope, which has failed
// with the Result timeout.
func TestStop_IgnoredSIGTERMWhileTheDaemonIsAway(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "ended": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t)
			s := d.create(t, "deaf", spec{
				"Command": []string{"sh", "-c", `trap '' TERM HUP; echo up >"$0"; while :; do sleep 1000; done`,
					d.dir + "/deaf"},
				"UnitProperties": []property{{"TimeoutStopUSec", uint64(300_000)}},
			})
			s.awaitFile("deaf")
			d.kill(signal)
			testbed.Systemctl(t, "stop", s.unit())
			d.launch()
			s.assertOutcome(outcome{"stopped", "success", 0, 0, byScope, "active"})
		})
	}
}

package main

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// TestStop_IsFinishedByTheNextDaemon kills the daemon after systemd has asked it to stop a scope,
// for which systemd waits: the next daemon stops the agent in the same way and reports the same
// reason.
func TestStop_IsFinishedByTheNextDaemon(t *testing.T) {
	d := startDaemon(t)
	s := d.politeSession(t, "asked")
	require.NoError(t, d.process.Process.Signal(syscall.SIGSTOP))
	stop := exec.CommandContext(t.Context(), "systemctl", "--user", "stop", s.unit())
	require.NoError(t, stop.Start())
	testbed.Poll(t, "the scope is being stopped", func() bool {
		return testbed.Systemctl(t, "show", "--value", "--property=ActiveState", s.unit()) == "deactivating"
	})
	require.Equal(t, -1, d.kill(syscall.SIGKILL))
	d.launch()
	s.waitOutcome(outcome{"stopped", "success", 1, 0, "its scope was stopped", "active"})
	assert.Equal(t, "TERM\n", s.awaitFile("asked"))
	require.NoError(t, stop.Wait())
}

// TestStop_OfAScopeWhileTheDaemonIsAway checks that the stop is recognised because the shims got
// SIGTERM as well as the agents; a signal to the agent alone is not a stop. An agent that had
// exited before is reported with its own result.
func TestStop_OfAScopeWhileTheDaemonIsAway(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "ended": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t)
			agent := func(id, script string) *testSession {
				return d.create(t, id, spec{"Command": []string{"bash", "-c", script, d.dir + "/" + id}})
			}
			const waits = `echo up >"$0"; while :; do sleep 1000 & wait; done`
			dies, leaves := agent("dies", `echo up >"$0"; exec sleep 1000`), agent("leaves", `trap 'exit 143' TERM; `+waits)
			completes := agent("completes", `trap 'exit 0' TERM; `+waits)
			signalled := agent("signalled", `echo up >"$0"; exec sleep 1000`)
			before := agent("before", "exit 3")
			before.waitState("failed")
			for _, s := range []*testSession{dies, leaves, completes, signalled} {
				s.awaitFile(s.id)
			}
			process := signalled.process("sleep")
			d.kill(signal)
			testbed.Systemctl(t, "stop", dies.unit(), leaves.unit(), completes.unit(), before.unit())
			kill(t, process, syscall.SIGTERM)
			testbed.WaitFile(t, d.stateDir("signalled")+"/exit_status", nil)
			d.launch()
			const reason = "its scope was stopped"
			dies.assertOutcome(outcome{"stopped", "success", 2, int(syscall.SIGTERM), reason, "active"})
			leaves.assertOutcome(outcome{"stopped", "success", 1, 143, reason, "active"})
			completes.assertOutcome(outcome{"stopped", "success", 1, 0, reason, "active"})
			signalled.assertOutcome(outcome{"failed", "signal", 2, int(syscall.SIGTERM),
				"command was killed by SIGTERM", "error"})
			before.assertOutcome(outcome{"failed", "exit-code", 1, 3, "command exited with code 3", "error"})
		})
	}
}

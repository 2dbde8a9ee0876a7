package main

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// TestStop_IsFinishedByTheNextDaemon: systemd leaves it to the daemon to stop a scope, and waits.
// The next daemon does it, as politely and for the same reason.
func TestStop_IsFinishedByTheNextDaemon(t *testing.T) {
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

// TestStop_OfAScopeWhileTheDaemonIsAway: the agents' shims were told to end with them, which is
// more than a signal to the agent; and what had ended before has ended by itself.
func TestStop_OfAScopeWhileTheDaemonIsAway(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "ended": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t)
			agent := func(id, script string) *subject {
				return d.create(t, id, spec{"Command": []string{"bash", "-c", script, d.dir + "/" + id}})
			}
			const waits = `echo up >"$0"; while :; do sleep 1000 & wait; done`
			dies, leaves := agent("dies", `echo up >"$0"; exec sleep 1000`), agent("leaves", `trap 'exit 143' TERM; `+waits)
			completes, signalled := agent("completes", `trap 'exit 0' TERM; `+waits), agent("signalled", `echo up >"$0"; exec sleep 1000`)
			before := agent("before", "exit 3")
			before.become("failed")
			for _, s := range []*subject{dies, leaves, completes, signalled} {
				s.file(s.id)
			}
			process := signalled.one("sleep")
			d.kill(signal)
			testbed.Systemctl(t, "stop", dies.unit(), leaves.unit(), completes.unit(), before.unit())
			kill(t, process, syscall.SIGTERM)
			testbed.WaitFile(t, d.stateDir("signalled")+"/exit_status", nil)
			d.launch()
			const reason = "its scope was stopped"
			dies.is(outcome{"stopped", "success", 2, int(syscall.SIGTERM), reason, "active"})
			leaves.is(outcome{"stopped", "success", 1, 143, reason, "active"})
			completes.is(outcome{"stopped", "success", 1, 0, reason, "active"})
			signalled.is(outcome{"failed", "signal", 2, int(syscall.SIGTERM), "command was killed by SIGTERM", "error"})
			before.is(outcome{"failed", "exit-code", 1, 3, "command exited with code 3", "error"})
		})
	}
}

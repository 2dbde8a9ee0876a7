package main

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// TestRuntimeMaxSec_ExpiresWhileTheDaemonIsAway checks that the time-out is reported, also for an
// agent that then exits with 0. An agent that had exited with 0 before is reported as completed,
// although the scope around it timed out.
func TestRuntimeMaxSec_ExpiresWhileTheDaemonIsAway(t *testing.T) {
	d := startDaemon(t)
	properties := []property{{"RuntimeMaxUSec", uint64(2_000_000)}}
	agent := func(id, script string) *testSession {
		return d.create(t, id, spec{"Command": []string{"bash", "-c", script, d.dir + "/" + id},
			"UnitProperties": properties})
	}
	const waits = `trap 'exit 0' TERM; echo up >"$0"; while :; do sleep 1000 & wait; done`
	leaves, killed := agent("leaves", waits), agent("killed", `echo up >"$0"; exec sleep 1000`)
	before := agent("before", "exit 0")
	leaves.awaitFile("leaves")
	killed.awaitFile("killed")
	before.waitState("completed")

	require.Equal(t, -1, d.kill(syscall.SIGKILL))
	for _, s := range []*testSession{leaves, killed, before} {
		testbed.Poll(t, "the end of "+s.id, func() bool {
			return testbed.Systemctl(t, "show", "--value", "--property=ActiveState,Result", s.unit()) == "timeout\nfailed"
		})
	}
	d.launch()
	const reason = "it ran for as long as RuntimeMaxSec allows"
	leaves.assertOutcome(outcome{"failed", "timeout", 1, 0, reason, "error"})
	killed.assertOutcome(outcome{"failed", "timeout", 2, int(syscall.SIGTERM), reason, "error"})
	before.assertOutcome(outcome{"completed", "success", 1, 0, "", "active"})
}

package main

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// TestRuntimeMaxSec_ExpiresWhileTheDaemonIsAway: RuntimeMaxSec is told as what it was, also of an
// agent that takes its leave with 0; one that had ended with 0 before has not run out of time,
// though the scope around it has.
func TestRuntimeMaxSec_ExpiresWhileTheDaemonIsAway(t *testing.T) {
	d := startDaemon(t)
	properties := []property{{"RuntimeMaxUSec", uint64(2_000_000)}}
	agent := func(id, script string) *subject {
		return d.create(t, id, spec{"Command": []string{"bash", "-c", script, d.dir + "/" + id}, "UnitProperties": properties})
	}
	const waits = `trap 'exit 0' TERM; echo up >"$0"; while :; do sleep 1000 & wait; done`
	leaves, killed := agent("leaves", waits), agent("killed", `echo up >"$0"; exec sleep 1000`)
	before := agent("before", "exit 0")
	leaves.file("leaves")
	killed.file("killed")
	before.become("completed")

	require.Equal(t, -1, d.kill(syscall.SIGKILL))
	for _, s := range []*subject{leaves, killed, before} {
		testbed.Poll(t, "the end of "+s.id, func() bool {
			return testbed.Systemctl(t, "show", "--value", "--property=ActiveState,Result", s.unit()) == "timeout\nfailed"
		})
	}
	d.launch()
	const reason = "it ran for as long as RuntimeMaxSec allows"
	leaves.is(outcome{"failed", "timeout", 1, 0, reason, "error"})
	killed.is(outcome{"failed", "timeout", 2, int(syscall.SIGTERM), reason, "error"})
	before.is(outcome{"completed", "success", 1, 0, "", "active"})
}

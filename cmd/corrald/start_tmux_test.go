package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// mortalTmux is a tmux whose server is killed after it has opened a session and started the agent
// there, but before its client gets a reply. It is killed only once.
const mortalTmux = `#!/bin/sh
case " $* " in *" new-session "*)
	if mkdir %[2]s/killed 2>/dev/null; then
		%[1]s "$@"
		until [ -s %[2]s/shop.agents ]; do sleep 0.01; done
		kill -KILL "$(%[1]s -S %[3]s/tmux display-message -p '#{pid}')"
		echo server exited unexpectedly >&2
		exit 1
	fi
esac
exec %[1]s "$@"
`

// TestStart_TmuxKilledLeavesTheAgentRunning checks that an agent that was started keeps running
// under its shim, and gets another terminal.
func TestStart_TmuxKilledLeavesTheAgentRunning(t *testing.T) {
	d := startDaemon(t)
	require.Equal(t, 0, d.kill(syscall.SIGTERM))
	tmux, err := exec.LookPath("tmux")
	require.NoError(t, err)
	programs := testbed.Dir(t)
	require.NoError(t, os.WriteFile(filepath.Join(programs, "tmux"),
		fmt.Appendf(nil, mortalTmux, tmux, d.dir, d.runtimeDir("shop")), 0o755))
	d.env = append(d.env, "PATH="+programs+":"+os.Getenv("PATH"))
	d.launch()
	s := d.create(t, "shop", d.witness("shop"))
	s.waitState("stale")
	agents := d.waitAgents(t, "shop", 1)
	assert.Equal(t, []int{s.properties().number("MainPID")}, agents)
	s.must("Resume")
	s.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
	assert.Equal(t, agents, d.agentPIDs(t, "shop"), "the agent is the same process")
	s.must("Stop", uint64(0))
	s.assertOutcome(outcome{"stopped", "success", 1, 7, "", "active"})
}

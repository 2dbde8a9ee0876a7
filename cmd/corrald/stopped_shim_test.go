package main

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// stopHelpers sends SIGSTOP to the session's tmux server and then to its shim: a running tmux
// server would continue a stopped shim.
func (s *testSession) stopHelpers() {
	s.t.Helper()
	for _, name := range []string{tmuxName, shimName} {
		kill(s.t, s.process(name), syscall.SIGSTOP)
	}
}

// TestStop_ContinuesAStoppedShim checks that a shim and a tmux server that were stopped (SIGSTOP)
// are continued before anything is killed, so that the agent's exit is recorded, whoever ends the
// agent.
func TestStop_ContinuesAStoppedShim(t *testing.T) {
	d := startDaemon(t)
	deaf := spec{"Command": []string{"sh", "-c", `trap '' TERM HUP; echo $$ >"$0"; while :; do sleep 1000; done`,
		d.dir + "/deaf.agents"}}
	for _, c := range []struct {
		id   string
		spec spec
		end  func(s *testSession, agent int)
		want outcome
	}{
		{"stopped", nil, func(s *testSession, _ int) { s.must("Stop", uint64(0)) },
			outcome{"stopped", "success", 1, 7, "", "active"}},
		{"suspended", nil, func(s *testSession, _ int) { s.must("Suspend") },
			outcome{"suspended", "success", 1, 7, "", "suspended"}},
		{"deaf", deaf, func(s *testSession, _ int) { s.must("Stop", uint64(600_000)) },
			outcome{"stopped", "success", 2, 9, "", "active"}},
		{"by-systemctl", nil, func(s *testSession, _ int) { runCommand(s.t, "systemctl", "--user", "stop", s.unit()) },
			outcome{"stopped", "success", 1, 7, "its scope was stopped", "active"}},
		{"killed", nil, func(s *testSession, _ int) { s.must("Kill", "agent", int32(syscall.SIGKILL)) },
			outcome{"failed", "signal", 2, 9, "command was killed by SIGKILL", "error"}},
		{"all-signalled", nil, func(s *testSession, _ int) { s.must("Kill", "all", int32(syscall.SIGTERM)) },
			outcome{"failed", "exit-code", 1, 7, "command exited with code 7", "error"}},
		{"by-itself", nil, func(s *testSession, agent int) { kill(s.t, agent, syscall.SIGUSR1) },
			outcome{"failed", "exit-code", 1, 9, "command exited with code 9", "error"}},
		{"by-itself-then-stopped", nil, func(s *testSession, agent int) {
			kill(s.t, agent, syscall.SIGUSR1)
			s.must("Stop", uint64(0))
		}, outcome{"stopped", "success", 1, 9, "", "active"}}, // nobody saw when it exited
	} {
		t.Run(c.id, func(t *testing.T) {
			t.Parallel()
			if c.spec == nil {
				c.spec = d.witness(c.id)
			}
			s := d.create(t, c.id, c.spec)
			agent := d.waitAgents(t, c.id, 1)[0]
			s.stopHelpers()
			c.end(s, agent)
			s.waitOutcome(c.want)
		})
	}
}

// TestAdoption_ContinuesAStoppedShim checks a stopped shim whose agent has exited while no daemon
// was running: the agent is not reported as running.
func TestAdoption_ContinuesAStoppedShim(t *testing.T) {
	d := startDaemon(t)
	s := d.create(t, "shop", d.witness("shop"))
	agent := d.waitAgents(t, "shop", 1)[0]
	s.stopHelpers()
	require.Equal(t, -1, d.kill(syscall.SIGKILL))
	kill(t, agent, syscall.SIGUSR1)
	d.launch()
	s.waitOutcome(outcome{"failed", "exit-code", 1, 9, "command exited with code 9", "error"})
}

// TestScopeEnd_RemovesTheUnwrittenRecord checks that the file that a shim prepared for its exit
// record is removed, in both directories, if the shim was killed.
func TestScopeEnd_RemovesTheUnwrittenRecord(t *testing.T) {
	d := startDaemon(t)
	lost := outcome{"failed", "session-lost", 0, 0, "tmux session no longer exists", "error"}
	for _, away := range []bool{false, true} {
		id := fmt.Sprintf("away-%t", away)
		s := d.run(t, id, "exec sleep 1000")
		files := []string{d.stateDir(id) + "/.exit_status.new", d.runtimeDir(id) + "/.exit_status.new"}
		for _, file := range files {
			require.FileExists(t, file)
		}
		if away {
			require.Equal(t, -1, d.kill(syscall.SIGKILL))
		}
		testbed.Systemctl(t, "kill", "--signal=KILL", s.unit())
		if away {
			d.launch()
		}
		s.waitOutcome(lost)
		for _, file := range files {
			assert.NoFileExists(t, file)
		}
	}
}

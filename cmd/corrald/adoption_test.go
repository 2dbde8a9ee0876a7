package main

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// TestAdoption_WatchesSessions checks that an adopted session is watched like one that the daemon
// has started itself: whatever happens to it is reported without a request from a client.
func TestAdoption_WatchesSessions(t *testing.T) {
	d := startDaemon(t)
	base := testbed.Dir(t)
	rows := []struct {
		name    string
		command string // of the agent, whose $0 is its workspace
		happens func(t *testing.T, s *testSession)
		want    outcome
	}{
		{"exits", `trap 'exit 3' USR1; > up; while :; do sleep 1000 & wait; done`,
			func(t *testing.T, s *testSession) { kill(t, s.properties().number("MainPID"), syscall.SIGUSR1) },
			outcome{"failed", "exit-code", 1, 3, "command exited with code 3", "error"}},
		{"killed", "> up; exec sleep 1000",
			func(t *testing.T, s *testSession) { kill(t, s.properties().number("MainPID"), syscall.SIGKILL) },
			outcome{"failed", "signal", 2, 9, "command was killed by SIGKILL", "error"}},
		{"no-tmux", "> up; exec sleep 1000",
			func(t *testing.T, s *testSession) { kill(t, s.process(tmuxName), syscall.SIGKILL) },
			outcome{"stale", "session-lost", 0, 0, "scope running, session dead", "active"}},
		{"no-shim", "> up; exec sleep 1000",
			func(t *testing.T, s *testSession) { kill(t, s.process(shimName), syscall.SIGKILL) },
			outcome{"failed", "agent-lost", 0, 0, "shell process exited", "error"}},
		{"no-scope", "> up; exec sleep 1000",
			func(t *testing.T, s *testSession) { testbed.Systemctl(t, "kill", "--signal=KILL", s.unit()) },
			outcome{"failed", "session-lost", 0, 0, "tmux session no longer exists", "error"}},
		{"no-workspace", "> up; exec sleep 1000",
			func(t *testing.T, _ *testSession) { require.NoError(t, os.RemoveAll(base+"/no-workspace")) },
			outcome{"orphaned", "", 0, 0, fmt.Sprintf("workspace %q is gone", base+"/no-workspace"), "error"}},
		{"closed", "> up; exec sleep 1000",
			func(_ *testing.T, s *testSession) { s.tmux("kill-pane") },
			outcome{"stopped", "success", 2, 1, "its terminal was closed", "active"}},
		{"stopped", `trap 'sleep 0.3; exit 0' TERM; > up; while :; do sleep 1000 & wait; done`,
			func(t *testing.T, s *testSession) { testbed.Systemctl(t, "stop", s.unit()) },
			outcome{"stopped", "success", 1, 0, "its scope was stopped", "active"}},
		{"stopped-at-once", `trap 'exit 0' TERM; > up; while :; do sleep 1000 & wait; done`,
			func(t *testing.T, s *testSession) { testbed.Systemctl(t, "stop", s.unit()) },
			outcome{"stopped", "success", 1, 0, "its scope was stopped", "active"}},
		{"killed-by-stop", "> up; exec sleep 1000",
			func(t *testing.T, s *testSession) { testbed.Systemctl(t, "stop", s.unit()) },
			outcome{"stopped", "success", 2, 15, "its scope was stopped", "active"}},
		{"signalled", "> up; exec sleep 1000",
			func(t *testing.T, s *testSession) { testbed.Systemctl(t, "kill", "--signal=TERM", s.unit()) },
			outcome{"failed", "signal", 2, 15, "command was killed by SIGTERM", "error"}},
	}
	for _, row := range rows {
		require.NoError(t, os.Mkdir(base+"/"+row.name, 0o700))
		d.create(t, row.name, spec{"Command": []string{"bash", "-c", row.command}, "WorkingDirectory": base + "/" + row.name})
		testbed.WaitFile(t, base+"/"+row.name+"/up", nil)
	}
	require.Equal(t, -1, d.kill(syscall.SIGKILL))
	d.launch()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			s := d.session(t, row.name)
			require.Equal(t, "running", s.properties().text("State"))
			mark := d.signals.mark()
			row.happens(t, s)
			s.waitOutcome(row.want)
			signals, _ := d.signals.since(mark)
			for _, signal := range signals {
				if id, state, ok := changedState(signal); ok && id == row.name && state != "stopping" {
					assert.Equal(t, row.want.State, state, "no other outcome was published in between")
				}
			}
			if row.want.State == "stale" || row.want.State == "orphaned" {
				s.must("Stop", uint64(0))
				assert.Equal(t, "stopped", s.properties().text("State"))
			}
		})
	}
}

// TestRuntimeMaxSec_ExpiresAfterAdoption checks that the expiry of RuntimeMaxSec is reported for an
// adopted session, even though its agent then exits with 0 at once.
func TestRuntimeMaxSec_ExpiresAfterAdoption(t *testing.T) {
	d := startDaemon(t)
	s := d.create(t, "shop", spec{
		"Command":        []string{"bash", "-c", `trap 'exit 0' TERM; while :; do sleep 1000 & wait; done`},
		"UnitProperties": []property{{"RuntimeMaxUSec", uint64(4e6)}},
	})
	require.Equal(t, -1, d.kill(syscall.SIGKILL))
	d.launch()
	s.waitOutcome(outcome{"failed", "timeout", 1, 0, "it ran for as long as RuntimeMaxSec allows", "error"})
}

// TestAdoption_RecreatesRuntimeDirectory removes the runtime directory, or only the shim's socket,
// while no daemon runs. The processes whose sockets were removed have to create them again.
func TestAdoption_RecreatesRuntimeDirectory(t *testing.T) {
	d := startDaemon(t)
	all, socket := d.create(t, "all", d.witness("all")), d.create(t, "socket", d.witness("socket"))
	var pids []int
	for _, s := range []*testSession{all, socket} {
		pids = append(pids, s.waitState("running").number("MainPID"))
	}
	d.kill(syscall.SIGKILL)
	require.NoError(t, os.RemoveAll(d.runtimeDir("all")))
	require.NoError(t, os.Remove(d.runtimeDir("socket")+"/shim.sock"))
	d.launch()
	for i, s := range []*testSession{all, socket} {
		s.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
		assert.Equal(t, pids[i], s.properties().number("MainPID"))
		testbed.Poll(t, "the session accepts input again", func() bool { return s.do("SendInput", "x", uint64(0)) == nil })
		testbed.Poll(t, "the session's screen can be read", func() bool {
			var text string
			return s.call(dbusapi.SessionPath(s.id), dbusapi.SessionInterface+".Capture",
				[]any{uint32(0), uint64(0)}, &text) == nil
		})
		s.must("Stop", uint64(0))
		s.assertOutcome(outcome{"stopped", "success", 1, 7, "", "active"})
	}
}

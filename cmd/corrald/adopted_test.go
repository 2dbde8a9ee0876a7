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

// TestAdoption_WatchesSessions as what the daemon has started itself: each thing that can happen to
// a session is told, without anybody asking.
func TestAdoption_WatchesSessions(t *testing.T) {
	d := startDaemon(t)
	base := testbed.Dir(t)
	rows := []struct {
		name    string
		command string // of the agent, whose $0 is its workspace
		happens func(t *testing.T, s *subject)
		want    outcome
	}{
		{"exits", `trap 'exit 3' USR1; > up; while :; do sleep 1000 & wait; done`,
			func(t *testing.T, s *subject) { kill(t, s.facts().number("MainPID"), syscall.SIGUSR1) },
			outcome{"failed", "exit-code", 1, 3, "command exited with code 3", "error"}},
		{"killed", "> up; exec sleep 1000",
			func(t *testing.T, s *subject) { kill(t, s.facts().number("MainPID"), syscall.SIGKILL) },
			outcome{"failed", "signal", 2, 9, "command was killed by SIGKILL", "error"}},
		{"no-tmux", "> up; exec sleep 1000",
			func(t *testing.T, s *subject) { kill(t, s.one(tmuxName), syscall.SIGKILL) },
			outcome{"stale", "session-lost", 0, 0, "scope running, session dead", "active"}},
		{"no-shim", "> up; exec sleep 1000",
			func(t *testing.T, s *subject) { kill(t, s.one(shimName), syscall.SIGKILL) },
			outcome{"failed", "agent-lost", 0, 0, "shell process exited", "error"}},
		{"no-scope", "> up; exec sleep 1000",
			func(t *testing.T, s *subject) { testbed.Systemctl(t, "kill", "--signal=KILL", s.unit()) },
			outcome{"failed", "session-lost", 0, 0, "tmux session no longer exists", "error"}},
		{"no-workspace", "> up; exec sleep 1000",
			func(t *testing.T, _ *subject) { require.NoError(t, os.RemoveAll(base+"/no-workspace")) },
			outcome{"orphaned", "", 0, 0, fmt.Sprintf("workspace %q is gone", base+"/no-workspace"), "error"}},
		{"closed", "> up; exec sleep 1000",
			func(_ *testing.T, s *subject) { s.tmux("kill-pane") },
			outcome{"stopped", "success", 2, 1, "its terminal was closed", "active"}},
		{"stopped", `trap 'sleep 0.3; exit 0' TERM; > up; while :; do sleep 1000 & wait; done`,
			func(t *testing.T, s *subject) { testbed.Systemctl(t, "stop", s.unit()) },
			outcome{"stopped", "success", 1, 0, "its scope was stopped", "active"}},
		{"stopped-at-once", `trap 'exit 0' TERM; > up; while :; do sleep 1000 & wait; done`,
			func(t *testing.T, s *subject) { testbed.Systemctl(t, "stop", s.unit()) },
			outcome{"stopped", "success", 1, 0, "its scope was stopped", "active"}},
		{"killed-by-stop", "> up; exec sleep 1000",
			func(t *testing.T, s *subject) { testbed.Systemctl(t, "stop", s.unit()) },
			outcome{"stopped", "success", 2, 15, "its scope was stopped", "active"}},
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
			s := d.subject(t, row.name)
			require.Equal(t, "running", s.facts().text("State"))
			row.happens(t, s)
			s.ends(row.want)
			if row.want.State == "stale" || row.want.State == "orphaned" {
				s.must("Stop", uint64(0))
				assert.Equal(t, "stopped", s.facts().text("State"))
			}
		})
	}
}

// TestRuntimeMaxSec_ExpiresAfterAdoption: an agent that then ends well at once is not one that has
// ended by itself.
func TestRuntimeMaxSec_ExpiresAfterAdoption(t *testing.T) {
	d := startDaemon(t)
	s := d.create(t, "shop", spec{
		"Command":        []string{"bash", "-c", `trap 'exit 0' TERM; while :; do sleep 1000 & wait; done`},
		"UnitProperties": []property{{"RuntimeMaxUSec", uint64(4e6)}},
	})
	require.Equal(t, -1, d.kill(syscall.SIGKILL))
	d.launch()
	s.ends(outcome{"failed", "timeout", 1, 0, "it ran for as long as RuntimeMaxSec allows", "error"})
}

// TestAdoption_RecreatesRuntimeDirectory: somebody has removed it, or only the shim's socket, while
// no daemon was there. Those who have lost their sockets make them anew.
func TestAdoption_RecreatesRuntimeDirectory(t *testing.T) {
	d := startDaemon(t)
	all, socket := d.create(t, "all", d.witness("all")), d.create(t, "socket", d.witness("socket"))
	var pids []int
	for _, s := range []*subject{all, socket} {
		pids = append(pids, s.become("running").number("MainPID"))
	}
	d.kill(syscall.SIGKILL)
	require.NoError(t, os.RemoveAll(d.runtimeDir("all")))
	require.NoError(t, os.Remove(d.runtimeDir("socket")+"/shim.sock"))
	d.launch()
	for i, s := range []*subject{all, socket} {
		s.is(outcome{"running", "", 0, 0, "", "active"})
		assert.Equal(t, pids[i], s.facts().number("MainPID"))
		testbed.Poll(t, "it takes input again", func() bool { return s.do("SendInput", "x", uint64(0)) == nil })
		testbed.Poll(t, "its screen can be read", func() bool {
			var text string
			return s.call(dbusapi.SessionPath(s.id), dbusapi.SessionInterface+".Capture", []any{uint32(0), uint64(0)}, &text) == nil
		})
		s.must("Stop", uint64(0))
		s.is(outcome{"stopped", "success", 1, 7, "", "active"})
	}
}

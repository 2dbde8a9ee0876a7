package main

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/testbed"
)

// moveOut moves every process of the session's scope into another control group, and waits until
// the scope has ended.
func (s *testSession) moveOut() {
	s.t.Helper()
	root, err := proc.CgroupRoot()
	require.NoError(s.t, err)
	scope, err := proc.Cgroup(s.properties().number("MainPID"))
	require.NoError(s.t, err)
	outside := filepath.Join(root, filepath.Dir(filepath.Dir(scope)), "outside-"+s.id)
	require.NoError(s.t, os.Mkdir(outside, 0o755))
	s.t.Cleanup(func() {
		_ = os.WriteFile(outside+"/cgroup.kill", []byte("1"), 0)
		testbed.Poll(s.t, "no process is left outside", func() bool { return os.Remove(outside) == nil })
	})
	testbed.Poll(s.t, "the scope has ended", func() bool {
		pids, _ := proc.Processes(scope) // processes forked in the meantime are moved in the next iteration
		for _, pid := range pids {
			_ = os.WriteFile(outside+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0)
		}
		return testbed.Systemctl(s.t, "show", "--value", "--property=ActiveState", s.unit()) == "inactive"
	})
	s.waitProblems(s.t, 1)
}

// TestOutside_AgentAndShimAreStillSupervised checks that an agent that has left its scope together
// with its shim is running until it exits, also for the next daemon, and that its exit is reported.
func TestOutside_AgentAndShimAreStillSupervised(t *testing.T) {
	d := startDaemon(t)
	agent := func(t *testing.T, id, script string) *testSession {
		s := d.create(t, id,
			spec{"Command": []string{"bash", "-c", script + `; echo up >"$0"; while :; do sleep 1000 & wait; done`,
				d.dir + "/" + id}})
		s.t = t
		s.awaitFile(id)
		return s
	}
	t.Run("exits", func(t *testing.T) {
		s := agent(t, "exits", "trap 'exit 11' USR1")
		s.moveOut()
		s.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
		kill(t, s.properties().number("MainPID"), syscall.SIGUSR1)
		s.waitOutcome(outcome{"failed", "exit-code", 1, 11, "command exited with code 11", "error"})
		d.waitProblems(t, 0)
	})
	t.Run("is adopted, and exits", func(t *testing.T) {
		s := agent(t, "adopted", "trap 'exit 12' USR1")
		s.moveOut()
		pid := s.properties().number("MainPID")
		require.Equal(t, 0, d.kill(syscall.SIGTERM))
		d.launch()
		s.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
		assert.Equal(t, pid, s.properties().number("MainPID"))
		kill(t, pid, syscall.SIGUSR1)
		s.waitOutcome(outcome{"failed", "exit-code", 1, 12, "command exited with code 12", "error"})
	})
	t.Run("is stopped", func(t *testing.T) {
		s := agent(t, "stopped", "trap 'exit 13' TERM")
		s.moveOut()
		s.must("Stop", uint64(0))
		s.assertOutcome(outcome{"stopped", "success", 1, 13, "", "active"})
	})
	t.Run("ignores the stop", func(t *testing.T) {
		s := agent(t, "deaf", "trap '' TERM HUP")
		s.moveOut()
		s.must("Stop", uint64(600_000))
		s.assertOutcome(outcome{"stopped", "success", 2, int(syscall.SIGKILL), "", "active"})
	})
}

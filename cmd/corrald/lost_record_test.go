package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// TestLostRecord_IsRebuilt removes the records of running sessions: the daemon rebuilds them from
// the processes, supervises the agents as before, and reports that properties were lost.
func TestLostRecord_IsRebuilt(t *testing.T) {
	d := startDaemon(t)
	// Of agent command: by its scope's name alone it could be session store of agent command-my, which
	// no other test has in the runtime directory.
	const id = "my-store"
	work := testbed.Dir(t)
	asked := d.witness(id)
	asked["WorkingDirectory"] = work
	s := d.create(t, id, asked)
	stale := d.create(t, "stale", d.witness("stale"))
	pid, other := d.waitAgents(t, id, 1)[0], d.waitAgents(t, "stale", 1)[0]
	before, tmux := s.properties(), stale.process(tmuxName)
	d.kill(syscall.SIGKILL)
	kill(t, tmux, syscall.SIGKILL)
	testbed.WaitExit(t, tmux)
	require.NoError(t, os.RemoveAll(filepath.Dir(d.stateDir(id))))
	d.launch()

	s.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
	after := s.properties()
	for _, property := range []string{
		"MainPID", "Command", "WorkingDirectory", "ExecMainStartTimestamp", "ControlGroup", "SessionAlive", "Agent",
	} {
		assert.Equal(t, before[property], after[property], property)
	}
	stale.assertOutcome(outcome{"stale", "session-lost", 0, 0, "scope running, session dead", "active"})
	assert.Equal(t, other, stale.properties().number("MainPID"))
	problems := d.waitProblems(t, 2)
	assert.Equal(t, []string{id, "stale"}, []string{problems[0].Session, problems[1].Session})
	assert.Contains(t, problems[0].Text, "its record was lost")

	stale.must("Resume")
	stale.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
	stale.must("Stop", uint64(0))
	stale.assertOutcome(outcome{"stopped", "success", 1, 7, "", "active"})
	stale.must("Remove", uint64(0))
	d.waitProblems(t, 1)

	kill(t, pid, syscall.SIGUSR1)
	want := outcome{"failed", "exit-code", 1, 9, "command exited with code 9", "error"}
	s.waitOutcome(want)
	s.must("Start")
	d.waitAgents(t, id, 2)
	s.must("Stop", uint64(0))
	want = outcome{"stopped", "success", 1, 7, "", "active"}
	s.assertOutcome(want)
	d.kill(syscall.SIGKILL)
	d.launch()
	s.assertOutcome(want)
	d.waitProblems(t, 0)
}

// removeDir removes a directory to which a daemon writes: the daemon may create a file in it before
// the removal is complete, which fails then with ENOTEMPTY.
func removeDir(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); !errors.Is(err, syscall.ENOTEMPTY) {
		require.NoError(t, err)
	}
}

// waitRecord waits until the session has a record. Its directory need not exist yet.
func (d *corrald) waitRecord(t *testing.T, id string) {
	t.Helper()
	testbed.Poll(t, "session "+id+" has a record", func() bool {
		_, err := os.Stat(d.stateDir(id) + "/session.json")
		return err == nil
	})
}

// TestStateDirectory_IsRecreatedAfterRemoval checks that the daemon saves live sessions again at
// once, and that their exits are recorded where the next daemon finds them.
func TestStateDirectory_IsRecreatedAfterRemoval(t *testing.T) {
	d := startDaemon(t)
	for _, dir := range []string{d.stateDir("shop"), filepath.Dir(d.stateDir("shop"))} {
		s := d.create(t, "shop", d.witness("shop"))
		pids := d.waitAgents(t, "shop", 1)
		removeDir(t, dir)
		d.waitRecord(t, "shop")
		d.kill(syscall.SIGKILL)
		d.launch()
		s.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
		removeDir(t, dir)
		d.waitRecord(t, "shop")
		kill(t, pids[len(pids)-1], syscall.SIGUSR1)
		want := outcome{"failed", "exit-code", 1, 9, "command exited with code 9", "error"}
		s.waitOutcome(want)
		d.kill(syscall.SIGKILL)
		d.launch()
		s.assertOutcome(want)
		s.must("Remove", uint64(0))
		require.NoError(t, os.Remove(d.dir+"/shop.agents"))
	}
}

// TestRestoredRecord_KeepsTheRunningAgent replaces a record by an older copy, as a backup would:
// the agent that runs remains the session's agent.
func TestRestoredRecord_KeepsTheRunningAgent(t *testing.T) {
	for name, ended := range map[string]bool{"made while it was suspended": true, "made while it ran before": false} {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t)
			s := d.create(t, "shop", d.witness("shop"))
			if ended {
				s.must("Suspend")
			}
			record := filepath.Join(d.stateDir("shop"), "session.json")
			testbed.Poll(t, "the session is saved", func() bool {
				content, err := os.ReadFile(record)
				return err == nil && strings.Contains(string(content), s.properties().text("State"))
			})
			backup, err := os.ReadFile(record)
			require.NoError(t, err)
			if !ended {
				s.must("Suspend")
			}
			s.must("Resume")
			pid := s.waitState("running").number("MainPID")
			d.kill(syscall.SIGKILL)
			require.NoError(t, os.RemoveAll(d.stateDir("shop")))
			require.NoError(t, os.Mkdir(d.stateDir("shop"), 0o700))
			require.NoError(t, os.WriteFile(record, backup, 0o600))
			d.launch()
			s.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
			assert.Equal(t, pid, s.properties().number("MainPID"))
			s.must("Stop", uint64(0))
			s.assertOutcome(outcome{"stopped", "success", 1, 7, "", "active"})
		})
	}
}

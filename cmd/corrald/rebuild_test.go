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

// TestLostRecord_IsRebuilt from what is alive: the agent is supervised as before, and what is not
// known any more is told.
func TestLostRecord_IsRebuilt(t *testing.T) {
	d := startDaemon(t)
	const id = "my-store" // of agent command: by its scope's name alone it could be store of command-my, which no other test has in the runtime directory
	work := testbed.Dir(t)
	asked := d.witness(id)
	asked["WorkingDirectory"] = work
	s := d.create(t, id, asked)
	stale := d.create(t, "stale", d.witness("stale"))
	pid, other := d.agents(t, id, 1)[0], d.agents(t, "stale", 1)[0]
	before, tmux := s.facts(), stale.one(tmuxName)
	d.kill(syscall.SIGKILL)
	kill(t, tmux, syscall.SIGKILL)
	testbed.WaitExit(t, tmux)
	require.NoError(t, os.RemoveAll(filepath.Dir(d.stateDir(id))))
	d.launch()

	s.is(outcome{"running", "", 0, 0, "", "active"})
	after := s.facts()
	for _, property := range []string{"MainPID", "Command", "WorkingDirectory", "ExecMainStartTimestamp", "ControlGroup", "SessionAlive", "Agent"} {
		assert.Equal(t, before[property], after[property], property)
	}
	stale.is(outcome{"stale", "session-lost", 0, 0, "scope running, session dead", "active"})
	assert.Equal(t, other, stale.facts().number("MainPID"))
	told := d.hasProblems(t, 2)
	assert.Equal(t, []string{id, "stale"}, []string{told[0].Session, told[1].Session})
	assert.Contains(t, told[0].Text, "its record was lost")

	stale.must("Resume")
	stale.is(outcome{"running", "", 0, 0, "", "active"})
	stale.must("Stop", uint64(0))
	stale.is(outcome{"stopped", "success", 1, 7, "", "active"})
	stale.must("Remove", uint64(0))
	d.hasProblems(t, 1)

	kill(t, pid, syscall.SIGUSR1)
	want := outcome{"failed", "exit-code", 1, 9, "command exited with code 9", "error"}
	s.ends(want)
	s.must("Start")
	d.agents(t, id, 2)
	s.must("Stop", uint64(0))
	want = outcome{"stopped", "success", 1, 7, "", "active"}
	s.is(want)
	d.kill(syscall.SIGKILL)
	d.launch()
	s.is(want)
	d.hasProblems(t, 0)
}

// takeAway removes a directory in which a daemon writes: it may do so again before all is gone,
// which is told as a directory that is not empty.
func takeAway(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); !errors.Is(err, syscall.ENOTEMPTY) {
		require.NoError(t, err)
	}
}

// hasRecord waits until there is a record of the session, in a directory that may not be there yet.
func (d *corrald) hasRecord(t *testing.T, id string) {
	t.Helper()
	testbed.Poll(t, "session "+id+" has a record", func() bool {
		_, err := os.Stat(d.stateDir(id) + "/session.json")
		return err == nil
	})
}

// TestStateDirectory_IsRecreatedAfterRemoval: what lives is written down again at once, and its end
// is recorded where the next daemon finds it.
func TestStateDirectory_IsRecreatedAfterRemoval(t *testing.T) {
	d := startDaemon(t)
	for _, dir := range []string{d.stateDir("shop"), filepath.Dir(d.stateDir("shop"))} {
		s := d.create(t, "shop", d.witness("shop"))
		pids := d.agents(t, "shop", 1)
		takeAway(t, dir)
		d.hasRecord(t, "shop")
		d.kill(syscall.SIGKILL)
		d.launch()
		s.is(outcome{"running", "", 0, 0, "", "active"})
		takeAway(t, dir)
		d.hasRecord(t, "shop")
		kill(t, pids[len(pids)-1], syscall.SIGUSR1)
		want := outcome{"failed", "exit-code", 1, 9, "command exited with code 9", "error"}
		s.ends(want)
		d.kill(syscall.SIGKILL)
		d.launch()
		s.is(want)
		s.must("Remove", uint64(0))
		require.NoError(t, os.Remove(d.dir+"/shop.agents"))
	}
}

// TestRestoredRecord_KeepsTheRunningAgent is older than what the session runs: the agent that lives
// is its agent.
func TestRestoredRecord_KeepsTheRunningAgent(t *testing.T) {
	for name, ended := range map[string]bool{"made while it was suspended": true, "made while it ran before": false} {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t)
			s := d.create(t, "shop", d.witness("shop"))
			if ended {
				s.must("Suspend")
			}
			record := filepath.Join(d.stateDir("shop"), "session.json")
			testbed.Poll(t, "it is saved", func() bool {
				content, err := os.ReadFile(record)
				return err == nil && strings.Contains(string(content), s.facts().text("State"))
			})
			backup, err := os.ReadFile(record)
			require.NoError(t, err)
			if !ended {
				s.must("Suspend")
			}
			s.must("Resume")
			pid := s.become("running").number("MainPID")
			d.kill(syscall.SIGKILL)
			require.NoError(t, os.RemoveAll(d.stateDir("shop")))
			require.NoError(t, os.Mkdir(d.stateDir("shop"), 0o700))
			require.NoError(t, os.WriteFile(record, backup, 0o600))
			d.launch()
			s.is(outcome{"running", "", 0, 0, "", "active"})
			assert.Equal(t, pid, s.facts().number("MainPID"))
			s.must("Stop", uint64(0))
			s.is(outcome{"stopped", "success", 1, 7, "", "active"})
		})
	}
}

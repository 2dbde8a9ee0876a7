package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/testbed"
)

// politeSession starts a session whose agent records each signal that it gets, and then exits with
// 0 unless that is SIGUSR1.
func (d *corrald) politeSession(t *testing.T, id string) *testSession {
	t.Helper()
	s := d.create(t, id, spec{"Command": []string{"bash", "-c", `
		for s in TERM HUP USR1; do trap "echo $s >'$0'; [ $s = USR1 ] || exit 0" $s; done
		echo up >"$0.up"; while :; do sleep 1000 & wait; done`, d.dir + "/" + id}})
	s.awaitFile(id + ".up")
	return s
}

func TestStop_LetsTheAgentExitByItself(t *testing.T) {
	d := startDaemon(t)
	for _, c := range []struct {
		id, signal, reason string
		stop               func(*testSession)
	}{
		{"by-systemctl", "TERM", "its scope was stopped", func(s *testSession) { testbed.Systemctl(s.t, "stop", s.unit()) }},
		{"by-session", "TERM", "", func(s *testSession) { s.must("Stop", uint64(0)) }},
		{"by-manager", "TERM", "", func(s *testSession) {
			require.NoError(s.t, s.manager("StopSession", []any{s.id, uint64(0)}))
		}},
		{"pane-closed", "HUP", "its terminal was closed", func(s *testSession) { s.tmux("kill-pane") }},
		{"session-closed", "HUP", "its terminal was closed", func(s *testSession) { s.tmux("kill-session", "-t", s.id) }},
	} {
		t.Run(c.id, func(t *testing.T) {
			t.Parallel()
			s := d.politeSession(t, c.id)
			c.stop(s)
			s.waitOutcome(outcome{"stopped", "success", 1, 0, c.reason, "active"})
			assert.Equal(t, c.signal+"\n", s.awaitFile(c.id))
			s.waitNoScope()
			s.assertOutcome(outcome{"stopped", "success", 1, 0, c.reason, "active"})
		})
	}
}

// TestStop_EscalatesToSIGKILL checks each step: an interactive shell ignores SIGTERM and gets
// SIGHUP; an agent that ignores that too is killed when the time-out expires.
func TestStop_EscalatesToSIGKILL(t *testing.T) {
	d := startDaemon(t)
	t.Run("interactive shell", func(t *testing.T) {
		t.Parallel()
		s := d.create(t, "shell", spec{"Command": []string{"bash", "--norc"},
			"Environment": []string{"PROMPT_COMMAND=echo up >" + d.dir + "/shell.up"}})
		s.awaitFile("shell.up")
		s.must("Stop", uint64(0))
		s.assertOutcome(outcome{"stopped", "success", 2, int(syscall.SIGHUP), "", "active"})
	})
	t.Run("deaf agent", func(t *testing.T) {
		t.Parallel()
		s := d.run(t, "deaf", fmt.Sprintf("trap '' TERM HUP INT; echo up >%s/deaf.up; while :; do sleep 1000; done", d.dir))
		s.awaitFile("deaf.up")
		s.must("Stop", uint64(600_000))
		s.assertOutcome(outcome{"stopped", "success", 2, int(syscall.SIGKILL), "", "active"})
	})
	t.Run("stopped agent", func(t *testing.T) {
		t.Parallel()
		s := d.politeSession(t, "asleep")
		kill(t, s.properties().number("MainPID"), syscall.SIGSTOP)
		s.must("Stop", uint64(0))
		s.assertOutcome(outcome{"stopped", "success", 1, 0, "", "active"})
	})
	t.Run("leftovers", func(t *testing.T) {
		t.Parallel()
		s := d.run(t, "parent", fmt.Sprintf(
			`setsid sleep 1001 & `+
				`setsid sh -c 'trap "" TERM HUP; echo up >%s/parent.up; while :; do sleep 1002; done' & `+
				`exec sleep 1000`, d.dir))
		s.awaitFile("parent.up")
		pids, err := proc.Processes(s.properties().text("ControlGroup"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(pids), 5, "agent, shim, tmux and leftovers")
		s.must("Stop", uint64(600_000))
		for _, pid := range pids {
			testbed.WaitExit(t, pid)
		}
		s.assertOutcome(outcome{"stopped", "success", 2, int(syscall.SIGTERM), "", "active"})
	})
}

// TestStop_OfAnEndedSessionIsANoOp checks that nothing changes and no signal is sent.
func TestStop_OfAnEndedSessionIsANoOp(t *testing.T) {
	d := startDaemon(t)
	created := d.create(t, "never", spec{"Command": []string{"true"}, "Start": false})
	ended := d.run(t, "ended", "exit 4")
	ended.waitState("failed")
	ended.tmux("kill-server")
	ended.waitNoScope()
	for _, s := range []*testSession{created, ended} {
		before, mark := s.properties(), d.signals.mark()
		s.must("Stop", uint64(0))
		assert.Equal(t, before, s.properties(), "session %s", s.id)
		signals, _ := d.signals.since(mark)
		assert.Empty(t, signals, "session %s", s.id)
	}
	t.Run("an ended session keeps its result when its leftover processes are stopped", func(t *testing.T) {
		s := d.run(t, "leftover", "sleep 1000 & exit 4")
		s.waitState("failed")
		s.must("Stop", uint64(0))
		assert.Empty(t, s.properties().text("ControlGroup"), "the reply comes when the scope is empty")
		s.assertOutcome(outcome{"failed", "exit-code", 1, 4, "command exited with code 4", "error"})
	})
}

func TestRestart(t *testing.T) {
	d := startDaemon(t)
	s := d.politeSession(t, "again")
	first := s.properties()
	s.must("Restart")
	second := s.properties()
	assert.Equal(t, "TERM\n", s.awaitFile("again"), "the first run got SIGTERM")
	assert.Equal(t, "running", second.text("State"))
	assert.NotEqual(t, first.number("MainPID"), second.number("MainPID"))
	assert.Equal(t, 2, second.number("NRuns"))
	testbed.WaitExit(t, first.number("MainPID"))
	assertRefused(t, s.do("Start"), dbusapi.InvalidState, "again", "running")
}

func TestKill(t *testing.T) {
	d := startDaemon(t)
	t.Run("agent", func(t *testing.T) {
		s := d.politeSession(t, "one")
		s.must("Kill", "agent", int32(syscall.SIGUSR1))
		assert.Equal(t, "USR1\n", s.awaitFile("one"))
		s.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
		s.must("Kill", "agent", int32(syscall.SIGKILL))
		s.waitOutcome(outcome{"failed", "signal", 2, 9, "command was killed by SIGKILL", "error"})
		assertRefused(t, s.do("Kill", "agent", int32(syscall.SIGTERM)), dbusapi.InvalidState, "one", "failed")
	})
	t.Run("leftovers", func(t *testing.T) {
		s := d.run(t, "two",
			"setsid sleep 1001 & echo $! >"+d.dir+"/two.new; mv "+d.dir+"/two.new "+d.dir+"/two; exec sleep 1000")
		var left int
		_, err := fmt.Sscan(s.awaitFile("two"), &left)
		require.NoError(t, err)
		s.must("Kill", "leftovers", int32(syscall.SIGKILL))
		testbed.WaitExit(t, left)
		s.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
	})
	t.Run("all", func(t *testing.T) {
		s := d.run(t, "three", "exec sleep 1000")
		s.must("Kill", "all", int32(syscall.SIGKILL))
		s.waitOutcome(outcome{"failed", "session-lost", 0, 0, "tmux session no longer exists", "error"})
	})
}

func TestRemove_DeletesTheSession(t *testing.T) {
	d := startDaemon(t)
	work := testbed.Dir(t)
	require.NoError(t, os.WriteFile(work+"/notes", nil, 0o600))
	s := d.create(t, "short", spec{"Command": []string{"sleep", "1000"}, "WorkingDirectory": work})
	group, pid := s.properties().text("ControlGroup"), s.properties().number("MainPID")
	assertRefused(t, s.do("Remove", uint64(0)), dbusapi.InvalidState, "short", "running")
	s.assertOutcome(outcome{"running", "", 0, 0, "", "active"})

	mark := d.signals.mark()
	s.must("Remove", dbusapi.RemoveForce)
	testbed.WaitExit(t, pid)
	_, err := proc.Processes(group)
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.NoDirExists(t, d.stateDir("short"))
	assert.FileExists(t, work+"/notes")
	assert.Empty(t, d.ids(t))
	assertRefused(t, s.do("Stop", uint64(0)), dbusapi.UnknownObject)
	assertRefused(t, d.manager("StopSession", []any{"short", uint64(0)}), dbusapi.NoSuchSession, "short")
	d.await(t, mark, "SessionRemoved", func(s *dbus.Signal) bool {
		return s.Name == dbusapi.ManagerInterface+".SessionRemoved" && s.Body[0] == "short"
	})
	testbed.Poll(t, "the runtime directory is gone", func() bool {
		_, err := os.Stat(d.runtimeDir("short"))
		return os.IsNotExist(err)
	})

	ended := d.run(t, "short", "exit 0") // the id is free again
	ended.waitState("completed")
	ended.must("Remove", uint64(0))
	assert.Empty(t, d.ids(t))
	scopes := testbed.Systemctl(t, "list-units", "--all", "--plain", "--no-legend", "app-corral-*.scope")
	assert.Empty(t, strings.TrimSpace(scopes))
}

func TestArchive(t *testing.T) {
	d := startDaemon(t)
	s := d.run(t, "old", "echo out; sleep 1000 & exit 2")
	live := d.run(t, "young", "exec sleep 1000")
	assertRefused(t, live.do("Archive"), dbusapi.InvalidState, "young", "running")
	s.waitState("failed")
	require.Equal(t, 1, d.count(t, "NFailed"))
	s.must("Archive")
	s.waitOutcome(outcome{"archived", "exit-code", 1, 2, "command exited with code 2", "archived"})
	assert.Empty(t, s.properties().text("ControlGroup"), "leftover processes are ended")
	assert.Equal(t, 0, d.count(t, "NFailed"))
	assert.Equal(t, 1, d.count(t, "NSessions"))
	assert.ElementsMatch(t, []string{"old", "young"}, d.ids(t))
	for _, method := range []string{"Start", "Restart", "Archive"} {
		assertRefused(t, s.do(method), dbusapi.InvalidState, "old", "archived")
	}
	assertRefused(t, s.do("SendInput", "go on", uint64(1)), dbusapi.InvalidState, "old", "archived")
	var log dbus.UnixFD
	require.NoError(t, s.call(dbusapi.SessionPath("old"), dbusapi.SessionInterface+".OpenLog", nil, &log))
	file := os.NewFile(uintptr(log), "log")
	text, err := io.ReadAll(file)
	require.NoError(t, errors.Join(err, file.Close()))
	assert.Equal(t, "out\r\n", string(text), "the log can be read")
	s.must("Remove", uint64(0))
	assert.Equal(t, []string{"young"}, d.ids(t), "an archived session can be removed")
	assert.NoDirExists(t, d.stateDir("old"))
}

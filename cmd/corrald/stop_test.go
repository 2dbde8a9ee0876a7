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

// polite starts an agent that says so when it is asked to end, by which signal, and takes its time
// for it.
func (d *corrald) polite(t *testing.T, id string) *subject {
	t.Helper()
	s := d.create(t, id, spec{"Command": []string{"bash", "-c", `
		for s in TERM HUP USR1; do trap "echo $s >'$0.new'; mv '$0.new' '$0'; [ $s = USR1 ] || exit 0" $s; done
		echo up >"$0.up"; while :; do sleep 1000 & wait; done`, d.dir + "/" + id}})
	s.file(id + ".up")
	return s
}

func TestStop_LetsTheAgentExitByItself(t *testing.T) {
	d := startDaemon(t)
	for _, c := range []struct {
		id, said, reason string
		stop             func(*subject)
	}{
		{"by-systemctl", "TERM", "its scope was stopped", func(s *subject) { testbed.Systemctl(s.t, "stop", s.unit()) }},
		{"by-session", "TERM", "", func(s *subject) { s.must("Stop", uint64(0)) }},
		{"by-manager", "TERM", "", func(s *subject) { require.NoError(s.t, s.manager("StopSession", []any{s.id, uint64(0)})) }},
		{"pane-closed", "HUP", "its terminal was closed", func(s *subject) { s.tmux("kill-pane") }},
		{"session-closed", "HUP", "its terminal was closed", func(s *subject) { s.tmux("kill-session", "-t", s.id) }},
	} {
		t.Run(c.id, func(t *testing.T) {
			t.Parallel()
			s := d.polite(t, c.id)
			c.stop(s)
			s.ends(outcome{"stopped", "success", 1, 0, c.reason, "active"})
			assert.Equal(t, c.said+"\n", s.file(c.id))
			s.noScope()
			s.is(outcome{"stopped", "success", 1, 0, c.reason, "active"})
		})
	}
}

// TestStop_EscalatesToSIGKILL: an interactive shell ignores SIGTERM and is hung up on; what ignores
// that too is killed when its time is up.
func TestStop_EscalatesToSIGKILL(t *testing.T) {
	d := startDaemon(t)
	t.Run("interactive shell", func(t *testing.T) {
		t.Parallel()
		s := d.create(t, "shell", spec{"Command": []string{"bash", "--norc"}, "Environment": []string{"PROMPT_COMMAND=echo up >" + d.dir + "/shell.up"}})
		s.file("shell.up")
		s.must("Stop", uint64(0))
		s.is(outcome{"stopped", "success", 2, int(syscall.SIGHUP), "", "active"})
	})
	t.Run("deaf agent", func(t *testing.T) {
		t.Parallel()
		s := d.run(t, "deaf", fmt.Sprintf("trap '' TERM HUP INT; echo up >%s/deaf.up; while :; do sleep 1000; done", d.dir))
		s.file("deaf.up")
		s.must("Stop", uint64(600_000))
		s.is(outcome{"stopped", "success", 2, int(syscall.SIGKILL), "", "active"})
	})
	t.Run("stopped agent", func(t *testing.T) {
		t.Parallel()
		s := d.polite(t, "asleep")
		kill(t, s.facts().number("MainPID"), syscall.SIGSTOP)
		s.must("Stop", uint64(0))
		s.is(outcome{"stopped", "success", 1, 0, "", "active"})
	})
	t.Run("leftovers", func(t *testing.T) {
		t.Parallel()
		s := d.run(t, "parent", fmt.Sprintf(
			`setsid sleep 1001 & setsid sh -c 'trap "" TERM HUP; echo up >%s/parent.up; while :; do sleep 1002; done' & exec sleep 1000`, d.dir))
		s.file("parent.up")
		pids, err := proc.Processes(s.facts().text("ControlGroup"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(pids), 5, "agent, shim, tmux and leftovers")
		s.must("Stop", uint64(600_000))
		for _, pid := range pids {
			testbed.WaitExit(t, pid)
		}
		s.is(outcome{"stopped", "success", 2, int(syscall.SIGTERM), "", "active"})
	})
}

// TestStop_OfAnEndedSessionIsANoOp: nothing changes and nothing is said.
func TestStop_OfAnEndedSessionIsANoOp(t *testing.T) {
	d := startDaemon(t)
	created := d.create(t, "never", spec{"Command": []string{"true"}, "Start": false})
	ended := d.run(t, "ended", "exit 4")
	ended.become("failed")
	ended.tmux("kill-server")
	ended.noScope()
	for _, s := range []*subject{created, ended} {
		before, mark := s.facts(), d.heard.mark()
		s.must("Stop", uint64(0))
		assert.Equal(t, before, s.facts(), "session %s", s.id)
		signals, _ := d.heard.since(mark)
		assert.Empty(t, signals, "session %s", s.id)
	}
	t.Run("an ended session keeps what it says when what is left of it is stopped", func(t *testing.T) {
		s := d.run(t, "leftover", "sleep 1000 & exit 4")
		s.become("failed")
		s.must("Stop", uint64(0))
		assert.Empty(t, s.facts().text("ControlGroup"), "the reply comes when the scope is empty")
		s.is(outcome{"failed", "exit-code", 1, 4, "command exited with code 4", "error"})
	})
}

func TestRestart(t *testing.T) {
	d := startDaemon(t)
	s := d.polite(t, "again")
	first := s.facts()
	s.must("Restart")
	second := s.facts()
	assert.Equal(t, "TERM\n", s.file("again"), "the first run was ended politely")
	assert.Equal(t, "running", second.text("State"))
	assert.NotEqual(t, first.number("MainPID"), second.number("MainPID"))
	assert.Equal(t, 2, second.number("NRuns"))
	testbed.WaitExit(t, first.number("MainPID"))
	refused(t, s.do("Start"), dbusapi.InvalidState, "again", "running")
}

func TestKill(t *testing.T) {
	d := startDaemon(t)
	t.Run("agent", func(t *testing.T) {
		s := d.polite(t, "one")
		s.must("Kill", "agent", int32(syscall.SIGUSR1))
		assert.Equal(t, "USR1\n", s.file("one"))
		s.is(outcome{"running", "", 0, 0, "", "active"})
		s.must("Kill", "agent", int32(syscall.SIGKILL))
		s.ends(outcome{"failed", "signal", 2, 9, "command was killed by SIGKILL", "error"})
		refused(t, s.do("Kill", "agent", int32(syscall.SIGTERM)), dbusapi.InvalidState, "one", "failed")
	})
	t.Run("leftovers", func(t *testing.T) {
		s := d.run(t, "two", "setsid sleep 1001 & echo $! >"+d.dir+"/two.new; mv "+d.dir+"/two.new "+d.dir+"/two; exec sleep 1000")
		var left int
		_, err := fmt.Sscan(s.file("two"), &left)
		require.NoError(t, err)
		s.must("Kill", "leftovers", int32(syscall.SIGKILL))
		testbed.WaitExit(t, left)
		s.is(outcome{"running", "", 0, 0, "", "active"})
	})
	t.Run("all", func(t *testing.T) {
		s := d.run(t, "three", "exec sleep 1000")
		s.must("Kill", "all", int32(syscall.SIGKILL))
		s.ends(outcome{"failed", "session-lost", 0, 0, "tmux session no longer exists", "error"})
	})
}

func TestRemove_DeletesTheSession(t *testing.T) {
	d := startDaemon(t)
	work := testbed.Dir(t)
	require.NoError(t, os.WriteFile(work+"/notes", nil, 0o600))
	s := d.create(t, "short", spec{"Command": []string{"sleep", "1000"}, "WorkingDirectory": work})
	group, pid := s.facts().text("ControlGroup"), s.facts().number("MainPID")
	refused(t, s.do("Remove", uint64(0)), dbusapi.InvalidState, "short", "running")
	s.is(outcome{"running", "", 0, 0, "", "active"})

	mark := d.heard.mark()
	s.must("Remove", dbusapi.RemoveForce)
	testbed.WaitExit(t, pid)
	_, err := proc.Processes(group)
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.NoDirExists(t, d.stateDir("short"))
	assert.FileExists(t, work+"/notes")
	assert.Empty(t, d.ids(t))
	refused(t, s.do("Stop", uint64(0)), dbusapi.UnknownObject)
	refused(t, d.manager("StopSession", []any{"short", uint64(0)}), dbusapi.NoSuchSession, "short")
	d.await(t, mark, "SessionRemoved", func(s *dbus.Signal) bool {
		return s.Name == dbusapi.ManagerInterface+".SessionRemoved" && s.Body[0] == "short"
	})
	testbed.Poll(t, "the runtime directory is gone", func() bool {
		_, err := os.Stat(d.runtimeDir("short"))
		return os.IsNotExist(err)
	})

	ended := d.run(t, "short", "exit 0") // the id is free again
	ended.become("completed")
	ended.must("Remove", uint64(0))
	assert.Empty(t, d.ids(t))
	scopes := testbed.Systemctl(t, "list-units", "--all", "--plain", "--no-legend", "app-corral-*.scope")
	assert.Empty(t, strings.TrimSpace(scopes))
}

func TestArchive(t *testing.T) {
	d := startDaemon(t)
	s := d.run(t, "old", "echo out; sleep 1000 & exit 2")
	live := d.run(t, "young", "exec sleep 1000")
	refused(t, live.do("Archive"), dbusapi.InvalidState, "young", "running")
	s.become("failed")
	require.Equal(t, 1, d.count(t, "NFailed"))
	s.must("Archive")
	s.ends(outcome{"archived", "exit-code", 1, 2, "command exited with code 2", "archived"})
	assert.Empty(t, s.facts().text("ControlGroup"), "what was left is ended")
	assert.Equal(t, 0, d.count(t, "NFailed"))
	assert.Equal(t, 1, d.count(t, "NSessions"))
	assert.ElementsMatch(t, []string{"old", "young"}, d.ids(t))
	for _, method := range []string{"Start", "Restart", "Archive"} {
		refused(t, s.do(method), dbusapi.InvalidState, "old", "archived")
	}
	refused(t, s.do("SendInput", "go on", uint64(1)), dbusapi.InvalidState, "old", "archived")
	var log dbus.UnixFD
	require.NoError(t, s.call(dbusapi.SessionPath("old"), dbusapi.SessionInterface+".OpenLog", nil, &log))
	file := os.NewFile(uintptr(log), "log")
	text, err := io.ReadAll(file)
	require.NoError(t, errors.Join(err, file.Close()))
	assert.Equal(t, "out\r\n", string(text), "what it printed can be read")
	s.must("Remove", uint64(0))
	assert.Equal(t, []string{"young"}, d.ids(t), "and be removed by hand")
	assert.NoDirExists(t, d.stateDir("old"))
}

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// The names of a scope's processes in the kernel.
const (
	shimName = "corral-shim"
	tmuxName = "tmux: server"
)

// TestState_ReportsHowTheAgentEnded checks the state for each way in which an agent can end, and
// that it is still the same after its tmux session was closed and after the daemon was restarted.
func TestState_ReportsHowTheAgentEnded(t *testing.T) {
	d := startDaemon(t)
	ends := []struct {
		id, script string
		properties []property
		want       outcome
	}{
		{"exit-0", "exit 0", nil, outcome{"completed", "success", 1, 0, "", "active"}},
		{"exit-3", "exit 3", nil, outcome{"failed", "exit-code", 1, 3, "command exited with code 3", "error"}},
		{"exit-255", "exit 255", nil, outcome{"failed", "exit-code", 1, 255, "command exited with code 255", "error"}},
		{"exit-137", "exit 137", nil, outcome{"failed", "exit-code", 1, 137, "command exited with code 137", "error"}},
		{"killed", "kill -KILL $$", nil, outcome{"failed", "signal", 2, 9, "command was killed by SIGKILL", "error"}},
		{"terminated", "kill -TERM $$", nil, outcome{"failed", "signal", 2, 15, "command was killed by SIGTERM", "error"}},
		{"no-core", "ulimit -c 0; kill -SEGV $$", nil,
			outcome{"failed", "signal", 2, 11, "command was killed by SIGSEGV", "error"}},
		{"time-up", "exec sleep 1000", []property{{"RuntimeMaxUSec", uint64(1)}},
			outcome{"failed", "timeout", 2, 15, "it ran for as long as RuntimeMaxSec allows", "error"}},
	}
	for _, e := range ends {
		t.Run(e.id, func(t *testing.T) {
			sp := spec{"Command": []string{"sh", "-c", e.script}}
			if e.properties != nil {
				sp["UnitProperties"] = e.properties
			}
			d.create(t, e.id, sp).waitOutcome(e.want)
		})
	}
	t.Run("after the tmux session was closed", func(t *testing.T) {
		for _, e := range ends {
			s := &testSession{d, t, e.id}
			if s.properties().text("ControlGroup") != "" {
				s.tmux("kill-server")
				s.waitNoScope()
			}
			s.assertOutcome(e.want)
		}
	})
	t.Run("after a daemon restart", func(t *testing.T) {
		require.Equal(t, 0, d.kill(syscall.SIGTERM))
		d.launch()
		for _, e := range ends {
			s := &testSession{d, t, e.id}
			s.assertOutcome(e.want)
		}
	})
}

// property is an entry of UnitProperties.
type property struct {
	Name  string
	Value any
}

// TestState_ReportsACoreDump checks that the session reports what the kernel did: it dumps core if
// core_pattern and the limit allow it.
func TestState_ReportsACoreDump(t *testing.T) {
	d := startDaemon(t)
	work := testbed.Dir(t)
	s := d.create(t, "core", spec{"Command": []string{"sh", "-c", "ulimit -c unlimited; kill -SEGV $$"},
		"WorkingDirectory": work})
	want := outcome{"failed", "core-dump", 3, 11, "command was killed by SIGSEGV (core dumped)", "error"}
	// Whether a core is dumped depends on the machine (core_pattern, limits): a child of the test
	// shows what happens on this one.
	child := exec.CommandContext(t.Context(), "sh", "-c", "ulimit -c unlimited; kill -SEGV $$")
	child.Dir = testbed.Dir(t)
	_ = child.Run()
	status, ok := child.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok && status.Signal() == syscall.SIGSEGV)
	if !status.CoreDump() {
		want = outcome{"failed", "signal", 2, 11, "command was killed by SIGSEGV", "error"}
	}
	s.waitOutcome(want)
	if pattern := readFile(t, "/proc/sys/kernel/core_pattern"); want.Code == 3 && strings.HasPrefix(pattern, "core") {
		cores, err := filepath.Glob(work + "/core*")
		require.NoError(t, err)
		assert.NotEmpty(t, cores)
	}
}

// TestState_ReportsAFailedStart checks that the error of the call and the session agree, and that
// no scope is left.
func TestState_ReportsAFailedStart(t *testing.T) {
	d := startDaemon(t)
	d.write("notes.txt", "no program\n")
	d.write("bad-script", "#!/no/such/interpreter\n")
	require.NoError(t, os.Chmod(d.dir+"/bad-script", 0o700))
	for _, c := range []struct{ id, command, why string }{
		{"not-found", "no-such-program", `command "no-such-program" not found`},
		{"path-not-found", "/no/such/program", `command "/no/such/program" not found`},
		{"not-executable", d.dir + "/notes.txt", `command "` + d.dir + `/notes.txt" is not executable`},
		{"a-directory", "/tmp", `command "/tmp" is not executable`},
		{"no-interpreter", d.dir + "/bad-script",
			`command "` + d.dir + `/bad-script" needs an interpreter that does not exist`},
	} {
		t.Run(c.id, func(t *testing.T) {
			s := d.create(t, c.id, spec{"Command": []string{c.command}, "Start": false})
			assertRefused(t, d.manager("StartSession", []any{c.id}), dbusapi.StartFailed, c.id, c.why)
			s.assertOutcome(outcome{"failed", "start-failed", 0, 0, c.why, "error"})
			s.waitNoScope()
			s.assertOutcome(outcome{"failed", "start-failed", 0, 0, c.why, "error"})
		})
	}
	t.Run("workspace missing", func(t *testing.T) {
		work := testbed.Dir(t)
		s := d.create(t, "homeless", spec{"Command": []string{"true"}, "WorkingDirectory": work, "Start": false})
		s.assertOutcome(outcome{"created", "", 0, 0, "", "active"})
		for range 2 { // it is reported before anybody tries to start the session, also by the next daemon
			require.NoError(t, os.Remove(work))
			s.waitOutcome(outcome{"orphaned", "", 0, 0, `workspace "` + work + `" is gone`, "error"})
			d.kill(syscall.SIGKILL)
			d.launch()
			s.waitOutcome(outcome{"orphaned", "", 0, 0, `workspace "` + work + `" is gone`, "error"})
			require.NoError(t, os.Mkdir(work, 0o700))
			s.waitOutcome(outcome{"created", "", 0, 0, "", "active"})
		}
		require.NoError(t, os.Remove(work))
		assertRefused(t, d.manager("StartSession", []any{"homeless"}), dbusapi.StartFailed, "homeless", work)
		s.assertOutcome(outcome{"failed", "start-failed", 0, 0, `workspace "` + work + `" does not exist`, "error"})
		require.NoError(t, os.Mkdir(work, 0o700))
		s.must("Start")
		s.waitOutcome(outcome{"completed", "success", 1, 0, "", "active"})
	})
}

// TestCreateSession_LeavesNothingWhenTheCommandCannotRun checks that the id is free for the next
// session.
func TestCreateSession_LeavesNothingWhenTheCommandCannotRun(t *testing.T) {
	d := startDaemon(t)
	d.write("src/shop/tracked", "")
	d.write("src/shop/own", "#!/bin/sh\nexec sleep 1000\n")
	require.NoError(t, os.Chmod(d.dir+"/src/shop/own", 0o700))
	d.git(t, "src/shop", "init", "-q", "-b", "main")
	d.git(t, "src/shop", "add", "tracked")
	d.git(t, "src/shop", "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "-m", "first")
	shop := d.dir + "/src/shop"
	require.NoError(t, os.Mkdir(d.dir+"/locked", 0))
	for _, c := range []struct {
		name string
		spec spec
		why  string
	}{
		{"nowhere in PATH", spec{"Command": []string{"no-such-program"}, "Environment": []string{"PATH=/nowhere:/bin"}},
			`command "no-such-program" not found in PATH=/nowhere:/bin`},
		{"a directory that may not be searched",
			spec{"Command": []string{"no-such-program"}, "Environment": []string{"PATH=" + d.dir + "/locked:/bin"}},
			`command "no-such-program" not found in PATH=`},
		{"the caller's PATH", spec{"Command": []string{"no-such-program"},
			"CallerEnvironment": []string{"PATH=/elsewhere"}}, `not found in PATH=/elsewhere`},
		{"no such file", spec{"Command": []string{"/no/such/program"}}, `command "/no/such/program" not found`},
		{"nothing below the workspace", spec{"Command": []string{"./none"}, "WorkingDirectory": shop},
			`command "./none" not found`},
		{"not executable", spec{"Command": []string{"./tracked"}, "WorkingDirectory": shop},
			`command "./tracked" is not executable`},
		{"a directory", spec{"Command": []string{"/tmp"}}, `command "/tmp" is not executable`},
		{"not in the worktree", spec{"Command": []string{"./own"}, "WorkingDirectory": shop, "Worktree": ""},
			`command "./own" not found`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := d.tryCreate(t, "typo", c.spec)
			assertRefused(t, err, dbusapi.StartFailed, c.why)
			assert.Empty(t, d.ids(t))
			assert.NoDirExists(t, d.dir+"/state/corral/sessions/typo")
		})
	}
	testbed.Poll(t, "the branch is gone", func() bool { return d.git(t, "src/shop", "branch") == "* main" })
	d.create(t, "typo", spec{"Command": []string{"./own"}, "WorkingDirectory": shop}).waitState("running")
}

// TestState_ReportsKilledParts kills the parts of a session one by one. Its state must be right
// each time, and no other session may be affected.
func TestState_ReportsKilledParts(t *testing.T) {
	d := startDaemon(t)
	bystander := d.run(t, "bystander", "exec sleep 1000")
	before := bystander.waitState("running")

	t.Run("tmux server", func(t *testing.T) {
		s := d.run(t, "no-tmux", "exec sleep 1000")
		pid := s.waitState("running").number("MainPID")
		kill(t, s.process(tmuxName), syscall.SIGKILL)
		s.waitOutcome(outcome{"stale", "session-lost", 0, 0, "scope running, session dead", "active"})
		p := s.properties()
		assert.Equal(t, pid, p.number("MainPID"))
		assert.True(t, p.isTrue("AgentAlive"))
		assert.False(t, p.isTrue("SessionAlive"))
		require.NoError(t, syscall.Kill(pid, 0), "the agent is alive")
		kill(t, pid, syscall.SIGKILL)
		s.waitOutcome(outcome{"failed", "signal", 2, 9, "command was killed by SIGKILL", "error"})
		s.waitNoScope()
	})
	t.Run("shim", func(t *testing.T) {
		s := d.run(t, "no-shim", "exec sleep 1000")
		pid := s.waitState("running").number("MainPID")
		want := outcome{"failed", "agent-lost", 0, 0, "shell process exited", "error"}
		kill(t, s.process(shimName), syscall.SIGKILL)
		s.waitOutcome(want)
		testbed.WaitExit(t, pid)
		s.tmux("kill-server")
		s.waitNoScope()
		s.assertOutcome(want)
	})
	t.Run("everything", func(t *testing.T) {
		s := d.run(t, "no-scope", "exec sleep 1000")
		s.waitState("running")
		want := outcome{"failed", "session-lost", 0, 0, "tmux session no longer exists", "error"}
		mark := d.signals.mark()
		testbed.Systemctl(t, "kill", "--signal=KILL", s.unit())
		s.waitOutcome(want)
		signals, _ := d.signals.since(mark)
		for _, signal := range signals {
			if c, ok := stateChange(signal); ok && c.id == s.id {
				assert.Equal(t, change{s.id, "running", "failed"}, c, "no untrue state in between")
			}
		}
		s.waitNoScope()
		s.assertOutcome(want)
	})
	after := bystander.properties()
	assert.Equal(t, outcomeOf(before), outcomeOf(after))
	assert.Equal(t, before.number("MainPID"), after.number("MainPID"))
}

// TestWorkspace_VanishesAndReappears checks that the session is orphaned in between, and that its
// agent is not killed.
func TestWorkspace_VanishesAndReappears(t *testing.T) {
	d := startDaemon(t)
	work := testbed.Dir(t)
	s := d.create(t, "orphan", spec{"Command": []string{"sleep", "1000"}, "WorkingDirectory": work})
	pid := s.waitState("running").number("MainPID")
	orphaned := outcome{"orphaned", "", 0, 0, `workspace "` + work + `" is gone`, "error"}

	require.NoError(t, os.Rename(work, work+"-away"))
	s.waitOutcome(orphaned)
	assert.Equal(t, pid, s.properties().number("MainPID"))
	require.NoError(t, os.Rename(work+"-away", work))
	s.waitOutcome(outcome{"running", "", 0, 0, "", "active"})

	require.NoError(t, os.Remove(work))
	s.waitOutcome(orphaned)
	require.Equal(t, 0, d.kill(syscall.SIGTERM))
	d.launch()
	s.waitOutcome(orphaned)
	require.NoError(t, os.Mkdir(work, 0o700))
	s.waitOutcome(outcome{"running", "", 0, 0, "", "active"})
	assert.Equal(t, pid, s.properties().number("MainPID"))

	require.NoError(t, os.Remove(work))
	s.waitOutcome(orphaned)
	kill(t, pid, syscall.SIGKILL)
	s.waitOutcome(outcome{"failed", "signal", 2, 9, "command was killed by SIGKILL", "error"})
}

func kill(t *testing.T, pid int, signal syscall.Signal) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, signal), "process %d", pid)
}

// tmux runs a command of the session's tmux server.
func (s *testSession) tmux(args ...string) string {
	s.t.Helper()
	return runCommand(s.t, "tmux", append([]string{"-S", s.runtimeDir(s.id) + "/tmux"}, args...)...)
}

// TestTmuxConfig_UnreadableFailsTheStart checks that the error of each start names the cause,
// however fast its scope ends.
func TestTmuxConfig_UnreadableFailsTheStart(t *testing.T) {
	d := startDaemon(t, "TmuxConfig=/nowhere/tmux.conf")
	for n := range 8 {
		s, err := d.tryCreate(t, fmt.Sprintf("shop-%d", n), spec{"Command": []string{"sleep", "1000"}})
		assert.Equal(t, dbusapi.StartFailed, dbusapi.ShortErrorName(err), "%v", err)
		require.ErrorContains(t, err, "/nowhere/tmux.conf")
		assert.Contains(t, s.properties().text("Reason"), "/nowhere/tmux.conf")
	}
}

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// TestControllers_AreExaminedAfterSystemdWasReexecuted checks that a daemon records with which
// connection of systemd the scopes' controllers were examined, and that the next one examines them
// if that was another.
func TestControllers_AreExaminedAfterSystemdWasReexecuted(t *testing.T) {
	d := startDaemon(t)
	path := filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "corral", controllersFileName)
	first := string(testbed.WaitFile(t, path, nil))
	d.kill(syscall.SIGKILL)
	testbed.Systemctl(t, "daemon-reexec")
	d.launch()
	testbed.WaitFile(t, path, func(content []byte) bool { return len(content) > 0 && string(content) != first })
}

// TestSecondDaemon_ReportsTheFirstAndExits checks a second daemon that finds the state locked or
// the bus name taken; the first one is not affected.
func TestSecondDaemon_ReportsTheFirstAndExits(t *testing.T) {
	d := startDaemon(t)
	s := d.run(t, "first", "exec sleep 1000")
	before := s.waitState("running")
	for name, environment := range map[string][]string{
		"the same state":         d.env,
		"a state of its own":     append(d.env, "XDG_STATE_HOME="+d.dir+"/other"),
		"nothing but a bus name": append(d.env, "XDG_STATE_HOME="+d.dir+"/other", "XDG_RUNTIME_DIR="+d.dir),
	} {
		t.Run(name, func(t *testing.T) {
			second := exec.CommandContext(t.Context(), testbed.Programs(t).Corrald)
			second.Env = environment
			output, err := second.CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			assert.Equal(t, 1, exit.ExitCode(), "%s", output)
			assert.Contains(t, string(output), "another corrald")
			assert.NoDirExists(t, d.dir+"/other/corral/sessions/first", "the second daemon has adopted nothing")
		})
	}
	after := s.properties()
	assert.Equal(t, outcomeOf(before), outcomeOf(after))
	assert.Equal(t, before.number("MainPID"), after.number("MainPID"))
	s.must("Stop", uint64(0))
	s.assertOutcome(outcome{"stopped", "success", 2, 15, "", "active"})
}

// TestLostRecord_ScopeWithoutShimIsLeftAlone checks a scope whose record is lost and whose shim,
// the only process that knows its session, was killed: the daemon leaves it and its agent alone. A
// new session of that name cannot start until the scope has ended.
func TestLostRecord_ScopeWithoutShimIsLeftAlone(t *testing.T) {
	d := startDaemon(t)
	lost := d.run(t, "shop", "exec nohup sleep 1000")
	pid, shim := lost.waitState("running").number("MainPID"), lost.process(shimName)
	testbed.Poll(t, "the agent ignores SIGHUP", func() bool { return proc.IgnoresSignal(pid, syscall.SIGHUP) })
	d.kill(syscall.SIGKILL)
	kill(t, shim, syscall.SIGKILL)
	testbed.WaitExit(t, shim)
	require.NoError(t, os.RemoveAll(d.stateDir("shop")))
	d.launch()

	again, err := d.tryCreate(t, "shop", spec{"Command": []string{"sleep", "2000"}})
	require.ErrorContains(t, err, lost.unit())
	assert.Equal(t, dbusapi.StartFailed, dbusapi.ShortErrorName(err))
	require.NoError(t, syscall.Kill(pid, 0), "the agent is alive")
	assert.FileExists(t, d.runtimeDir("shop")+"/shim.sock", "the shim's socket still exists")

	testbed.Systemctl(t, "stop", lost.unit())
	again.must("Start")
	again.waitState("running")
	again.must("Remove", uint64(1))
}

// TestSessions_SurviveDaemonRestart checks that, however the daemon exits, the next one knows the
// exit codes of agents that ended in the meantime, and supervises those that still run as before.
func TestSessions_SurviveDaemonRestart(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			d := startDaemon(t)
			live := d.create(t, "live",
				spec{"Command": []string{"sh", "-c", `while read -r line; do echo "$line" >"$0.new"; mv "$0.new" "$0"; done`,
					d.dir + "/received"}})
			leaving := d.startLeavers(t)
			lost := d.run(t, "lost", "exec sleep 1000")
			before := live.waitState("running")
			tmux, scope := lost.process(tmuxName), lost.unit()

			code := d.kill(signal)
			assert.Equal(t, map[syscall.Signal]int{syscall.SIGTERM: 0, syscall.SIGKILL: -1}[signal], code)
			for _, l := range leaving {
				kill(t, l.pid, l.signal)
				testbed.WaitFile(t, d.stateDir(l.id)+"/exit_status", nil)
			}
			kill(t, tmux, syscall.SIGKILL)
			testbed.WaitExit(t, tmux)
			mark := d.signals.mark()
			d.launch()

			for _, l := range leaving {
				l.assertOutcome(l.want) // without waiting: it is known before the first call is answered
			}
			lost.assertOutcome(outcome{"stale", "session-lost", 0, 0, "scope running, session dead", "active"})
			assert.Equal(t, "active", testbed.Systemctl(t, "is-active", scope))
			after := live.properties()
			for _, property := range []string{
				"State", "MainPID", "NRuns", "ExecMainStartTimestamp", "StateChangeTimestamp", "ControlGroup",
				"SessionAlive",
			} {
				assert.Equal(t, before[property], after[property], property)
			}
			for _, s := range d.signals.after(mark) {
				c, changed := stateChange(s)
				assert.False(t, changed && c.id == "live", "the session did not change: %v", c)
			}
			live.must("SendInput", "still there?", dbusapi.InputEnter)
			assert.Equal(t, "still there?\n", live.awaitFile("received"))
			live.must("Stop", uint64(0))
			assert.Equal(t, "stopped", live.properties().text("State"))
			lost.must("Stop", uint64(0))
			lost.assertOutcome(outcome{"stopped", "success", 2, 15, "", "active"})
		})
	}
}

// leaver is a session whose agent exits on a signal.
type leaver struct {
	*testSession
	signal syscall.Signal
	want   outcome
	pid    int
}

// startLeavers starts sessions that end in different ways.
func (d *corrald) startLeavers(t *testing.T) []leaver {
	t.Helper()
	all := []leaver{
		{signal: syscall.SIGUSR1, want: outcome{"failed", "exit-code", 1, 7, "command exited with code 7", "error"}},
		{signal: syscall.SIGUSR2, want: outcome{"completed", "success", 1, 0, "", "active"}},
		{signal: syscall.SIGKILL, want: outcome{"failed", "signal", 2, 9, "command was killed by SIGKILL", "error"}},
	}
	for i := range all {
		id := fmt.Sprintf("leaving-%d", i)
		all[i].testSession = d.run(t, id,
			fmt.Sprintf("trap 'exit 7' USR1; trap 'exit 0' USR2; echo up >%s/%s.up; while :; do sleep 1000 & wait; done",
				d.dir, id))
		all[i].awaitFile(id + ".up")
		all[i].pid = all[i].properties().number("MainPID")
	}
	return all
}

// after returns the signals after a mark.
func (l *signalLog) after(mark int) []*dbus.Signal {
	signals, _ := l.since(mark)
	return signals
}

// TestSystemdReload_KeepsSessions reloads and re-executes systemd while sessions run and end.
func TestSystemdReload_KeepsSessions(t *testing.T) {
	d := startDaemon(t)
	live := d.run(t, "live", "exec sleep 1000")
	before := live.waitState("running")
	for _, verb := range []string{"daemon-reload", "daemon-reexec"} {
		leaving := d.startLeavers(t)
		done := make(chan error, 1)
		go func() { done <- exec.Command("systemctl", "--user", verb).Run() }()
		for _, l := range leaving {
			kill(t, l.pid, l.signal)
		}
		require.NoError(t, <-done, verb)
		for _, l := range leaving {
			l.waitOutcome(l.want)
			l.tmux("kill-server")
			l.waitNoScope()
			l.assertOutcome(l.want)
			l.must("Remove", uint64(0))
		}
	}
	after := live.properties()
	assert.Equal(t, outcomeOf(before), outcomeOf(after))
	assert.Equal(t, before.number("MainPID"), after.number("MainPID"))
	testbed.Systemctl(t, "stop", live.unit())
	live.waitOutcome(outcome{"stopped", "success", 2, 15, "its scope was stopped", "active"})
}

// TestService_RestartKeepsAgents checks that agents keep running when corrald runs as a service and
// is restarted, and that systemctl shows its status text.
func TestService_RestartKeepsAgents(t *testing.T) {
	d := startDaemon(t)
	require.Equal(t, 0, d.kill(syscall.SIGTERM))
	args := []string{"--user", "--quiet", "--unit=corrald.service", "--service-type=notify",
		"--property=NotifyAccess=main", "--property=WatchdogSec=20"}
	for _, entry := range d.env {
		if name, _, _ := strings.Cut(entry, "="); name == "XDG_STATE_HOME" || name == "XDG_CONFIG_HOME" ||
			name == "CORRAL_SHIM" || name == "GORACE" {
			args = append(args, "--setenv="+entry)
		}
	}
	output := filepath.Join(d.dir, "service.log")
	args = append(args, "--setenv=HOME="+d.dir, "--property=StandardError=append:"+output, testbed.Programs(t).Corrald)
	runCommand(t, "systemd-run", args...)
	t.Cleanup(func() {
		_ = exec.Command("systemctl", "--user", "stop", "corrald.service").Run()
		if t.Failed() {
			text, _ := exec.Command("cat", output).Output()
			t.Logf("log of corrald.service:\n%s", text)
		}
	})
	s := d.run(t, "served", "exec sleep 1000")
	pid := s.waitState("running").number("MainPID")
	testbed.Poll(t, "the status text is set", func() bool {
		return testbed.Systemctl(t, "show", "--value", "--property=StatusText", "corrald.service") == "1 running"
	})
	first := testbed.Systemctl(t, "show", "--value", "--property=MainPID", "corrald.service")
	testbed.Systemctl(t, "restart", "corrald.service")
	assert.NotEqual(t, first, testbed.Systemctl(t, "show", "--value", "--property=MainPID", "corrald.service"))
	s.assertOutcome(outcome{"running", "", 0, 0, "", "active"})
	assert.Equal(t, pid, s.properties().number("MainPID"))
	environment := strings.ReplaceAll(readFile(t, fmt.Sprintf("/proc/%d/environ", pid)), "\x00", "\n")
	for _, name := range []string{
		"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID",
	} {
		assert.NotContains(t, "\n"+environment, "\n"+name+"=", "the agent has a variable of the service")
	}
	s.must("Stop", uint64(0))
	s.assertOutcome(outcome{"stopped", "success", 2, 15, "", "active"})
}

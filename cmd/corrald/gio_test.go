package main

import (
	"bufio"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// TestGio_ProxyStaysCurrent checks that a desktop program that caches properties and follows the
// signals has the daemon's values after all operations of a session.
func TestGio_ProxyStaysCurrent(t *testing.T) {
	d := startDaemon(t)
	s := d.savingSession(t, "shop")
	path := string(dbusapi.SessionPath("shop"))
	gio := exec.CommandContext(t.Context(), "/usr/bin/python3", "testdata/follow.py", dbusapi.BusName, path,
		dbusapi.SessionInterface, string(dbusapi.ManagerPath))
	out, err := gio.StdoutPipe()
	require.NoError(t, err)
	var complaints strings.Builder
	gio.Stderr = &complaints
	require.NoError(t, gio.Start())
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	require.Equal(t, "ready", testbed.Receive(t, lines, "the filled caches"), "%s", &complaints)
	s.must("SetLabels", map[string]string{"a": "b"})
	s.must("Freeze")
	s.must("Thaw")
	s.must("Stop", uint64(0))
	other := d.create(t, "other", spec{"Command": []string{"true"}, "Start": false})
	d.create(t, "third", spec{"Command": []string{"true"}, "Start": false})
	s.must("Start")
	s.must("SetUnitProperties", []property{{"TasksMax", uint64(99)}})
	s.must("Suspend")
	other.must("Remove", uint64(0))
	s.must("Resume")
	s.must("SetDescription", "the end")
	var output []string
	for line := range lines {
		output = append(output, line)
	}
	require.NoError(t, gio.Wait(), "%s", &complaints)
	assert.Equal(t, []string{
		"state stopping", "state stopped", "state starting", "state running", "state stopping", "state suspended",
		"state starting", "state running", "same",
	}, output)
}

// TestGdbus checks GLib's own command-line tool.
func TestGdbus(t *testing.T) {
	d := startDaemon(t)
	d.run(t, "fix-auth", "exec sleep 1000").waitState("running")
	path := string(dbusapi.SessionPath("fix-auth"))
	gdbus := func(verb string, args ...string) string {
		return runCommand(t, "gdbus", append([]string{verb, "--session", "--dest", dbusapi.BusName}, args...)...)
	}
	tree := gdbus("introspect", "--recurse", "--object-path", "/")
	for _, there := range []string{
		"interface " + dbusapi.SessionInterface, "interface " + dbusapi.ManagerInterface,
		"interface org.freedesktop.LogControl1", path,
	} {
		assert.Contains(t, tree, there)
	}
	assert.Contains(t, gdbus("introspect", "--object-path", path), "State = 'running'")
	assert.Contains(t, gdbus("call", "--object-path", string(dbusapi.ManagerPath), "--method",
		dbusapi.ManagerInterface+".ListSessions"), "('fix-auth', 'command', 'running'")
	assert.Equal(t, "()\n", gdbus("call", "--object-path", path, "--method",
		dbusapi.SessionInterface+".SetUnitProperties", "[('TasksMax', <uint64 88>)]"))
	refusal, err := exec.CommandContext(t.Context(), "gdbus", "call", "--session", "--dest", dbusapi.BusName,
		"--object-path", path, "--method",
		dbusapi.SessionInterface+".SetUnitProperties", "[('Frobnicate', <true>)]").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(refusal),
		"org.freedesktop.DBus.Error.InvalidArgs: systemd rejected unit property Frobnicate")
}

// TestBusctl_SetsPropertiesAndCalls sets properties and calls methods with busctl.
func TestBusctl_SetsPropertiesAndCalls(t *testing.T) {
	d := startDaemon(t)
	s := d.run(t, "fix-auth", "exec sleep 1000")
	s.waitState("running")
	busctl := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "busctl", append([]string{"--user"}, args...)...).CombinedOutput()
		return string(out), err
	}
	const logControl = "org.freedesktop.LogControl1"
	_, err := busctl("set-property", dbusapi.BusName, "/org/freedesktop/LogControl1", logControl, "LogLevel", "s", "debug")
	require.NoError(t, err)
	level, err := busctl("get-property", dbusapi.BusName, "/org/freedesktop/LogControl1", logControl, "LogLevel")
	require.NoError(t, err)
	assert.Equal(t, "s \"debug\"\n", level)
	output, err := busctl("set-property", dbusapi.BusName, string(dbusapi.SessionPath("fix-auth")),
		dbusapi.SessionInterface, "State", "s", "stopped")
	require.Error(t, err)
	assert.Contains(t, output, "State cannot be set")
	_, err = busctl("call", dbusapi.BusName, string(dbusapi.SessionPath("fix-auth")), dbusapi.SessionInterface, "Freeze")
	require.NoError(t, err)
	frozen, err := busctl("get-property", dbusapi.BusName, string(dbusapi.SessionPath("fix-auth")),
		dbusapi.SessionInterface, "Frozen")
	require.NoError(t, err)
	assert.Equal(t, "b true\n", frozen)
	text, err := busctl("introspect", dbusapi.BusName, string(dbusapi.SessionPath("fix-auth")))
	require.NoError(t, err)
	for _, member := range []string{
		`\.Id +property +s +"fix-auth" +const`, `\.MemoryCurrent +property +t +\d+ +-`,
		`\.AttentionMessage +property +s +"" +emits-invalidation`, `\.State +property +s +"running" +emits-change`,
	} {
		assert.Regexp(t, member, text, "the annotations are understood")
	}
}

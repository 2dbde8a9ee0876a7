package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// secrets are values that reach an agent's environment from each of its sources.
var secrets = map[string]string{
	"CALLER": "canary-of-the-caller", "OWN": "canary-of-the-session", "SHELL_KEY": "canary-of-the-login-shell",
	"DEFINED": "canary-of-the-definition", "IN_FILE": "canary-of-the-file",
}

// TestSecrets_ReachOnlyTheAgent checks that a value of the environment appears in no argument list,
// in no log record, on the bus only in the call that passed it, and in no file. The exception is
// what was set for the session itself: its record contains that.
func TestSecrets_ReachOnlyTheAgent(t *testing.T) {
	setLoginShell(t, "/bin/bash",
		map[string]string{".bash_profile": "echo $- canary; export SHELL_KEY=" + secrets["SHELL_KEY"] + "\n"})
	d := startDaemon(t)
	d.write("keys", "IN_FILE="+secrets["IN_FILE"]+"\n")
	d.write("config/corral/agents/command.agent.d/keys.conf",
		"[Environment]\nSet=DEFINED="+secrets["DEFINED"]+"\nEnvironmentFile=%h/keys\n")
	require.NoError(t, d.manager("Reload", nil))
	messages := monitorBus(t)

	const report = "/usr/bin/env -0 >$0.new; /bin/mv $0.new $0; exec /bin/sleep 1000"
	out := filepath.Join(testbed.Dir(t), "environment")
	caller := []string{"CALLER=" + secrets["CALLER"]}
	s := d.create(t, "secret", spec{
		"Command": []string{"/bin/sh", "-c", report, out}, "Environment": []string{"OWN=" + secrets["OWN"]},
		"CallerEnvironment": caller,
	})
	arrived := func() {
		t.Helper()
		got := strings.Split(string(testbed.WaitFile(t, out, nil)), "\x00")
		for name, value := range secrets {
			assert.Contains(t, got, name+"="+value)
		}
		for pid, line := range commandLines(t) {
			assert.NotContains(t, line, "canary-of", "process %d", pid)
		}
		d.assertNoSecretFiles(t)
	}
	arrived()
	require.NoError(t, os.Remove(out))
	require.NoError(t, d.manager("BeginSession", []any{"secret", "restart", spec{"CallerEnvironment": caller}.variants()}))
	arrived()
	require.NoError(t, os.Remove(out))
	s.must("Suspend")
	options := spec{"CallerEnvironment": caller, "x-later": true}.variants()
	require.NoError(t, d.manager("SendInputEx", []any{"secret", "", dbusapi.InputResume, options}))
	arrived()
	unknown := spec{"Later": true}.variants()
	assertRefused(t, d.manager("SendInputEx", []any{"secret", "", uint64(0), unknown}), dbusapi.InvalidArgs, "Later")
	for _, unit := range []string{"app-corral-command-secret.scope", "corrald.service"} {
		assert.NotContains(t, testbed.Systemctl(t, "show", unit), "canary-of")
	}
	var has, missing []dbusapi.Variable
	var path string
	require.NoError(t, d.call(dbusapi.SessionPath("secret"), dbusapi.SessionInterface+".GetEnvironment",
		nil, &has, &missing, &path))
	for name, source := range map[string]string{
		"CALLER": "caller", "OWN": "session", "SHELL_KEY": "login-shell", "DEFINED": "definition", "IN_FILE": "file",
		"TERM": "corral", "LANG": "manager",
	} {
		assert.Contains(t, has, dbusapi.Variable{Name: name, Source: source})
	}
	assert.Empty(t, missing)
	s.must("SetDescription", "another")
	s.must("Stop", uint64(0))
	s.waitState("stopped")

	require.NoError(t, os.Remove(out))
	require.NoError(t, d.manager("ResumeSession", []any{"secret"}))
	got := string(testbed.WaitFile(t, out, nil))
	assert.NotContains(t, got, secrets["CALLER"], "the caller's variable is not kept")
	assert.Contains(t, got, secrets["OWN"])
	require.NoError(t, d.call(dbusapi.SessionPath("secret"), dbusapi.SessionInterface+".GetEnvironment",
		nil, &has, &missing, &path))
	assert.Equal(t, []dbusapi.Variable{{Name: "CALLER", Source: "caller"}}, missing,
		"the name of a variable that existed before is reported")

	assert.NotContains(t, d.log.String(), "canary-of")
	calls := 0
	for _, line := range messages() {
		if strings.Contains(line, "canary-of") {
			var message struct{ Type, Member string }
			require.NoError(t, json.Unmarshal([]byte(line), &message))
			assert.Equal(t, "method_call", message.Type, "%s", line)
			assert.Contains(t, []string{"CreateSession", "BeginSession", "SendInputEx"}, message.Member)
			calls++
		}
	}
	assert.Equal(t, 3, calls)
}

// assertNoSecretFiles checks every file that Corral has written, or that another program has
// written for it.
func (d *corrald) assertNoSecretFiles(t *testing.T) {
	t.Helper()
	seen := 0
	for _, root := range []string{
		d.dir + "/state", os.Getenv("XDG_RUNTIME_DIR"), os.Getenv("XDG_CACHE_HOME"), os.Getenv("XDG_STATE_HOME"),
		d.dir + "/.cache",
	} {
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return nil //nolint:nilerr // a file that does not exist contains nothing
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return nil //nolint:nilerr // the same
			}
			seen++
			if strings.HasPrefix(entry.Name(), "session.json") {
				text = bytes.ReplaceAll(text, []byte(secrets["OWN"]), nil) // set for the session itself
				info, err := entry.Info()
				if assert.NoError(t, err) {
					assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
				}
			}
			assert.NotContains(t, string(text), "canary-of", "%s", path)
			return nil
		})
	}
	assert.Greater(t, seen, 3)
}

// monitorBus records all messages on the bus. The returned function stops that, and returns the
// messages.
func monitorBus(t *testing.T) (end func() []string) {
	t.Helper()
	file, err := os.Create(filepath.Join(testbed.Dir(t), "monitor"))
	require.NoError(t, err)
	cmd := exec.Command("busctl", "--user", "--json=short", "monitor")
	cmd.Stdout, cmd.Stderr = file, file
	require.NoError(t, cmd.Start())
	stop := func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	t.Cleanup(stop)
	testbed.Poll(t, "the monitor listens", func() bool {
		text, _ := os.ReadFile(file.Name())
		return bytes.Contains(text, []byte("Monitoring"))
	})
	return func() []string {
		const last = "the last message"
		_ = exec.Command("busctl", "--user", "call", "org.freedesktop.DBus", "/org/freedesktop/DBus",
			"org.freedesktop.DBus", "NameHasOwner", "s", last).Run()
		var text []byte
		testbed.Poll(t, "the monitor has received everything", func() bool {
			text, _ = os.ReadFile(file.Name())
			return bytes.Contains(text, []byte(last)) && bytes.HasSuffix(text, []byte("\n"))
		})
		stop()
		return strings.Split(string(text), "\n")
	}
}

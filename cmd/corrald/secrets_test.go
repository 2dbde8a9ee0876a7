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

// secrets are values that an agent has from each place that it can have one from.
var secrets = map[string]string{
	"CALLER": "canary-of-the-caller", "OWN": "canary-of-the-session", "SHELL_KEY": "canary-of-the-login-shell",
	"DEFINED": "canary-of-the-definition", "IN_FILE": "canary-of-the-file",
}

// TestSecrets_ReachOnlyTheAgent: what is in an environment is in no argument list, in no record of
// ours, on the bus in no message but the call that brought it, and in no file that nobody has asked
// for: what was set for the session is kept in its record.
func TestSecrets_ReachOnlyTheAgent(t *testing.T) {
	shellHome(t, "/bin/bash", map[string]string{".bash_profile": "echo $- canary; export SHELL_KEY=" + secrets["SHELL_KEY"] + "\n"})
	d := startDaemon(t)
	d.write("keys", "IN_FILE="+secrets["IN_FILE"]+"\n")
	d.write("config/corral/agents/command.agent.d/keys.conf", "[Environment]\nSet=DEFINED="+secrets["DEFINED"]+"\nEnvironmentFile=%h/keys\n")
	require.NoError(t, d.manager("Reload", nil))
	overheard := monitor(t)

	const report = "/usr/bin/env -0 >$0.new; /bin/mv $0.new $0; exec /bin/sleep 1000"
	out := filepath.Join(testbed.Dir(t), "environment")
	caller := []string{"CALLER=" + secrets["CALLER"]}
	s := d.create(t, "secret", spec{
		"Command": []string{"/bin/sh", "-c", report, out}, "Environment": []string{"OWN=" + secrets["OWN"]}, "CallerEnvironment": caller,
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
		d.noSecretFiles(t)
	}
	arrived()
	require.NoError(t, os.Remove(out))
	require.NoError(t, d.manager("BeginSession", []any{"secret", "restart", spec{"CallerEnvironment": caller}.variants()}))
	arrived()
	for _, unit := range []string{"app-corral-command-secret.scope", "corrald.service"} {
		assert.NotContains(t, testbed.Systemctl(t, "show", unit), "canary-of")
	}
	var has, missing []dbusapi.Variable
	var path string
	require.NoError(t, d.call(dbusapi.SessionPath("secret"), dbusapi.SessionInterface+".GetEnvironment", nil, &has, &missing, &path))
	for name, source := range map[string]string{"CALLER": "caller", "OWN": "session", "SHELL_KEY": "login-shell", "DEFINED": "definition", "IN_FILE": "file", "TERM": "corral", "LANG": "manager"} {
		assert.Contains(t, has, dbusapi.Variable{Name: name, Source: source})
	}
	assert.Empty(t, missing)
	s.must("SetDescription", "another")
	s.must("Stop", uint64(0))
	s.become("stopped")

	require.NoError(t, os.Remove(out))
	require.NoError(t, d.manager("ResumeSession", []any{"secret"}))
	got := string(testbed.WaitFile(t, out, nil))
	assert.NotContains(t, got, secrets["CALLER"], "it is not kept")
	assert.Contains(t, got, secrets["OWN"])
	require.NoError(t, d.call(dbusapi.SessionPath("secret"), dbusapi.SessionInterface+".GetEnvironment", nil, &has, &missing, &path))
	assert.Equal(t, []dbusapi.Variable{{Name: "CALLER", Source: "caller"}}, missing, "that it was there once is told, by name")

	assert.NotContains(t, d.log.String(), "canary-of")
	calls := 0
	for _, line := range overheard() {
		if strings.Contains(line, "canary-of") {
			var message struct{ Type, Member string }
			require.NoError(t, json.Unmarshal([]byte(line), &message))
			assert.Equal(t, "method_call", message.Type, "%s", line)
			assert.Contains(t, []string{"CreateSession", "BeginSession"}, message.Member)
			calls++
		}
	}
	assert.Equal(t, 2, calls)
}

// noSecretFiles looks into every file that is ours, or that somebody has made for us.
func (d *corrald) noSecretFiles(t *testing.T) {
	t.Helper()
	seen := 0
	for _, root := range []string{d.dir + "/state", os.Getenv("XDG_RUNTIME_DIR"), os.Getenv("XDG_CACHE_HOME"), os.Getenv("XDG_STATE_HOME"), d.dir + "/.cache"} {
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return nil //nolint:nilerr // what is not there, or is gone, has nothing in it
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return nil //nolint:nilerr // the same
			}
			seen++
			if strings.HasPrefix(entry.Name(), "session.json") {
				text = bytes.ReplaceAll(text, []byte(secrets["OWN"]), nil) // asked for
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

// monitor hears everything that is said on the bus. The function that it returns ends that, and
// returns the messages.
func monitor(t *testing.T) (end func() []string) {
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
		const last = "the last thing that is said"
		_ = exec.Command("busctl", "--user", "call", "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "NameHasOwner", "s", last).Run()
		var text []byte
		testbed.Poll(t, "the monitor has heard all", func() bool {
			text, _ = os.ReadFile(file.Name())
			return bytes.Contains(text, []byte(last)) && bytes.HasSuffix(text, []byte("\n"))
		})
		stop()
		return strings.Split(string(text), "\n")
	}
}

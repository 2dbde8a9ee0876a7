package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/testbed"
)

// oddArguments are arguments that a shell, systemd, tmux or an agent definition could each change.
var oddArguments = []string{
	"", "two words", "tab\tand\nnew line\n", `"double"`, `it's`, `back\slash \n \\`, "$HOME", "${HOME}",
	"$(touch pwned)", "`touch pwned`", "; touch pwned",
	"%h %U %%", "#{pane_title}", "~", "*", "-x", "--", "--help", "a=b", "|", "&", ">pwned", "äöü 🐎", "\x01\x1b[31m\x7f",
	";", "{", "!!", " leading", "trailing ", "",
}

// TestArguments_ArriveUnchanged checks that nothing between the client and execve interprets the
// arguments.
func TestArguments_ArriveUnchanged(t *testing.T) {
	d := startDaemon(t)
	work := testbed.Dir(t)
	program := d.dir + "/print arguments"
	d.write("print arguments", "#!/bin/bash\nprintf '%s\\0' \"$@\" >got.new; mv got.new got; exec sleep 1000\n")
	require.NoError(t, os.Chmod(program, 0o700))
	s := d.create(t, "odd", spec{"Command": append([]string{program}, oddArguments...), "WorkingDirectory": work})
	got := testbed.WaitFile(t, work+"/got", nil)
	assert.Equal(t, oddArguments, strings.Split(strings.TrimSuffix(string(got), "\x00"), "\x00"))
	assert.Equal(t, append([]string{program}, oddArguments...), s.properties()["Command"].Value())
	for _, dir := range []string{work, d.dir, os.Getenv("HOME")} {
		assert.NoFileExists(t, filepath.Join(dir, "pwned"))
	}
}

// TestArguments_SingleIsNotRunByAShell checks a command that consists of one argument, which tmux
// would pass to a shell.
func TestArguments_SingleIsNotRunByAShell(t *testing.T) {
	d := startDaemon(t)
	work := testbed.Dir(t)
	_, err := d.tryCreate(t, "line", spec{"Command": []string{"touch pwned; sleep 1000"}, "WorkingDirectory": work})
	assertRefused(t, err, dbusapi.StartFailed, `command "touch pwned; sleep 1000" not found`)
	assert.NoFileExists(t, work+"/pwned")

	script := d.dir + "/a script; touch pwned"
	d.write("a script; touch pwned", "#!/bin/sh\necho here >here\n")
	require.NoError(t, os.Chmod(script, 0o700))
	d.create(t, "script", spec{"Command": []string{script}, "WorkingDirectory": work}).
		waitOutcome(outcome{"completed", "success", 1, 0, "", "active"})
	assert.FileExists(t, work+"/here")
	assert.NoFileExists(t, work+"/pwned")
}

// TestEnvironment_ReachesOnlyTheAgent checks that the environment is visible to the agent only. The
// arguments are visible only in the agent's own command line, because its user chose to put them
// there.
func TestEnvironment_ReachesOnlyTheAgent(t *testing.T) {
	d := startDaemon(t)
	const token, argument = "hunter2-in-the-environment", "hunter3-in-an-argument"
	environment := []string{
		"LINES_OF=one\ntwo\n\nfour", "EMPTY=", "WITH_EQUALS=a=b=c", "TOKEN=" + token, "QUOTES=\"'$HOME`",
		"PATH=/usr/bin:/bin",
	}
	work := testbed.Dir(t)
	s := d.create(t, "secret", spec{
		"Command":     []string{"bash", "-c", `env -0 >got.new; mv got.new got; while read -r line; do :; done`, argument},
		"Environment": environment, "WorkingDirectory": work,
	})
	got := strings.Split(string(testbed.WaitFile(t, work+"/got", nil)), "\x00")
	for _, entry := range environment {
		assert.Contains(t, got, entry)
	}
	assert.Contains(t, got, "CORRAL_SESSION=secret")
	assert.Contains(t, got, "PWD="+work)
	ofDaemon := []string{"NOTIFY_SOCKET", "INVOCATION_ID", "JOURNAL_STREAM", "CORRAL_SHIM", "CORRAL_TESTBED"}
	for _, entry := range got {
		name, _, _ := strings.Cut(entry, "=")
		assert.NotContains(t, ofDaemon, name, "the daemon's own variable")
	}
	agent := s.waitState("running").number("MainPID")
	seen := 0
	for pid, line := range commandLines(t) {
		assert.NotContains(t, line, token, "process %d", pid)
		if bytes.Contains([]byte(line), []byte(argument)) {
			assert.Equal(t, agent, pid, "%q", line)
			seen++
		}
	}
	assert.Equal(t, 1, seen)
	assert.NotContains(t, d.log.String(), token)
	assert.NotContains(t, d.log.String(), argument)
	assert.NoFileExists(t, d.runtimeDir("secret")+"/run", "the shim has removed its instructions")
}

// commandLines returns the command lines of all processes, which every user can read.
func commandLines(t *testing.T) map[int]string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	lines := map[int]string{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && pid != os.Getpid() {
			lines[pid] = string(content)
		}
	}
	return lines
}

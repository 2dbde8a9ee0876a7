package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/testbed"
)

// testSession is a session under test.
type testSession struct {
	*corrald
	t  *testing.T
	id string
}

// spec are the details of CreateSession, by key.
type spec map[string]any

func (s spec) variants() map[string]dbus.Variant {
	m := map[string]dbus.Variant{}
	for key, value := range s {
		m[key] = dbus.MakeVariant(value)
	}
	return m
}

// create creates a session of the agent "command" with the details in sp, and starts it unless sp
// has Start=false.
func (d *corrald) create(t *testing.T, id string, sp spec) *testSession {
	t.Helper()
	s, err := d.tryCreate(t, id, sp)
	require.NoError(t, err, "session %s", id)
	return s
}

// tryCreate is create for a session that may fail to start.
func (d *corrald) tryCreate(t *testing.T, id string, sp spec) (*testSession, error) {
	t.Helper()
	sp = maps.Clone(sp)
	sp["Id"] = id
	if sp["WorkingDirectory"] == nil {
		sp["WorkingDirectory"] = d.dir
	}
	var got string
	var path dbus.ObjectPath
	err := d.manager("CreateSession", []any{"command", sp.variants()}, &got, &path)
	if err == nil {
		assert.Equal(t, id, got)
		assert.Equal(t, dbusapi.SessionPath(id), path)
	}
	return &testSession{d, t, id}, err
}

// run creates and starts a session that runs an sh script.
func (d *corrald) run(t *testing.T, id, script string) *testSession {
	t.Helper()
	return d.create(t, id, spec{"Command": []string{"sh", "-c", script}})
}

// do calls a method of the session.
func (s *testSession) do(method string, args ...any) error {
	return s.call(dbusapi.SessionPath(s.id), dbusapi.SessionInterface+"."+method, args)
}

// must is do for a call that has to succeed.
func (s *testSession) must(method string, args ...any) {
	s.t.Helper()
	require.NoError(s.t, s.do(method, args...), "%s of session %s", method, s.id)
}

// properties are the properties of a session, by name.
type properties map[string]dbus.Variant

func (p properties) text(name string) string {
	v, _ := p[name].Value().(string)
	return v
}

func (p properties) number(name string) int {
	switch v := p[name].Value().(type) {
	case int32:
		return int(v)
	case uint32:
		return int(v)
	}
	return -1
}

func (p properties) isTrue(name string) bool {
	v, _ := p[name].Value().(bool)
	return v
}

// properties returns the current properties.
func (s *testSession) properties() properties {
	s.t.Helper()
	var p properties
	require.NoError(s.t, s.call(dbusapi.SessionPath(s.id), "org.freedesktop.DBus.Properties.GetAll",
		[]any{dbusapi.SessionInterface}, &p),
		"session %s", s.id)
	return p
}

// wait waits until accept returns true for the session's properties, and returns them. It reads
// them again after each signal.
func (s *testSession) wait(what string, accept func(properties) bool) properties {
	s.t.Helper()
	for deadline := time.After(patience); ; {
		mark := s.signals.mark()
		_, more := s.signals.since(mark)
		p := s.properties()
		if accept(p) {
			return p
		}
		select {
		case <-more:
		case <-deadline:
			s.t.Fatalf("session %s is not %s within %v: %v", s.id, what, patience, outcomeOf(p))
		}
	}
}

// waitState waits for a state.
func (s *testSession) waitState(state string) properties {
	s.t.Helper()
	return s.wait(state, func(p properties) bool { return p.text("State") == state })
}

// outcome is how a session reports the end of its run.
type outcome struct {
	State, Result string
	Code, Status  int
	Reason        string
	Lifecycle     string
}

func outcomeOf(p properties) outcome {
	return outcome{
		p.text("State"), p.text("Result"), p.number("ExecMainCode"), p.number("ExecMainStatus"),
		p.text("Reason"), p.text("Lifecycle"),
	}
}

// waitOutcome waits for the expected state, and compares the whole outcome.
func (s *testSession) waitOutcome(want outcome) {
	s.t.Helper()
	p := s.waitState(want.State)
	assert.Equal(s.t, want, outcomeOf(p), "session %s", s.id)
}

// assertOutcome compares the current outcome with the expected one.
func (s *testSession) assertOutcome(want outcome) {
	s.t.Helper()
	assert.Equal(s.t, want, outcomeOf(s.properties()), "session %s", s.id)
}

// unit is the name of the session's scope.
func (s *testSession) unit() string { return "app-corral-command-" + s.id + ".scope" }

// awaitFile waits until an agent has written a file below the daemon's home, and returns its
// content. The agent has to write the file atomically.
func (s *testSession) awaitFile(name string) string {
	s.t.Helper()
	return string(testbed.WaitFile(s.t, s.dir+"/"+name, func(content []byte) bool { return len(content) > 0 }))
}

// processes returns the processes of the session's control group, by their name in the kernel.
func (s *testSession) processes() map[string][]int {
	s.t.Helper()
	group := s.properties().text("ControlGroup")
	require.NotEmpty(s.t, group, "session %s has no control group", s.id)
	pids, err := proc.Processes(group)
	require.NoError(s.t, err, "session %s", s.id)
	named := map[string][]int{}
	for _, pid := range pids {
		name := processName(pid)
		named[name] = append(named[name], pid)
	}
	return named
}

func processName(pid int) string {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSpace(string(name))
}

// process returns the only process of the session with this name. A tmux server forks to record its
// pane in utmp: until the child executes another program, there seem to be two servers.
func (s *testSession) process(name string) (pid int) {
	s.t.Helper()
	testbed.Poll(s.t, "session "+s.id+" has one process "+name, func() bool {
		all := s.processes()[name]
		if len(all) == 1 {
			pid = all[0]
		}
		return len(all) == 1
	})
	return pid
}

// waitNoScope waits until the daemon knows that the session's scope has ended. Changes of the
// property ControlGroup are not signalled.
func (s *testSession) waitNoScope() {
	s.t.Helper()
	testbed.Poll(s.t, "session "+s.id+" is without a scope", func() bool {
		return s.properties().text("ControlGroup") == ""
	})
}

// assertRefused checks that err is this error of the contract, with a message that contains each of
// the words.
func assertRefused(t *testing.T, err error, name string, words ...string) {
	t.Helper()
	require.Error(t, err, "expected the error %s", name)
	var answer dbus.Error
	require.ErrorAs(t, err, &answer)
	assert.Equal(t, dbusapi.ErrorName(name), answer.Name, "message: %v", answer.Body)
	text := fmt.Sprint(answer.Body...)
	for _, word := range words {
		assert.Contains(t, text, word)
	}
	assert.False(t, strings.HasSuffix(strings.TrimSpace(text), ":"), "the message lacks its cause: %q", text)
	assert.Less(t, len(text), 1000, "a message is one sentence")
}

// runCommand runs a program and returns its output. The test fails if the program fails.
func runCommand(t *testing.T, name string, args ...string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	require.NoError(t, err, "%s %q\n%s", name, args, output)
	return string(output)
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}

// waitFile waits until a file contains text.
func waitFile(t *testing.T, path, text string) {
	t.Helper()
	testbed.WaitFile(t, path, func(content []byte) bool { return strings.Contains(string(content), text) })
}

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

// subject is a session that a test looks at.
type subject struct {
	*corrald
	t  *testing.T
	id string
}

// spec is what CreateSession is given, by its keys.
type spec map[string]any

func (s spec) variants() map[string]dbus.Variant {
	m := map[string]dbus.Variant{}
	for key, value := range s {
		m[key] = dbus.MakeVariant(value)
	}
	return m
}

// create creates a session of the agent "command" from what the spec says, and starts it unless
// that says otherwise.
func (d *corrald) create(t *testing.T, id string, sp spec) *subject {
	t.Helper()
	s, err := d.tryCreate(t, id, sp)
	require.NoError(t, err, "session %s", id)
	return s
}

// tryCreate is create for a session that may not come to run.
func (d *corrald) tryCreate(t *testing.T, id string, sp spec) (*subject, error) {
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
	return &subject{d, t, id}, err
}

// run creates a session that runs a script of sh, and starts it.
func (d *corrald) run(t *testing.T, id, script string) *subject {
	t.Helper()
	return d.create(t, id, spec{"Command": []string{"sh", "-c", script}})
}

// do calls a method of the session.
func (s *subject) do(method string, args ...any) error {
	return s.call(dbusapi.SessionPath(s.id), dbusapi.SessionInterface+"."+method, args)
}

// must is do for what has to work.
func (s *subject) must(method string, args ...any) {
	s.t.Helper()
	require.NoError(s.t, s.do(method, args...), "%s of session %s", method, s.id)
}

// facts are the properties of a session, by name.
type facts map[string]dbus.Variant

func (f facts) text(name string) string {
	v, _ := f[name].Value().(string)
	return v
}

func (f facts) number(name string) int {
	switch v := f[name].Value().(type) {
	case int32:
		return int(v)
	case uint32:
		return int(v)
	}
	return -1
}

func (f facts) yes(name string) bool {
	v, _ := f[name].Value().(bool)
	return v
}

// facts returns all properties as they are now.
func (s *subject) facts() facts {
	s.t.Helper()
	var f facts
	require.NoError(s.t, s.call(dbusapi.SessionPath(s.id), "org.freedesktop.DBus.Properties.GetAll", []any{dbusapi.SessionInterface}, &f),
		"session %s", s.id)
	return f
}

// wait waits until the session's properties are accepted, and returns them. It looks after each
// signal.
func (s *subject) wait(what string, accept func(facts) bool) facts {
	s.t.Helper()
	for deadline := time.After(patience); ; {
		mark := s.heard.mark()
		_, more := s.heard.since(mark)
		f := s.facts()
		if accept(f) {
			return f
		}
		select {
		case <-more:
		case <-deadline:
			s.t.Fatalf("session %s is not %s within %v but %v", s.id, what, patience, outcomeOf(f))
		}
	}
}

// become waits for a state.
func (s *subject) become(state string) facts {
	s.t.Helper()
	return s.wait(state, func(f facts) bool { return f.text("State") == state })
}

// outcome is what a session says of its end.
type outcome struct {
	State, Result string
	Code, Status  int
	Reason        string
	Lifecycle     string
}

func outcomeOf(f facts) outcome {
	return outcome{
		f.text("State"), f.text("Result"), f.number("ExecMainCode"), f.number("ExecMainStatus"), f.text("Reason"), f.text("Lifecycle"),
	}
}

// ends waits until the session is what it is expected to be.
func (s *subject) ends(want outcome) {
	s.t.Helper()
	f := s.become(want.State)
	assert.Equal(s.t, want, outcomeOf(f), "session %s", s.id)
}

// is tells whether the session is what it is expected to be, now.
func (s *subject) is(want outcome) {
	s.t.Helper()
	assert.Equal(s.t, want, outcomeOf(s.facts()), "session %s", s.id)
}

// unit is the name of the session's scope.
func (s *subject) unit() string { return "app-corral-command-" + s.id + ".scope" }

// file waits for a file of this name in the daemon's home, which an agent writes whole, and returns
// its content.
func (s *subject) file(name string) string {
	s.t.Helper()
	return string(testbed.WaitFile(s.t, s.dir+"/"+name, func(content []byte) bool { return len(content) > 0 }))
}

// processes returns the processes of the session's control group, by the name that the kernel has
// for them.
func (s *subject) processes() map[string][]int {
	s.t.Helper()
	group := s.facts().text("ControlGroup")
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

// one returns the only process of the session with this name. A tmux server forks to have its pane
// noted in utmp: until that executes what does so, there seem to be two.
func (s *subject) one(name string) (pid int) {
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

// noScope waits until the daemon knows that the session's scope is gone. ControlGroup is a property
// whose changes are not told.
func (s *subject) noScope() {
	s.t.Helper()
	testbed.Poll(s.t, "session "+s.id+" is without a scope", func() bool { return s.facts().text("ControlGroup") == "" })
}

// refused tells whether an error is that answer, with a message that has each of the words.
func refused(t *testing.T, err error, name string, words ...string) {
	t.Helper()
	require.Error(t, err, "has to be %s", name)
	var answer dbus.Error
	require.ErrorAs(t, err, &answer)
	assert.Equal(t, dbusapi.ErrorName(name), answer.Name, "message: %v", answer.Body)
	text := fmt.Sprint(answer.Body...)
	for _, word := range words {
		assert.Contains(t, text, word)
	}
	assert.False(t, strings.HasSuffix(strings.TrimSpace(text), ":"), "the message says nothing: %q", text)
	assert.Less(t, len(text), 1000, "a message is one sentence")
}

// command runs a program and returns what it prints. The test fails if it fails.
func command(t *testing.T, name string, args ...string) string {
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

// waitFile waits until a file has a text somewhere.
func waitFile(t *testing.T, path, text string) {
	t.Helper()
	testbed.WaitFile(t, path, func(content []byte) bool { return strings.Contains(string(content), text) })
}

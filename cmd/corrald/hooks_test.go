package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// installHook installs a hook in the user's configuration.
func (d *corrald) installHook(t *testing.T, name, script string) {
	t.Helper()
	d.write("config/corral/hooks.d/"+name, script)
	require.NoError(t, os.Chmod(filepath.Join(d.dir, "config/corral/hooks.d", name), 0o700))
}

// hookEvent is a hook's input, as documented in docs/reference/json.md.
type hookEvent struct {
	Event, Title, Text, Urgency string
	Time                        int64
	Sessions                    []map[string]any
}

// hookInput waits until a hook has written its input to a file, and parses it.
func (d *corrald) hookInput(t *testing.T, name string) (e hookEvent) {
	t.Helper()
	content := testbed.WaitFile(t, filepath.Join(d.dir, name), func(content []byte) bool {
		return strings.HasSuffix(string(content), "\n")
	})
	require.NoError(t, json.Unmarshal(content, &e), "%s", content)
	return e
}

// TestHook_RunsAsAService checks that a hook runs as a service of its own, with the event on its
// standard input and its output in the journal.
func TestHook_RunsAsAService(t *testing.T) {
	d := startDaemon(t, "Notifications=no")
	d.installHook(t, "to a phone!",
		fmt.Sprintf("#!/bin/sh\ncat > %[1]s/.new\ncat /proc/self/cgroup > %[1]s/cgroup\nenv > %[1]s/env\n"+
			"sleep 1000 &\nmv %[1]s/.new %[1]s/input\n", d.dir))
	s := d.create(t, "shop", spec{"Command": []string{"sh", "-c", "exit 3"}, "Labels": map[string]string{"team": "web"}})
	e := d.hookInput(t, "input")
	assert.Equal(t, "failed: shop: failed, exit 3 (normal)", e.Event+": "+e.Title+" ("+e.Urgency+")")
	assert.Equal(t, "command exited with code 3\n"+d.dir+", after less than 1s", strings.Replace(e.Text, "~", d.dir, 1))
	require.Len(t, e.Sessions, 1)
	reference, err := os.ReadFile("../../docs/reference/json.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(reference), "\n## Hooks\n")
	for key := range e.Sessions[0] {
		assert.Contains(t, strings.Split(section, "\n## ")[0], key, "docs/reference/json.md")
	}
	published := s.properties()
	for key, value := range e.Sessions[0] {
		switch key {
		case "DurationUSec":
			assert.Positive(t, value)
		default:
			got, err := json.Marshal(value)
			require.NoError(t, err)
			is, err := json.Marshal(published[key].Value())
			require.NoError(t, err)
			assert.JSONEq(t, string(is), string(got), "%s has the same value as on the bus", key)
		}
	}
	assert.Regexp(t, `/background\.slice/corral-hook-to_a_phone_-[a-z0-9]{8}\.service`,
		string(testbed.WaitFile(t, filepath.Join(d.dir, "cgroup"), nil)))
	assert.NotContains(t, string(testbed.WaitFile(t, filepath.Join(d.dir, "env"), nil)), "shop")
	testbed.Poll(t, "nothing of the hook is left", func() bool {
		return testbed.Systemctl(t, "list-units", "--all", "--plain", "--no-legend", "corral-hook-*") == ""
	})
}

// TestHook_SkipsUserActionsAndRepeats checks that hooks get neither events that the user caused
// nor, also after a restart, events that they already got.
func TestHook_SkipsUserActionsAndRepeats(t *testing.T) {
	d := startDaemon(t)
	d.installHook(t, "log", fmt.Sprintf("#!/bin/sh\ncat >> %s/input\n", d.dir))
	titles := func() (all []string) {
		content, _ := os.ReadFile(filepath.Join(d.dir, "input"))
		for line := range strings.Lines(string(content)) {
			var e hookEvent
			require.NoError(t, json.Unmarshal([]byte(line), &e))
			all = append(all, e.Title)
		}
		return all
	}
	stopped, killed := d.run(t, "stopped", "exec sleep 1000"), d.run(t, "killed", "exec sleep 1000")
	stopped.must("Stop", uint64(0))
	killed.must("Kill", "agent", int32(syscall.SIGKILL))
	killed.waitState("failed")
	d.run(t, "short", "exit 0").waitState("completed")
	d.create(t, "quiet", spec{"Command": []string{"sh", "-c", "exit 2"}, "Labels": map[string]string{"notify": "no"}}).
		waitState("failed")
	d.run(t, "one", "exit 1")
	testbed.Poll(t, "the hook got the event", func() bool { return len(titles()) > 0 })
	d.kill(syscall.SIGTERM)
	d.launch()
	d.run(t, "two", reportCommand("waiting", "Reason", "question", "Message", "which?")+"; exec sleep 1000")
	testbed.Poll(t, "the hook got the event", func() bool { return len(titles()) > 1 })
	assert.Equal(t, []string{"one: failed, exit 1", "two: has a question"}, titles())
}

// TestHook_FailureIsReported checks that a failed hook is a problem that names its unit, and does
// not affect other hooks.
func TestHook_FailureIsReported(t *testing.T) {
	d := startDaemon(t)
	d.installHook(t, "broken", "#!/bin/sh\nexit 22\n")
	d.installHook(t, "no-interpreter", "#!/no/such/program\n")
	d.installHook(t, "works", fmt.Sprintf("#!/bin/sh\ncat > %[1]s/.new; mv %[1]s/.new %[1]s/input\n", d.dir))
	d.write("config/corral/hooks.d/README", "not executable")
	d.run(t, "shop", "exit 3")
	assert.Equal(t, "shop: failed, exit 3", d.hookInput(t, "input").Title)
	var text strings.Builder
	for _, p := range d.waitProblems(t, 2) {
		assert.Empty(t, p.Session)
		text.WriteString(p.Text + "\n")
	}
	assert.Regexp(t, `^the hook "broken" failed: (corral-hook-broken-\w+\.service) exited with code 22; see: journalctl --user -u corral-hook-broken-\w+\.service
the hook "no-interpreter" failed: \S+ exited with code 203; see: .*\n$`, text.String())
	assert.Contains(t, d.log.String(), "a hook failed")
	d.installHook(t, "broken", "#!/bin/sh\n")
	require.NoError(t, os.Remove(filepath.Join(d.dir, "config/corral/hooks.d/no-interpreter")))
	d.run(t, "forum", "exit 3")
	assert.Empty(t, d.waitProblems(t, 0))
}

// TestManual_HooksWork runs the hooks of the manual with a server of the test's in place of the
// real ones. No secret may be an argument of a process, and text from an agent must arrive as plain
// text in the chat.
func TestManual_HooksWork(t *testing.T) {
	page, err := os.ReadFile("../../docs/man/corral.7.md")
	require.NoError(t, err)
	scripts := regexp.MustCompile("(?s)\\*~/\\.config/corral/hooks\\.d/(\\w+)\\*.*?```\n(#!.*?)```\n").
		FindAllStringSubmatch(string(page), -1)
	require.Len(t, scripts, 2)
	posted := make(chan map[string]any, 8)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		var message map[string]any
		assert.NoError(t, json.Unmarshal(body, &message), "%s", body)
		message["path"] = r.URL.Path
		for _, secret := range []string{"corral-9f1c2d3a7b", "/incoming"} {
			assert.NotContains(t, allArguments(t), secret, "an argument of a process")
		}
		posted <- message
	}))
	t.Cleanup(server.Close)
	d := startDaemon(t)
	d.write("webhook", fmt.Sprintf("url = %q\n", server.URL+"/incoming"))
	d.write("topic", "corral-9f1c2d3a7b\n")
	for _, script := range scripts {
		d.installHook(t, script[1], strings.NewReplacer("https://ntfy.sh", server.URL, "~/.config/corral/slack-webhook",
			d.dir+"/webhook", "~/.config/corral/ntfy-topic", d.dir+"/topic").Replace(script[2]))
	}
	d.run(t, "asks", reportCommand("waiting", "Reason", "question", "Message",
		`"red" or $(blue)? <!channel> & `+"`x`")+"; exec sleep 1000")
	posts := map[any]map[string]any{}
	for range scripts {
		message := testbed.Receive(t, posted, "a posted message")
		posts[message["path"]] = message
	}
	assert.Equal(t, map[string]any{
		"path": "/", "topic": "corral-9f1c2d3a7b", "title": "asks: has a question",
		"message": "\"red\" or $(blue)? <!channel> & `x`\n~", "priority": 3.0,
	}, posts["/"])
	assert.Equal(t, "*asks: has a question*\n\"red\" or $(blue)? &lt;!channel&gt; &amp; `x`\n~",
		posts["/incoming"]["text"])
	assert.Empty(t, d.waitProblems(t, 0))
}

// allArguments returns the argument lists of all processes that the test can see.
func allArguments(t *testing.T) string {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var all strings.Builder
	for _, path := range paths {
		arguments, _ := os.ReadFile(path) // a process that has exited in the meantime has none
		all.Write(arguments)
	}
	return all.String()
}

// TestTerminalMessage_ReachesClientsOfOtherSessions checks that a terminal attached to one session
// shows a message, unchanged, when another session asks a question.
func TestTerminalMessage_ReachesClientsOfOtherSessions(t *testing.T) {
	d := startDaemon(t)
	var screen logBuffer
	detach := d.run(t, "looks", "exec sleep 1000").attachTo(&screen)
	d.run(t, "asks", reportCommand("waiting", "Reason", "question", "Message",
		"#(touch pwned) #{pid} %H $(id)")+"; exec sleep 1000")
	testbed.Poll(t, "the message is on the screen", func() bool {
		return strings.Contains(screen.String(), "asks: has a question: #(touch pwned) #{pid} %H $(id)")
	})
	detach()
}

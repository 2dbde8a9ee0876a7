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

// hook installs a hook of the user's.
func (d *corrald) hook(t *testing.T, name, script string) {
	t.Helper()
	d.write("config/corral/hooks.d/"+name, script)
	require.NoError(t, os.Chmod(filepath.Join(d.dir, "config/corral/hooks.d", name), 0o700))
}

// hookEvent is what a hook reads, as docs/reference/json.md has it.
type hookEvent struct {
	Event, Title, Text, Urgency string
	Time                        int64
	Sessions                    []map[string]any
}

// wrote returns what a hook has written.
func (d *corrald) wrote(t *testing.T, name string) (e hookEvent) {
	t.Helper()
	content := testbed.WaitFile(t, filepath.Join(d.dir, name), func(content []byte) bool { return strings.HasSuffix(string(content), "\n") })
	require.NoError(t, json.Unmarshal(content, &e), "%s", content)
	return e
}

// TestHook_RunsAsAService as a service of its own, with what happened on its standard input, and
// with its output in the journal.
func TestHook_RunsAsAService(t *testing.T) {
	d := startDaemon(t, "Notifications=no")
	d.hook(t, "to a phone!", fmt.Sprintf("#!/bin/sh\ncat > %[1]s/.new\ncat /proc/self/cgroup > %[1]s/cgroup\nenv > %[1]s/env\nsleep 1000 &\nmv %[1]s/.new %[1]s/told\n", d.dir))
	s := d.create(t, "shop", spec{"Command": []string{"sh", "-c", "exit 3"}, "Labels": map[string]string{"team": "web"}})
	e := d.wrote(t, "told")
	assert.Equal(t, "failed: shop: failed, exit 3 (normal)", e.Event+": "+e.Title+" ("+e.Urgency+")")
	assert.Equal(t, "command exited with code 3\n"+d.dir+", after less than 1s", strings.Replace(e.Text, "~", d.dir, 1))
	require.Len(t, e.Sessions, 1)
	reference, err := os.ReadFile("../../docs/reference/json.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(reference), "\n## Hooks\n")
	for key := range e.Sessions[0] {
		assert.Contains(t, strings.Split(section, "\n## ")[0], key, "docs/reference/json.md")
	}
	facts := s.facts()
	for key, value := range e.Sessions[0] {
		switch key {
		case "DurationUSec":
			assert.Positive(t, value)
		default:
			told, err := json.Marshal(value)
			require.NoError(t, err)
			is, err := json.Marshal(facts[key].Value())
			require.NoError(t, err)
			assert.JSONEq(t, string(is), string(told), "%s is as on the bus", key)
		}
	}
	assert.Regexp(t, `/background\.slice/corral-hook-to_a_phone_-[a-z0-9]{8}\.service`, string(testbed.WaitFile(t, filepath.Join(d.dir, "cgroup"), nil)))
	assert.NotContains(t, string(testbed.WaitFile(t, filepath.Join(d.dir, "env"), nil)), "shop")
	testbed.Poll(t, "nothing is left of it", func() bool {
		return testbed.Systemctl(t, "list-units", "--all", "--plain", "--no-legend", "corral-hook-*") == ""
	})
}

// TestHook_SkipsUserActionsAndRepeats: what a user did, and what was told already, also over a
// restart.
func TestHook_SkipsUserActionsAndRepeats(t *testing.T) {
	d := startDaemon(t)
	d.hook(t, "log", fmt.Sprintf("#!/bin/sh\ncat >> %s/told\n", d.dir))
	titles := func() (all []string) {
		content, _ := os.ReadFile(filepath.Join(d.dir, "told"))
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
	killed.become("failed")
	d.run(t, "short", "exit 0").become("completed")
	d.create(t, "quiet", spec{"Command": []string{"sh", "-c", "exit 2"}, "Labels": map[string]string{"notify": "no"}}).become("failed")
	d.run(t, "one", "exit 1")
	testbed.Poll(t, "it is told", func() bool { return len(titles()) > 0 })
	d.kill(syscall.SIGTERM)
	d.launch()
	d.run(t, "two", reports("waiting", "Reason", "question", "Message", "which?")+"; exec sleep 1000")
	testbed.Poll(t, "it is told", func() bool { return len(titles()) > 1 })
	assert.Equal(t, []string{"one: failed, exit 1", "two: has a question"}, titles())
}

// TestHook_FailureIsReported is told as a problem, with where to look, and hinders no other.
func TestHook_FailureIsReported(t *testing.T) {
	d := startDaemon(t)
	d.hook(t, "broken", "#!/bin/sh\nexit 22\n")
	d.hook(t, "no-interpreter", "#!/no/such/program\n")
	d.hook(t, "works", fmt.Sprintf("#!/bin/sh\ncat > %[1]s/.new; mv %[1]s/.new %[1]s/told\n", d.dir))
	d.write("config/corral/hooks.d/README", "not executable")
	d.run(t, "shop", "exit 3")
	assert.Equal(t, "shop: failed, exit 3", d.wrote(t, "told").Title)
	var text strings.Builder
	for _, p := range d.hasProblems(t, 2) {
		assert.Empty(t, p.Session)
		text.WriteString(p.Text + "\n")
	}
	assert.Regexp(t, `^the hook "broken" failed: (corral-hook-broken-\w+\.service) exited with code 22; see: journalctl --user -u corral-hook-broken-\w+\.service
the hook "no-interpreter" failed: \S+ exited with code 203; see: .*\n$`, text.String())
	assert.Contains(t, d.log.String(), "a hook failed")
	d.hook(t, "broken", "#!/bin/sh\n")
	require.NoError(t, os.Remove(filepath.Join(d.dir, "config/corral/hooks.d/no-interpreter")))
	d.run(t, "forum", "exit 3")
	assert.Empty(t, d.hasProblems(t, 0))
}

// TestManual_HooksWork work, with a server of the test's own in the place of the real ones. No
// secret is an argument of a process, and what an agent says is plain text for the chat.
func TestManual_HooksWork(t *testing.T) {
	page, err := os.ReadFile("../../docs/man/corral.7.md")
	require.NoError(t, err)
	scripts := regexp.MustCompile("(?s)\\*~/\\.config/corral/hooks\\.d/(\\w+)\\*.*?```\n(#!.*?)```\n").FindAllStringSubmatch(string(page), -1)
	require.Len(t, scripts, 2)
	posted := make(chan map[string]any, 8)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		var said map[string]any
		assert.NoError(t, json.Unmarshal(body, &said), "%s", body)
		said["path"] = r.URL.Path
		for _, secret := range []string{"corral-9f1c2d3a7b", "/incoming"} {
			assert.NotContains(t, allArguments(t), secret, "an argument of a process")
		}
		posted <- said
	}))
	t.Cleanup(server.Close)
	d := startDaemon(t)
	d.write("webhook", fmt.Sprintf("url = %q\n", server.URL+"/incoming"))
	d.write("topic", "corral-9f1c2d3a7b\n")
	for _, script := range scripts {
		d.hook(t, script[1], strings.NewReplacer("https://ntfy.sh", server.URL, "~/.config/corral/slack-webhook", d.dir+"/webhook", "~/.config/corral/ntfy-topic", d.dir+"/topic").Replace(script[2]))
	}
	d.run(t, "asks", reports("waiting", "Reason", "question", "Message", `"red" or $(blue)? <!channel> & `+"`x`")+"; exec sleep 1000")
	said := map[any]map[string]any{}
	for range scripts {
		one := testbed.Receive(t, posted, "what is posted")
		said[one["path"]] = one
	}
	assert.Equal(t, map[string]any{
		"path": "/", "topic": "corral-9f1c2d3a7b", "title": "asks: has a question", "message": "\"red\" or $(blue)? <!channel> & `x`\n~", "priority": 3.0,
	}, said["/"])
	assert.Equal(t, "*asks: has a question*\n\"red\" or $(blue)? &lt;!channel&gt; &amp; `x`\n~", said["/incoming"]["text"])
	assert.Empty(t, d.hasProblems(t, 0))
}

// allArguments returns the argument lists of all processes that the test can see.
func allArguments(t *testing.T) string {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	var all strings.Builder
	for _, path := range paths {
		arguments, _ := os.ReadFile(path) // of one that has ended meanwhile there are none
		all.Write(arguments)
	}
	return all.String()
}

// TestTerminalMessage_ReachesClientsOfOtherSessions of what another session asks, as it asks it.
func TestTerminalMessage_ReachesClientsOfOtherSessions(t *testing.T) {
	d := startDaemon(t)
	var screen logText
	detach := d.run(t, "looks", "exec sleep 1000").attachTo(&screen)
	d.run(t, "asks", reports("waiting", "Reason", "question", "Message", "#(touch pwned) #{pid} %H $(id)")+"; exec sleep 1000")
	testbed.Poll(t, "the message", func() bool {
		return strings.Contains(screen.String(), "asks: has a question: #(touch pwned) #{pid} %H $(id)")
	})
	detach()
}

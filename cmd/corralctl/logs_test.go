package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/testbed"
)

func TestTheLastLinesOfALog(t *testing.T) {
	for _, row := range []struct {
		lines int
		want  string
	}{{0, ""}, {1, "four"}, {2, "three\nfour"}, {9, "one\ntwo\nthree\nfour"}, {-1, "one\ntwo\nthree\nfour"}} {
		var out bytes.Buffer
		sink := (&logsOptions{lines: row.lines}).sink(&out)
		for _, part := range []string{"one\r\nt", "wo\r\nthr\x1b[1", "mee\r\n", "four"} {
			_, err := sink.Write([]byte(part))
			require.NoError(t, err)
		}
		require.NoError(t, sink.Close())
		assert.Equal(t, row.want, out.String(), "%d lines", row.lines)
	}
}

// TestWhatWasPrintedBeforeTheLogWasBegun is part of it.
func TestWhatWasPrintedBeforeTheLogWasBegun(t *testing.T) {
	path := filepath.Join(t.TempDir(), logName)
	require.NoError(t, os.WriteFile(path, []byte("new\n"), 0o600))
	log, err := os.Open(path)
	require.NoError(t, err)
	defer func() { _ = log.Close() }()
	var out bytes.Buffer
	require.NoError(t, copyBefore(&out, path+".1", log), "there is none")
	require.NoError(t, os.WriteFile(path+".1", []byte("old\n"), 0o600))
	require.NoError(t, copyBefore(&out, path+".1", log))
	assert.Equal(t, "old\n", out.String())
	require.NoError(t, os.Rename(path, path+".1"))
	require.NoError(t, copyBefore(&out, path+".1", log), "it was rotated since")
	assert.Equal(t, "old\n", out.String())
}

func TestALogIsFollowedThroughRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), logName)
	write := func(text string) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		_, err = file.WriteString(text)
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
	c, output := capture(t)
	f := &follower{path: path, out: c}
	defer f.close()
	require.NoError(t, f.begin(&logsOptions{lines: 2}), "there is no log yet")

	write("one\r\ntwo\r\nthree\r\n")
	f = &follower{path: path, out: c}
	require.NoError(t, f.begin(&logsOptions{lines: 2}))
	assert.Equal(t, "two\nthree\n", output())

	write("four\r\n")
	require.NoError(t, f.read())
	write("five\r\n")
	require.NoError(t, os.Rename(path, path+".1"))
	require.NoError(t, f.read(), "between the old and the new one")
	write("six\r\n")
	require.NoError(t, f.read())
	write("seven\r\n")
	require.NoError(t, f.read())
	assert.Equal(t, "two\nthree\nfour\nfive\nsix\nseven\n", output())

	require.NoError(t, os.Truncate(path, 0))
	write("eight\n")
	require.NoError(t, f.read())
	assert.Equal(t, "two\nthree\nfour\nfive\nsix\nseven\neight\n", output())
}

// TestNothingIsLostBetweenTwoLogs: what was added just before a log was replaced, and a log that came and went while nobody looked.
func TestNothingIsLostBetweenTwoLogs(t *testing.T) {
	path := filepath.Join(t.TempDir(), logName)
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	rotate := func() { require.NoError(t, os.Rename(path, path+".1")) }
	write("one\r\n")
	rotate()
	write("two\r\n")
	c, output := capture(t)
	f := &follower{path: path, out: c}
	defer f.close()
	require.NoError(t, f.begin(&logsOptions{lines: -1}))
	assert.Equal(t, "one\ntwo\n", output(), "the last lines begin in the log before")

	require.NoError(t, f.drain())
	old, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = old.WriteString("three\r\n")
	require.NoError(t, errors.Join(err, old.Close()))
	rotate()
	write("four\r\n")
	replaced, err := f.reopen()
	require.NoError(t, err)
	assert.True(t, replaced)
	require.NoError(t, f.read())
	assert.Equal(t, "one\ntwo\nthree\nfour\n", output())

	rotate()
	write("five\r\n")
	rotate()
	write("six\r\nsev")
	require.NoError(t, f.read())
	assert.Equal(t, "one\ntwo\nthree\nfour\nfive\nsix\n", output())
	require.NoError(t, f.finish())
	assert.Equal(t, "one\ntwo\nthree\nfour\nfive\nsix\nsev", output())
}

// TestALogIsFollowedThroughRestarts: of the session, of the daemon, with its death, and of the machine's bus; and through the log's rotation in each of them.
func TestALogIsFollowedThroughRestarts(t *testing.T) {
	u := newUnits(t)
	configuration := filepath.Join(u.home, "config/corral/corral.conf")
	require.NoError(t, os.MkdirAll(filepath.Dir(configuration), 0o700))
	require.NoError(t, os.WriteFile(configuration, []byte("[Corral]\nLogMaxSize=64K\n"), 0o600))
	testbed.Systemctl(t, "restart", "corrald.service")
	pipe, shown := filepath.Join(u.home, "pipe"), filepath.Join(u.home, "shown")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	u.session("chatty", `exec 3<>`+pipe+`; while read -r i to <&3; do while [ $i -le $to ]; do echo "line $i of what the agent says"; i=$((i+1)); done; done`)
	u.must("start", "chatty")

	out, err := os.Create(shown)
	require.NoError(t, err)
	follow := exec.Command(testbed.Programs(t).Corralctl, "logs", "--follow", "--lines=1000000", "chatty") // all, also what comes before it looks
	follow.Env, follow.Stdout, follow.Stderr = u.environment, out, out
	require.NoError(t, follow.Start())
	require.NoError(t, out.Close())
	t.Cleanup(func() {
		_ = follow.Process.Kill()
		_ = follow.Wait()
	})
	const part = 1000 // lines: somewhat more than one file of the log takes
	printed := 0
	agentPrints := func() {
		t.Helper()
		require.NoError(t, os.WriteFile(pipe, fmt.Appendf(nil, "%d %d\n", printed+1, printed+part), 0))
		printed += part
		testbed.WaitFile(t, shown, func(text []byte) bool { return bytes.Contains(text, fmt.Appendf(nil, "line %d of", printed)) })
	}
	agentPrints()
	u.must("restart", "chatty")
	agentPrints()
	testbed.Systemctl(t, "restart", "corrald.service")
	agentPrints()
	testbed.Systemctl(t, "kill", "--signal=KILL", "corrald.service")
	agentPrints()
	testbed.Systemctl(t, "restart", "corrald.service", "dbus.service")
	agentPrints()
	u.must("restart", "chatty")
	agentPrints()

	var want strings.Builder
	for i := range printed {
		fmt.Fprintf(&want, "line %d of what the agent says\n", i+1)
	}
	text, err := os.ReadFile(shown)
	require.NoError(t, err)
	assert.Equal(t, want.String(), string(text))

	u.must("rm", "--force", "chatty")
	testbed.WaitExit(t, follow.Process.Pid)
	require.NoError(t, follow.Wait(), "a session that is removed has no more to show")
}

func TestShortOutputIsNotPaged(t *testing.T) {
	var shown bytes.Buffer
	p := &pager{terminal: &shown, program: "false", room: 3}
	_, err := p.Write([]byte("one\ntwo\nthree\n"))
	require.NoError(t, err)
	require.NoError(t, p.close())
	assert.Equal(t, "one\ntwo\nthree\n", shown.String())
}

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

	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/internal/termsizes"
	"github.com/corrald/corral/internal/testbed"
)

func TestLogs_PrintsTheLastLines(t *testing.T) {
	const all = "one\ntwo\nthree\nfour"
	for _, row := range []struct {
		lines int
		want  string
	}{{0, ""}, {1, "four"}, {2, "three\nfour"}, {9, all}, {1 << 62, all}, {-1, all}} {
		var out bytes.Buffer
		sink := newPlayback(&out, false, row.lines)
		for _, part := range []string{"one\r\nt", "wo\r\nthr\x1b[1", "mee\r\n", "four"} {
			_, err := sink.Write([]byte(part))
			require.NoError(t, err)
		}
		require.NoError(t, sink.Close())
		assert.Equal(t, row.want, out.String(), "%d lines", row.lines)
	}
}

// Only --raw prints the characters that a terminal would act on.
func TestLogs_EscapesControlCharacters(t *testing.T) {
	const text = "a\u202etfel\u200e b\u200bx می\u200cخواهم\r\n"
	for raw, want := range map[bool]string{false: "a\\u202etfel\\u200e b\\u200bx می\u200cخواهم\n", true: text} {
		var out bytes.Buffer
		sink := newPlayback(&out, raw, -1)
		for i := range len(text) {
			_, err := sink.Write([]byte{text[i]})
			require.NoError(t, err)
		}
		require.NoError(t, sink.Close())
		assert.Equal(t, want, out.String())
	}
}

// writtenLog is a log as the shim writes it, with the record of the terminal's sizes.
type writtenLog struct {
	t            *testing.T
	directory    string
	sizes        termsizes.Sizes
	withoutSizes bool // as an older shim, which kept no record of the sizes
	size         int64
}

func newWrittenLog(t *testing.T) *writtenLog {
	w := &writtenLog{t: t, directory: t.TempDir(), sizes: termsizes.New(0)}
	w.save()
	return w
}

func (w *writtenLog) save() {
	if !w.withoutSizes {
		require.NoError(w.t, os.WriteFile(filepath.Join(w.directory, termsizes.FileName), w.sizes.Append(nil), 0o600))
	}
}

func (w *writtenLog) write(text string) {
	w.t.Helper()
	file, err := os.OpenFile(filepath.Join(w.directory, shimwire.LogName), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(w.t, err)
	_, err = file.WriteString(text)
	require.NoError(w.t, errors.Join(err, file.Close()))
	w.size += int64(len(text))
}

func (w *writtenLog) setColumns(columns uint16) {
	w.sizes.Set(termsizes.Size{Offset: w.sizes.Start() + w.size, Columns: columns, Rows: 10})
	w.save()
}

func (w *writtenLog) rotate() {
	log := filepath.Join(w.directory, shimwire.LogName)
	require.NoError(w.t, os.Rename(log, filepath.Join(w.directory, shimwire.OlderLogName)))
	w.sizes.Rotate(w.sizes.Start() + w.size)
	w.size = 0
	w.save()
}

// show returns the whole log as corralctl logs shows it.
func (w *writtenLog) show(raw bool) string {
	w.t.Helper()
	openLog := func() (*os.File, error) { return os.Open(filepath.Join(w.directory, shimwire.LogName)) }
	files, err := openLogFiles(w.directory, openLog)
	require.NoError(w.t, err)
	defer files.close()
	var out bytes.Buffer
	p := newPlayback(&out, raw, -1)
	require.NoError(w.t, p.play(files))
	require.NoError(w.t, p.Close())
	return out.String()
}

// follow returns a follower of the log, and a function that returns what was shown so far.
func (w *writtenLog) follow(lines int) (*follower, func() string) {
	w.t.Helper()
	c, output := capture(w.t)
	f := &follower{directory: w.directory, out: c}
	w.t.Cleanup(f.close)
	require.NoError(w.t, f.showTail(&logsOptions{lines: lines}))
	return f, output
}

// A FIFO may be in the place of one of the log's files. A log is shown without its sizes; for its
// other files the user gets an error.
func TestLogs_DoesNotBlockOnAFIFO(t *testing.T) {
	for _, name := range []string{shimwire.LogName, shimwire.OlderLogName, termsizes.FileName} {
		w := newWrittenLog(t)
		w.write("new\r\n")
		path := filepath.Join(w.directory, name)
		_ = os.Remove(path)
		require.NoError(t, unix.Mkfifo(path, 0o600))
		c, _ := capture(t)
		f := &follower{directory: w.directory, out: c}
		err := f.showTail(&logsOptions{lines: 10})
		f.close()
		if name == termsizes.FileName {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, path+" is a FIFO, expected a regular file")
		}
	}
}

func TestLogs_IncludesTheRotatedFile(t *testing.T) {
	w := newWrittenLog(t)
	w.write("old\r\n")
	assert.Equal(t, "old\n", w.show(false))
	w.rotate()
	w.write("new\r\n")
	assert.Equal(t, "old\nnew\n", w.show(false))
	assert.Equal(t, "old\r\nnew\r\n", w.show(true))
	require.NoError(t, os.Remove(filepath.Join(w.directory, termsizes.FileName)))
	assert.Equal(t, "old\nnew\n", w.show(false), "an older shim kept no record of sizes")
	require.NoError(t, os.WriteFile(filepath.Join(w.directory, termsizes.FileName), []byte("7 8 9 10\n"), 0o600))
	assert.Equal(t, "old\nnew\n", w.show(false), "an invalid record is ignored")
}

// A line that the terminal has wrapped is one line, and text printed over it replaces the right
// part.
func TestLogs_ReplaysRecordedTerminalSizes(t *testing.T) {
	w := newWrittenLog(t)
	w.setColumns(10)
	w.write("0123456789abcdefghij\x1b[A\r#\x1b[B\r\n")
	w.setColumns(20)
	w.write("0123456789abcdefghijKLMNO\x1b[A\r#\x1b[B\r\n")
	w.rotate()
	w.write("0123456789abcdefghijKLMNO\x1b[A\r#\x1b[B\r\n")
	w.setColumns(5)
	w.write("01234567\x1b[A\r#\x1b[B\r\n")
	const want = "#123456789abcdefghij\n#123456789abcdefghijKLMNO\n#123456789abcdefghijKLMNO\n#1234567\n"
	assert.Equal(t, want, w.show(false))
	f, output := w.follow(100)
	assert.Equal(t, want, output())
	w.setColumns(8)
	w.write("0123456789\x1b[A\r#\x1b[B\r\n")
	w.rotate()
	w.setColumns(4)
	w.write("012345\x1b[A\r#\x1b[B\r\n")
	require.NoError(t, f.read())
	assert.Equal(t, want+"#123456789\n#12345\n", output())
}

func TestLogs_FollowsThroughRotation(t *testing.T) {
	w := &writtenLog{t: t, directory: t.TempDir(), sizes: termsizes.New(0)}
	f, _ := w.follow(2)
	require.NoError(t, f.read(), "there is no log yet")
	w.write("one\r\ntwo\r\nthree\r\n")
	w.save()
	f, output := w.follow(2)
	assert.Equal(t, "two\nthree\n", output())

	w.write("four\r\n")
	require.NoError(t, f.read())
	w.write("five\r\n")
	w.rotate()
	require.NoError(t, f.read(), "the old log is rotated, the new one does not exist")
	w.write("six\r\n")
	require.NoError(t, f.read())
	w.write("seven\r\n")
	require.NoError(t, f.read())
	assert.Equal(t, "two\nthree\nfour\nfive\nsix\nseven\n", output())

	// After the limit was reduced, the log is cut at its beginning.
	path := filepath.Join(w.directory, shimwire.LogName)
	w.write("eight\r\n")
	require.NoError(t, os.WriteFile(path, []byte("seven\r\neight\r\n"), 0o600))
	w.sizes.TrimStarts(0, int64(len("six\r\n")))
	w.save()
	require.NoError(t, f.read())
	assert.Equal(t, "two\nthree\nfour\nfive\nsix\nseven\neight\n", output())

	require.NoError(t, os.Truncate(path, 0))
	require.NoError(t, f.read())
	w.write("nine\n")
	require.NoError(t, f.read())
	assert.Equal(t, "two\nthree\nfour\nfive\nsix\nseven\neight\nnine\n", output())
}

// Output may be added just before a log is replaced, and a log may be created and replaced between
// two reads.
func TestLogs_FollowLosesNothingAtRotation(t *testing.T) {
	w := newWrittenLog(t)
	w.write("one\r\n")
	w.rotate()
	w.write("two\r\n")
	f, output := w.follow(-1)
	assert.Equal(t, "one\ntwo\n", output(), "the last lines begin in the rotated log")

	require.NoError(t, f.drain())
	w.write("three\r\n")
	w.rotate()
	w.write("four\r\n")
	replaced, err := f.reopen()
	require.NoError(t, err)
	assert.True(t, replaced)
	require.NoError(t, f.read())
	assert.Equal(t, "one\ntwo\nthree\nfour\n", output())

	w.rotate()
	w.write("five\r\n")
	w.rotate()
	w.write("six\r\nsev")
	require.NoError(t, f.read())
	assert.Equal(t, "one\ntwo\nthree\nfour\nfive\nsix\n", output())
	require.NoError(t, f.playback.Close())
	assert.Equal(t, "one\ntwo\nthree\nfour\nfive\nsix\nsev", output())
}

// The log is created after somebody follows it, and is rotated before the follower sees it.
func TestLogs_FollowWaitsForTheFirstOutput(t *testing.T) {
	w := &writtenLog{t: t, directory: t.TempDir(), sizes: termsizes.New(0)}
	w.save()
	f, output := w.follow(10)
	require.NoError(t, f.read())
	assert.Empty(t, output())
	w.write("one\r\n")
	w.rotate()
	w.write("two\r\n")
	require.NoError(t, f.read())
	w.write("three\r\n")
	require.NoError(t, f.read())
	assert.Equal(t, "one\ntwo\nthree\n", output())
}

// The log was replaced more often than it was read.
func TestLogs_FollowReportsMissingOutput(t *testing.T) {
	for _, row := range []struct {
		unsized bool
		want    string
	}{
		{false, "one\n\n[corral: 12 bytes of output are missing here: the log was rotated before it was read]\nfour\nfive\n"},
		{true, "one\n\n[corral: output may be missing here: the log was rotated before it was read]\nfour\nfive\n"},
	} {
		w := &writtenLog{t: t, directory: t.TempDir(), sizes: termsizes.New(0), withoutSizes: row.unsized}
		w.save()
		w.write("one\r\n")
		f, output := w.follow(-1)
		for _, line := range []string{"two\r\n", "three\r\n", "four\r\n", "five\r\n"} {
			w.rotate()
			w.write(line)
		}
		require.NoError(t, f.read())
		assert.Equal(t, row.want, output())
	}
}

// The session, the daemon and the user's bus are restarted, the daemon is killed, and the log is
// rotated each time.
func TestLogs_FollowSurvivesRestarts(t *testing.T) {
	u := newInstallation(t)
	configuration := filepath.Join(u.home, "config/corral/corral.conf")
	require.NoError(t, os.MkdirAll(filepath.Dir(configuration), 0o700))
	require.NoError(t, os.WriteFile(configuration, []byte("[Corral]\nLogMaxSize=64K\n"), 0o600))
	testbed.Systemctl(t, "restart", "corrald.service")
	pipe, shown := filepath.Join(u.home, "pipe"), filepath.Join(u.home, "shown")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	u.session("chatty", `exec 3<>`+pipe+`; while read -r i to <&3; do while [ $i -le $to ]; do `+
		`echo "line $i of what the agent writes"; i=$((i+1)); done; done`)
	u.must("start", "chatty")

	out, err := os.Create(shown)
	require.NoError(t, err)
	// All lines, including those that are written before it reads the log.
	follow := exec.Command(testbed.Programs(t).Corralctl, "logs", "--follow", "--lines=1000000", "chatty")
	follow.Env, follow.Stdout, follow.Stderr = u.environment, out, out
	require.NoError(t, follow.Start())
	require.NoError(t, out.Close())
	t.Cleanup(func() {
		_ = follow.Process.Kill()
		_ = follow.Wait()
	})
	const part = 1000 // lines, somewhat more than one file of the log holds
	printed := 0
	agentPrints := func() {
		t.Helper()
		require.NoError(t, os.WriteFile(pipe, fmt.Appendf(nil, "%d %d\n", printed+1, printed+part), 0))
		printed += part
		last := fmt.Appendf(nil, "line %d of", printed)
		testbed.WaitFile(t, shown, func(text []byte) bool { return bytes.Contains(text, last) })
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
		fmt.Fprintf(&want, "line %d of what the agent writes\n", i+1)
	}
	text, err := os.ReadFile(shown)
	require.NoError(t, err)
	assert.Equal(t, want.String(), string(text))

	u.must("rm", "--force", "chatty")
	testbed.WaitExit(t, follow.Process.Pid)
	require.NoError(t, follow.Wait(), "logs --follow ends once the session is removed")
}

func TestPager_SkipsShortOutput(t *testing.T) {
	var shown bytes.Buffer
	p := &pager{terminal: &shown, program: "false", height: 3}
	_, err := p.Write([]byte("one\ntwo\nthree\n"))
	require.NoError(t, err)
	require.NoError(t, p.close())
	assert.Equal(t, "one\ntwo\nthree\n", shown.String())
}

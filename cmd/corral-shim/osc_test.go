package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/corrald/corral/dbusapi/word"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/shimwire"
)

// queryScript is an agent that sends two queries at once, as some agents do to detect whether the
// first is supported: it is if its answer arrives before that of the second, which every terminal
// answers. Between two rounds it prints a lot.
const queryScript = `import os, sys, termios, tty
tty.setraw(0)
early = late = 0
for i in range(%d):
    os.write(1, b"x" * (i * 97 %% 5000))
    ask = [b"\x1b]7501;?\x1b\\\x1b[c", b"\x1b]7501;?\x07\x1b[c"][i %% 2]
    cut = i %% len(ask)
    os.write(1, ask[:cut])
    os.write(1, ask[cut:])
    got = b""
    while not (b"\x1b[?" in got and got.endswith(b"c") and b"7501" in got):
        got += os.read(0, 4096)
    if got.index(ask[:-3]) < got.index(b"\x1b[?"): early += 1
    else: late += 1
os.write(os.open("new", os.O_WRONLY | os.O_CREAT, 0o600), b"%%d early, %%d late" %% (early, late))
os.rename("new", "result")
sys.stdin.read(1)
`

// The order must also hold on a busy machine.
func TestStatusQuery_IsAnsweredBeforeTmuxAnswers(t *testing.T) {
	const rounds = 300
	for name, busy := range map[string]bool{"at rest": false, "busy": true} {
		t.Run(name, func(t *testing.T) {
			ts := newTestSession(t, "python3", "-c", fmt.Sprintf(queryScript, rounds))
			if busy {
				loadProcessors(t)
			}
			ts.inTmux()
			defer ts.connect().cleanup()
			waitForFile(t, filepath.Join(ts.spec.Dir, "result"))
			assert.Equal(t, fmt.Sprintf("%d early, 0 late", rounds), ts.readFile("result"))
			assert.Contains(t, ts.log(), "\x1b]7501;?", "the log is not filtered")
		})
	}
}

// loadProcessors keeps every processor busy while the test runs.
func loadProcessors(t *testing.T) {
	t.Helper()
	for range 2 * runtime.NumCPU() {
		c := exec.Command("sh", "-c", "while :; do :; done")
		require.NoError(t, c.Start())
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	}
}

// printScript returns a shell script that prints each text and then waits for a line.
func printScript(words ...string) string {
	var script strings.Builder
	script.WriteString("stty -echo; read go; ")
	for _, w := range words {
		fmt.Fprintf(&script, "printf %%b '%s'; read go; ", strings.NewReplacer("\x1b", `\033`, "\a", `\007`, `\`, `\\`).Replace(w))
	}
	return script.String()
}

func TestOSC_CommandsBecomeStatusReports(t *testing.T) {
	type status struct{ source, activity, reason, text string }
	for _, row := range []struct {
		name   string
		prints string
		want   status
	}{
		{"working", "\x1b]7501;state=working:app=claude\a", status{"osc7501", "working", "", ""}},
		{
			"blocked", "\x1b]7501;state=blocked:kind=permission:msg=" + encoded("approve Bash: touch y") + "\x1b\\",
			status{"osc7501", "waiting", "permission", "approve Bash: touch y"},
		},
		{"wrapped for tmux", "\x1bPtmux;\x1b\x1b]7501;state=done\a\x1b\\", status{"osc7501", "idle", "turn-ended", ""}},
		{"cleared", "\x1b]7501;state=clear\a", status{"osc7501", "", "", ""}},
		{"blocked again", "\x1b]7501;state=blocked:kind=auth\a", status{"osc7501", "waiting", "auth", ""}},
		{"blocked without a kind", "\x1b]7501;state=blocked\a", status{"osc7501", "waiting", "blocked", ""}},
		{"reset", "\x1bc", status{"osc7501", "", "", ""}},
		{"iTerm's notification", "\x1b]9;build is done\a", status{"bell", "", "bell", "build is done"}},
		{"urxvt's notification", "\x1b]777;notify;Gemini;needs you\a", status{"bell", "", "bell", "Gemini: needs you"}},
		{
			"kitty's notification",
			"\x1b]99;i=1:d=0;Opencode\x1b\\\x1b]99;i=1:p=body:e=1;" + encoded("a question") + "\x1b\\",
			status{"bell", "", "bell", "Opencode: a question"},
		},
		{"a shell runs a command", "\x1b]133;C\a", status{"title", "working", "", ""}},
		{"a command of a shell has finished", "\x1b]133;D;1\a", status{"title", "idle", "", ""}},
	} {
		t.Run(row.name, func(t *testing.T) {
			first := "\x1b]7501;state=idle\a"
			ts := newTestSession(t, "sh", "-c", printScript(first, row.prints+"shown"))
			s := ts.startShim()
			d := ts.connect()
			s.typeKeys("\n")
			assert.Equal(t, "idle", d.expect(shimwire.StatusReport).Activity)
			s.typeKeys("\n")
			m := d.expect(shimwire.StatusReport)
			assert.Equal(t, row.want, status{m.Source, m.Activity, m.Reason, m.Text})
			s.waitFor("shown")
			assert.NotContains(t, s.printed(), "7501")
			assert.Contains(t, ts.log(), first, "the log is not filtered")
			s.typeKeys("\n")
			s.wait()
		})
	}
}

// TestOSC_IgnoresUnrelatedCommands checks that other commands cause no status report.
func TestOSC_IgnoresUnrelatedCommands(t *testing.T) {
	ts := newTestSession(t, "sh", "-c", printScript("\x1b]9;4;1;50\a\x1b]9;12\a\x1b]99;i=1:p=?;\x1b\\\x1b]99;d=0;x\x1b\\"+
		"\x1b]777;container;push;x\a\x1b]133;B\a\x1b]0;title\a\x1b]7501;state=sleeping\a\x1b]8;;http://x\a",
		"\x1b]7501;state=idle\a"))
	s := ts.startShim()
	d := ts.connect()
	s.typeKeys("\n\n")
	assert.Equal(t, word.OSC7501, d.expect(shimwire.StatusReport).Source, "the first report")
	s.typeKeys("\n")
	s.wait()
}

// TestStatusReport_LastStateIsReportedSoon checks that the states of an agent that changes them
// quickly are reported in order, and that the last one is reported soon.
func TestStatusReport_LastStateIsReportedSoon(t *testing.T) {
	var script strings.Builder
	script.WriteString("import os, sys\nsys.stdin.readline()\n")
	r := rand.New(rand.NewPCG(1, 2))
	var stream strings.Builder
	var sent []string
	for i := range 500 {
		message := fmt.Sprint(i)
		sent = append(sent, message)
		fmt.Fprintf(&stream, "text\x1b]7501;state=blocked:kind=question:msg=%s\a", encoded(message))
	}
	rest := stream.String()
	for len(rest) > 0 {
		n := min(1+r.IntN(60), len(rest))
		fmt.Fprintf(&script, "os.write(1, %q.encode())\n", rest[:n])
		rest = rest[n:]
	}
	script.WriteString("sys.stdin.readline()\n")
	ts := newTestSession(t, "python3", "agent.py")
	require.NoError(t, os.WriteFile(filepath.Join(ts.spec.Dir, "agent.py"), []byte(script.String()), 0o600))
	s := ts.startShim()
	d := ts.connect()
	s.typeKeys("\n")
	last, seq := -1, uint32(0)
	for last < len(sent)-1 {
		m := d.expect(shimwire.StatusReport)
		i := -1
		_, err := fmt.Sscan(m.Text, &i)
		require.NoError(t, err)
		assert.Greater(t, i, last, "in order")
		assert.Greater(t, m.Seq, seq)
		last, seq = i, m.Seq
	}
	reported := time.Now()
	assert.Less(t, reported.Sub(ts.lastOutput(t)), time.Second)
	assert.Equal(t, len(sent)*len("text"), strings.Count(s.printed(), "text")*len("text"))
	s.typeKeys("\n")
	s.wait()
}

// lastOutput returns when the log was last written.
func (ts *testSession) lastOutput(t *testing.T) time.Time {
	t.Helper()
	info, err := os.Stat(filepath.Join(ts.spec.StateDir, shimwire.LogName))
	require.NoError(t, err)
	return info.ModTime()
}

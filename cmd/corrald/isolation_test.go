package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// printing is an agent that prints numbered lines until it reads a line of input, which it prints
// last, or until a file named crash appears in its workspace, which makes it crash. The terminal
// does not echo the input, so the log contains exactly what the agent printed.
const printing = `stty -echo; ulimit -c 0; exec 3<&0; echo begun >>runs; rm -f end
(read -r line <&3; echo "$line" >end.new; mv end.new end) &
n=0; while [ ! -e end ]; do
	[ ! -e crash ] || kill -SEGV $$
	printf '%s %08d\n' "$0" $n; n=$((n + 1))
done
printf 'end of %s: %s\n' "$0" "$(cat end)"; exit 0`

// printer is a session with such an agent.
type printer struct {
	*testSession
	work string
}

func (d *corrald) printer(t *testing.T, id string) printer {
	t.Helper()
	work := filepath.Join(d.dir, id)
	require.NoError(t, os.Mkdir(work, 0o700))
	return printer{d.create(t, id, spec{"Command": []string{"sh", "-c", printing, id}, "WorkingDirectory": work}), work}
}

// log returns what the session's agent has printed.
func (p printer) log() string {
	p.t.Helper()
	return readFile(p.t, filepath.Join(p.stateDir(p.id), "output.log"))
}

// waitOutput waits until the agent has printed 1000 bytes more.
func (p printer) waitOutput() {
	p.t.Helper()
	before := len(p.log())
	testbed.Poll(p.t, p.id+" prints", func() bool { return len(p.log()) > before+1000 })
}

// assertNumbered checks that text is what the agent prints, byte for byte: each line once, in
// order, and nothing else.
func (p printer) assertNumbered(text string) {
	p.t.Helper()
	var want strings.Builder
	n := strings.Count(text, "\n")
	for i := range n {
		fmt.Fprintf(&want, "%s %08d\r\n", p.id, i)
	}
	if text != want.String() { // not assert.Equal, which would print all of it
		p.t.Errorf("%s: %d lines differ from what its agent has printed", p.id, n)
	}
}

// TestCrash_TouchesNoOtherSession lets four sessions print at the same time, one of which crashes.
// The crash is published for that session only; the others keep printing and accept input, and each
// log contains everything its own agent printed and nothing of another's. The user then restarts
// the crashed session in the same workspace. The rows "crash" of make bench measure how long this
// takes.
func TestCrash_TouchesNoOtherSession(t *testing.T) {
	d := startDaemon(t, "LogMaxSize=1G")
	var all []printer
	pids := map[string]int{}
	for _, id := range []string{"one", "two", "three", "four"} {
		p := d.printer(t, id)
		all = append(all, p)
		pids[id] = p.waitState("running").number("MainPID")
	}
	crashes := all[1]
	others := []printer{all[0], all[2], all[3]}
	for _, p := range all {
		p.waitOutput()
	}
	mark := d.signals.mark()
	require.NoError(t, os.WriteFile(filepath.Join(crashes.work, "crash"), nil, 0o600))
	crashes.waitOutcome(outcome{"failed", "signal", 2, 11, "command was killed by SIGSEGV", "error"})
	crashed := crashes.log()
	for _, p := range others { // unchanged and still printing
		after := p.properties()
		assert.Equal(t, "running", after.text("State"), p.id)
		assert.Equal(t, pids[p.id], after.number("MainPID"), p.id)
		p.waitOutput()
	}
	d.waitProblems(t, 0)

	require.NoError(t, os.Remove(filepath.Join(crashes.work, "crash")))
	crashes.must("Start")
	again := crashes.waitState("running")
	assert.NotEqual(t, pids["two"], again.number("MainPID"), "another process")
	assert.Equal(t, "active", again.text("Lifecycle"))
	testbed.Poll(t, "the new run is where the crashed one was", func() bool {
		return readFile(t, filepath.Join(crashes.work, "runs")) == "begun\nbegun\n"
	})
	crashes.waitOutput()

	for _, p := range all {
		p.must("SendInput", "enough for "+p.id, uint64(1))
	}
	for _, p := range all {
		p.waitState("completed")
		text := p.log()
		if p.id == "two" {
			whole := crashed[:strings.LastIndex(crashed, "\n")+1] // it died between two writes, or within one
			p.assertNumbered(whole)
			require.True(t, strings.HasPrefix(text, crashed), "the log still has the output of the crashed run")
			text = text[strings.Index(text[len(whole):], "two 00000000\r\n")+len(whole):]
		}
		end := fmt.Sprintf("end of %s: enough for %s\r\n", p.id, p.id)
		lines, ended := strings.CutSuffix(text, end)
		assert.True(t, ended, "%s got its own text and no other: %q", p.id, text[max(0, len(text)-100):])
		p.assertNumbered(lines)
		assert.Contains(t, p.capture(0, 0), strings.TrimSpace(end), "the screen shows the end, too")
	}
	var changes []change
	signals, _ := d.signals.since(mark)
	for _, s := range signals {
		if c, ok := stateChange(s); ok {
			changes = append(changes, c)
		}
	}
	assert.Subset(t, changes, []change{{"two", "running", "failed"}, {"two", "failed", "starting"},
		{"two", "starting", "running"}})
	for _, p := range all {
		assert.Contains(t, changes, change{p.id, "running", "completed"})
	}
	assert.Len(t, changes, 3+4, "nothing else was published of any session: %v", changes)
}

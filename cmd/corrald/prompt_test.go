package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// promptRecorder is an agent that enables bracketed paste and records every line that it reads,
// with its process id. It exits with 7 on SIGTERM.
func (d *corrald) promptRecorder(id string) spec {
	script := `trap 'exit 7' TERM; stty -echo; printf '\033[?2004hgo'; echo "$$ begins" >>"$0"; ` +
		`while read -r line; do echo "$$ $line" >>"$0"; done`
	return spec{"Command": []string{"bash", "-c", script, d.dir + "/" + id + ".read"}, "Prompt": "fix the tests"}
}

// countPrompts waits until the agents of a session have recorded n lines, and returns how many of
// them are the prompt.
func (d *corrald) countPrompts(t *testing.T, id string, n int) int {
	t.Helper()
	content := testbed.WaitFile(t, d.dir+"/"+id+".read", func(content []byte) bool {
		return strings.Count(string(content), "\n") >= n
	})
	return strings.Count(string(content), "fix the tests")
}

// sendLine sends the session's agent a line, which arrives after the prompt if that is sent at all.
func (s *testSession) sendLine(text string) { s.must("SendInput", text, uint64(1)) }

func TestPrompt(t *testing.T) {
	d := startDaemon(t)
	s := d.create(t, "prompted", d.promptRecorder("prompted"))
	s.sendLine("then this")
	assert.Equal(t, 1, d.countPrompts(t, "prompted", 3))
	lines := strings.Split(readFile(t, d.dir+"/prompted.read"), "\n")
	assert.Contains(t, lines[1], "fix the tests", "the prompt is the first input")

	t.Run("a resume does not send it again", func(t *testing.T) {
		s.must("Suspend")
		s.must("Resume")
		s.sendLine("go on")
		assert.Equal(t, 1, d.countPrompts(t, "prompted", 5))
	})
	t.Run("another daemon does not send it again", func(t *testing.T) {
		d.kill(syscall.SIGKILL)
		d.launch()
		s.sendLine("go on")
		assert.Equal(t, 1, d.countPrompts(t, "prompted", 6))
	})
	t.Run("a fresh run sends it again", func(t *testing.T) {
		s.must("Restart")
		s.sendLine("go on")
		assert.Equal(t, 2, d.countPrompts(t, "prompted", 9))
	})
	t.Run("no other process sees it", func(t *testing.T) {
		processes, err := exec.Command("ps", "-eww", "-o", "args").Output()
		require.NoError(t, err)
		assert.NotContains(t, string(processes), "fix the tests")
		assert.NotContains(t, d.log.String(), "fix the tests")
		assert.NotContains(t, fmt.Sprint(s.properties()), "fix the tests")
		signals, _ := d.signals.since(0)
		for _, signal := range signals {
			assert.NotContains(t, fmt.Sprint(signal.Body), "fix the tests")
		}
		left, err := filepath.Glob(d.runtimeDir("prompted") + "/*")
		require.NoError(t, err)
		for _, path := range left {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				assert.NotContains(t, readFile(t, path), "fix the tests", path)
			}
		}
	})
}

func TestPrompt_UndeliveredIsSentOnResume(t *testing.T) {
	d := startDaemon(t)
	sp := d.promptRecorder("early")
	command := sp["Command"].([]string)
	command[2] = `[ -e "$0" ] || { echo first >"$0"; exit 3; }; ` + command[2]
	s := d.create(t, "early", sp)
	s.waitState("failed")
	s.must("Resume")
	assert.Equal(t, 1, d.countPrompts(t, "early", 3))
}

// TestPrompt_IsDeliveredOnceDespiteDaemonCrash kills the daemon at each step of a start. Either the
// shim has the prompt by then, or no agent has received anything, and the next run, resumed or not,
// receives it.
func TestPrompt_IsDeliveredOnceDespiteDaemonCrash(t *testing.T) {
	d := startDaemon(t)
	for n, step := range startSteps[1:] {
		t.Run(step.point, func(t *testing.T) {
			id := fmt.Sprintf("prompted-%d", n)
			d.relaunchWithFailpoint(t, step.point)
			s, _ := d.tryCreate(t, id, d.promptRecorder(id))
			d.waitKilled(t)
			d.launch()
			state := s.wait("not starting", func(p properties) bool { return p.text("State") != "starting" }).text("State")
			require.Equal(t, step.state, state)
			if state == "failed" {
				s.must("Resume")
			}
			s.sendLine("and this")
			assert.Equal(t, 1, d.countPrompts(t, id, 3))
			s.must("Stop", uint64(0))
		})
	}
}

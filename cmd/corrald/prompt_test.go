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

// listener is an agent that asks for pastes and writes down every line that it is told, with its
// process id. It ends with 7 when it is asked to.
func (d *corrald) listener(id string) spec {
	script := `trap 'exit 7' TERM; stty -echo; printf '\033[?2004hgo'; echo "$$ begins" >>"$0"; while read -r line; do echo "$$ $line" >>"$0"; done`
	return spec{"Command": []string{"bash", "-c", script, d.dir + "/" + id + ".told"}, "Prompt": "fix the tests"}
}

// told waits until the agents of a session have been told n things, and returns the number of times
// that one of these was the prompt.
func (d *corrald) told(t *testing.T, id string, n int) int {
	t.Helper()
	content := testbed.WaitFile(t, d.dir+"/"+id+".told", func(content []byte) bool { return strings.Count(string(content), "\n") >= n })
	return strings.Count(string(content), "fix the tests")
}

// sayTo has the session's agent be told something, which comes after the prompt if that is told at
// all.
func (s *subject) sayTo(text string) { s.must("SendInput", text, uint64(1)) }

func TestPrompt(t *testing.T) {
	d := startDaemon(t)
	s := d.create(t, "told", d.listener("told"))
	s.sayTo("then this")
	assert.Equal(t, 1, d.told(t, "told", 3))
	lines := strings.Split(readFile(t, d.dir+"/told.told"), "\n")
	assert.Contains(t, lines[1], "fix the tests", "it comes first")

	t.Run("a resume does not say it again", func(t *testing.T) {
		s.must("Suspend")
		s.must("Resume")
		s.sayTo("go on")
		assert.Equal(t, 1, d.told(t, "told", 5))
	})
	t.Run("another daemon does not either", func(t *testing.T) {
		d.kill(syscall.SIGKILL)
		d.launch()
		s.sayTo("go on")
		assert.Equal(t, 1, d.told(t, "told", 6))
	})
	t.Run("a fresh run does", func(t *testing.T) {
		s.must("Restart")
		s.sayTo("go on")
		assert.Equal(t, 2, d.told(t, "told", 9))
	})
	t.Run("nobody else sees it", func(t *testing.T) {
		processes, err := exec.Command("ps", "-eww", "-o", "args").Output()
		require.NoError(t, err)
		assert.NotContains(t, string(processes), "fix the tests")
		assert.NotContains(t, d.log.String(), "fix the tests")
		assert.NotContains(t, fmt.Sprint(s.facts()), "fix the tests")
		signals, _ := d.heard.since(0)
		for _, signal := range signals {
			assert.NotContains(t, fmt.Sprint(signal.Body), "fix the tests")
		}
		left, err := filepath.Glob(d.runtimeDir("told") + "/*")
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
	sp := d.listener("early")
	command := sp["Command"].([]string)
	command[2] = `[ -e "$0" ] || { echo first >"$0"; exit 3; }; ` + command[2]
	s := d.create(t, "early", sp)
	s.become("failed")
	s.must("Resume")
	assert.Equal(t, 1, d.told(t, "early", 3))
}

// TestPrompt_IsDeliveredOnceDespiteDaemonCrash at any step of the start: by then its shim has it,
// or there is no agent that was told anything, and the next run, resumed or not, is told it.
func TestPrompt_IsDeliveredOnceDespiteDaemonCrash(t *testing.T) {
	d := startDaemon(t)
	for n, step := range startSteps[1:] {
		t.Run(step.point, func(t *testing.T) {
			id := fmt.Sprintf("told-%d", n)
			d.relaunchToDie(t, step.point)
			s, _ := d.tryCreate(t, id, d.listener(id))
			d.dead(t)
			d.launch()
			state := s.wait("at rest", func(f facts) bool { return f.text("State") != "starting" }).text("State")
			require.Equal(t, step.state, state)
			if state == "failed" {
				s.must("Resume")
			}
			s.sayTo("and this")
			assert.Equal(t, 1, d.told(t, id, 3))
			s.must("Stop", uint64(0))
		})
	}
}

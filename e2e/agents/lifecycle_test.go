//go:build e2e || agents

package agents

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// behaviour describes how an agent interacts with its user.
type behaviour struct {
	agent   string
	asks    string   // text on the screen when it asks for permission to run a command, "" if it never does
	approve []string // keys that approve
	source  string   // expected AttentionSource
	wants   string   // expected Attention when it asks
	message string   // expected part of AttentionMessage when it asks to touch a file y
}

// interrupt returns the keys that interrupt a turn.
func (m behaviour) interrupt() []string {
	switch m.agent {
	case "copilot", "kilo", "opencode": // they ask for a second one, which must follow soon
		return []string{"Escape", "Escape"}
	}
	return []string{"Escape"}
}

var (
	claude = behaviour{"claude", "Do you want to proceed?", []string{"Enter"}, "osc7501", "permission", "touch y"}
	codex  = behaviour{
		"codex", "Would you like to run the following command?", []string{"Enter"}, "osc7501", "permission", "",
	}
	gemini  = behaviour{"gemini", "Allow execution of", []string{"Enter"}, "title", "question", ""}
	copilot = behaviour{
		"copilot", "Do you want to run this command?", []string{"Enter"}, "report", "permission", "touch y",
	}
	opencode = behaviour{"opencode", "Permission required", []string{"Enter"}, "report", "permission", "touch y"}
	kilo     = behaviour{"kilo", "Permission required", []string{"Enter"}, "report", "permission", "touch y"}
	kimi     = behaviour{"kimi", "Run this command?", []string{"1"}, "report", "permission", ""}
	droid    = behaviour{"droid", "Command to approve", []string{"Enter"}, "report", "permission", "needs permission"}
	pi       = behaviour{agent: "pi"}
	qwen     = behaviour{"qwen", "Allow execution of", []string{"Enter"}, "report", "permission", "touch y"}
)

// maxDelay limits the time between a question on the screen and its publication on the bus.
const maxDelay = 250 * time.Millisecond

// The agents that every change of Corral is tested with.
func TestClaude(t *testing.T)  { live(t, claude) }
func TestCodex(t *testing.T)   { live(t, codex) }
func TestGemini(t *testing.T)  { live(t, gemini) }
func TestCopilot(t *testing.T) { live(t, copilot) }

// live starts an agent with a prompt of several lines, waits for a permission request and approves
// it, interrupts the agent, kills it during the next permission request, resumes it and stops it.
// An agent that asks for no permission is killed while it works.
func live(t *testing.T, m behaviour, options ...string) {
	f := newFixture(t)
	first := "the first line\nand a second one, 漢字\n\nand the last"
	if m.agent == "gemini" { // it drops empty lines of a paste
		first = strings.ReplaceAll(first, "\n\n", "\n")
	}
	s := f.run(m.agent, "shop", append([]string{"--prompt", first}, options...)...)
	f.asked(first, 1)
	_, mark := s.becomes(0, "idle (turn-ended)")
	s.shows("The model has read: the first line")

	s.send("RUN: touch y")
	if m.asks != "" {
		s.asksFor(mark, m)
		mark = s.approve(m)
	}
	_, mark = s.becomes(mark, "idle (turn-ended)")
	assert.FileExists(t, filepath.Join(s.workspace, "y"))

	mark = s.interrupted(mark, m)
	if m.asks != "" {
		s.send("RUN: touch z")
		_, mark = s.becomes(mark, "waiting ("+m.wants+")")
		s.shows(m.asks)
	} else {
		s.send("HOLD: to be killed")
		_, mark = s.becomes(mark, "working")
		f.asked("HOLD: to be killed", 1)
	}
	conversation := s.known()
	if m.agent == "kimi" {
		s.saves("RUN: touch z")
	}
	s.kill(syscall.SIGKILL)
	now := s.is("failed")
	assert.Equal(t, "signal", now.Result)
	assert.Equal(t, "command was killed by SIGKILL", now.Reason)

	s.corralctl("resume", s.id)
	if m.agent == "kilo" { // on a busy machine, it starts for longer than a text waits
		s.shows("the first line")
	}
	again := "are you still there"
	s.send(again)
	if m.agent == "kimi" { // it appends this to the prompt that it has not answered, and so asks again
		again = "RUN: touch z\n\n" + again
		_, _ = s.becomes(mark, "waiting (permission)")
		s.shows(m.asks)
		mark = s.approve(behaviour{agent: m.agent, approve: []string{"3"}}) // "Reject"
	}
	s.shows("the first line")
	f.asked(again, 1)
	assert.Contains(t, f.model.RequestFor(again), "The model has read: the first line",
		"%s does not know the conversation before", m.agent)
	assert.Equal(t, conversation, s.is("running").ConversationId)
	_, _ = s.becomes(mark, "idle (turn-ended)")
	f.asked(first, 1)
	assert.NoFileExists(t, filepath.Join(s.workspace, "z"))

	where := s.is("running").ControlGroup
	assert.NotEmpty(t, group(t, where))
	s.corralctl("stop", s.id)
	s.is("stopped")
	assert.Empty(t, group(t, where), "%s is left", m.agent)
}

// asksFor waits until the agent's permission request is published, checks its attention properties,
// and returns how long after the question had appeared on the screen that was.
func (s *subject) asksFor(mark int, m behaviour) (late time.Duration) {
	s.t.Helper()
	shown := s.shows(m.asks)
	published, _ := s.becomes(mark, "waiting ("+m.wants+")")
	late = published.at.Sub(shown)
	s.t.Logf("%s: a question is published %v after it is on the screen", m.agent, late.Round(time.Millisecond))
	assert.Less(s.t, late, maxDelay)
	now, err := s.client.Session(s.t.Context(), s.id)
	require.NoError(s.t, err)
	assert.Equal(s.t, m.source, now.AttentionSource)
	assert.Contains(s.t, now.AttentionMessage, m.message)
	return late
}

// approve presses the keys that approve, until the agent accepts them: agents ignore keys for a
// moment after they have asked a question. It returns the mark before the resulting change.
func (s *subject) approve(m behaviour) int {
	s.t.Helper()
	mark := s.mark()
	for begin := time.Now(); ; {
		s.press(m.approve...)
		if s.soon(mark, func(c change) bool { return c.activity != "waiting" }) {
			s.t.Logf("%s: the approval is published %v after the first key", m.agent, time.Since(begin).Round(time.Millisecond))
			return mark
		}
		require.Less(s.t, time.Since(begin), timeout, "session %s does not take an approval\n%s", s.id, s.look())
	}
}

// interrupted makes the agent work and presses Escape. It returns the mark after the resulting
// changes.
func (s *subject) interrupted(mark int, m behaviour) int {
	s.t.Helper()
	defer s.model.Release(s.id)
	s.send("HOLD: " + s.id)
	s.asked("HOLD: "+s.id, 1)
	_, mark = s.becomes(mark, "working")
	for begin := time.Now(); ; { // it may ignore keys for a moment
		s.press(m.interrupt()...)
		if s.soon(mark, func(c change) bool { return c.activity == "idle" }) {
			s.rests()
			return s.mark()
		}
		require.Less(s.t, time.Since(begin), timeout, "session %s is not published as interrupted\n%s", s.id, s.look())
	}
}

// rests waits until the screen has not changed for half a second.
func (s *subject) rests() {
	s.t.Helper()
	begin := time.Now()
	for before, now := "", s.screen(); now != before; before, now = now, s.screen() {
		require.Less(s.t, time.Since(begin), timeout, "the screen of session %s does not rest\n%s", s.id, now)
		s.soon(s.mark(), func(change) bool { return false })
	}
}

// soon reports whether a change that matches is published after the mark within half a second.
func (s *subject) soon(mark int, is func(change) bool) bool {
	return s.within(500*time.Millisecond, mark, is)
}

// within reports whether a change that matches is published after the mark in this time.
func (s *subject) within(limit time.Duration, mark int, is func(change) bool) bool {
	for deadline := time.After(limit); ; {
		changes, _, more := s.since(mark)
		if slices.ContainsFunc(changes, is) {
			return true
		}
		select {
		case <-more:
		case <-deadline:
			return false
		}
	}
}

// group returns the processes in a control group, none if it does not exist.
func group(t *testing.T, path string) []string {
	t.Helper()
	procs, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", path, "cgroup.procs"))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	return strings.Fields(string(procs))
}

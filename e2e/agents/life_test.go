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

// manner is how an agent behaves towards a person.
type manner struct {
	agent   string
	asks    string   // what is on the screen when it asks whether it may run a command
	approve []string // keys
	source  string   // who tells what it does
	wants   string   // what a person is told that it wants when it asks
	message string   // and what more, when it asks to touch a file y
}

var (
	claude   = manner{"claude", "Do you want to proceed?", []string{"Enter"}, "osc7501", "permission", "touch y"}
	codex    = manner{"codex", "Would you like to run the following command?", []string{"Enter"}, "osc7501", "permission", ""}
	gemini   = manner{"gemini", "Allow execution of", []string{"Enter"}, "title", "question", ""}
	copilot  = manner{"copilot", "Do you want to run this command?", []string{"Enter"}, "report", "permission", "touch y"}
	opencode = manner{"opencode", "Permission required", []string{"Enter"}, "report", "permission", "touch y"}
	qwen     = manner{"qwen", "Allow execution of", []string{"Enter"}, "report", "permission", "touch y"}
)

// onTheBus is how late a person may be told of a question, after it is on the screen.
const onTheBus = 250 * time.Millisecond

// The lives of the agents that every change of Corral is tried with.
func TestClaude(t *testing.T)  { live(t, claude) }
func TestCodex(t *testing.T)   { live(t, codex) }
func TestGemini(t *testing.T)  { live(t, gemini) }
func TestCopilot(t *testing.T) { live(t, copilot) }

// live starts an agent with a prompt of several lines, has it ask for permission and approves,
// kills it in the middle of the next question, resumes it and stops it. In between it is
// interrupted.
func live(t *testing.T, m manner) {
	w := newWorld(t)
	first := "the first line\nand a second one, 漢字\n\nand the last"
	if m.agent == "gemini" { // it drops empty lines of a paste
		first = strings.ReplaceAll(first, "\n\n", "\n")
	}
	s := w.run(m.agent, "shop", "--prompt", first)
	w.asked(first, 1)
	_, mark := s.becomes(0, "idle (turn-ended)")
	s.shows("The model has read: the first line")

	s.send("RUN: touch y")
	s.asksFor(mark, m)
	mark = s.approve(m)
	_, mark = s.becomes(mark, "idle (turn-ended)")
	assert.FileExists(t, filepath.Join(s.workspace, "y"))

	mark = s.interrupted(mark, m)
	s.send("RUN: touch z")
	_, mark = s.becomes(mark, "waiting ("+m.wants+")")
	s.shows(m.asks)
	conversation := s.known()
	s.kill(syscall.SIGKILL)
	now := s.is("failed")
	assert.Equal(t, "signal", now.Result)
	assert.Equal(t, "command was killed by SIGKILL", now.Reason)

	s.corralctl("resume", s.id)
	s.send("are you still there")
	s.shows("the first line")
	w.asked("are you still there", 1)
	assert.Contains(t, w.model.RequestFor("are you still there"), "The model has read: the first line", "%s does not know what was said before", m.agent)
	assert.Equal(t, conversation, s.is("running").ConversationId)
	_, _ = s.becomes(mark, "idle (turn-ended)")
	w.asked(first, 1)
	assert.NoFileExists(t, filepath.Join(s.workspace, "z"))

	where := s.is("running").ControlGroup
	assert.NotEmpty(t, group(t, where))
	s.corralctl("stop", s.id)
	s.is("stopped")
	assert.Empty(t, group(t, where), "%s is left", m.agent)
}

// asksFor waits until the bus tells that the agent asks for permission, measures how long after the
// question's being on the screen that is, and looks what the person is told. It returns the mark
// behind.
func (s *subject) asksFor(mark int, m manner) (late time.Duration) {
	s.t.Helper()
	shown := s.shows(m.asks)
	told, _ := s.becomes(mark, "waiting ("+m.wants+")")
	late = told.at.Sub(shown)
	s.t.Logf("%s: a question is on the bus %v after it is on the screen", m.agent, late.Round(time.Millisecond))
	assert.Less(s.t, late, onTheBus)
	now, err := s.client.Session(s.t.Context(), s.id)
	require.NoError(s.t, err)
	assert.Equal(s.t, m.source, now.AttentionSource)
	assert.Contains(s.t, now.AttentionMessage, m.message)
	return late
}

// approve says yes to what the agent asks, as often as it takes: agents do not take a key for a
// moment after they have put a question. It returns the mark behind what was told of that.
func (s *subject) approve(m manner) int {
	s.t.Helper()
	mark := s.mark()
	for begin := time.Now(); ; {
		s.press(m.approve...)
		if s.soon(mark, func(c change) bool { return c.activity != "waiting" }) {
			s.t.Logf("%s: a yes is told on the bus %v after it was first given", m.agent, time.Since(begin).Round(time.Millisecond))
			return mark
		}
		require.Less(s.t, time.Since(begin), patience, "session %s does not take a yes\n%s", s.id, s.look())
	}
}

// interrupted has the agent work, and a person press Esc. It returns the mark behind what was told
// of that.
func (s *subject) interrupted(mark int, m manner) int {
	s.t.Helper()
	if m.agent == "copilot" { // which does not tell
		return mark
	}
	defer s.model.Release(s.id)
	s.send("HOLD: " + s.id)
	s.asked("HOLD: "+s.id, 1)
	_, mark = s.becomes(mark, "working")
	for begin := time.Now(); ; { // it may take no key for a moment
		s.press("Escape")
		if s.soon(mark, func(c change) bool { return c.activity == "idle" }) {
			s.rests()
			s.press("C-u") // some put what they were asked back into the input line
			return s.mark()
		}
		require.Less(s.t, time.Since(begin), patience, "session %s is not told to be interrupted\n%s", s.id, s.look())
	}
}

// rests waits until what is on the screen stays for half a second.
func (s *subject) rests() {
	s.t.Helper()
	begin := time.Now()
	for before, now := "", s.screen(); now != before; before, now = now, s.screen() {
		require.Less(s.t, time.Since(begin), patience, "the screen of session %s does not rest\n%s", s.id, now)
		s.soon(s.mark(), func(change) bool { return false })
	}
}

// soon tells whether there is such a change after the mark within half a second.
func (s *subject) soon(mark int, is func(change) bool) bool {
	for deadline := time.After(500 * time.Millisecond); ; {
		changes, _, more := s.told(mark)
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

// group returns the processes in a control group; there are none in one that is gone.
func group(t *testing.T, path string) []string {
	t.Helper()
	procs, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", path, "cgroup.procs"))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	return strings.Fields(string(procs))
}

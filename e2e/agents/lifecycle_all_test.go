//go:build agents

package agents

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDroid(t *testing.T)    { live(t, droid) }
func TestKilo(t *testing.T)     { live(t, kilo) }
func TestKimi(t *testing.T)     { live(t, kimi) }
func TestOpencode(t *testing.T) { live(t, opencode) }
func TestPi(t *testing.T)       { live(t, pi) }
func TestQwen(t *testing.T)     { live(t, qwen) }

// TestCline lets Cline, which reports nothing, run a command, and stops and resumes it. Another
// session of it, which was started later, runs its commands in its own scope.
func TestCline(t *testing.T) {
	f := newFixture(t)
	s := f.run("cline", "shop", "--prompt", "my name is Anna")
	f.asked("my name is Anna", 1)
	s.shows("The model has read: my name is Anna")
	other := f.runIn(s.workspace, "cline", "other", "--prompt", "RUN: cat /proc/self/cgroup >group")
	other.shows("The command was run.")
	file := filepath.Join(s.workspace, "group")
	assert.Contains(t, readFile(t, file), other.is("running").ControlGroup)

	where := s.is("running").ControlGroup
	f.corralctl("stop", "shop")
	s.is("stopped")
	assert.Empty(t, group(t, where))
	conversation := s.known()
	f.corralctl("resume", "shop")
	s.send("are you still there")
	f.asked("are you still there", 1)
	assert.Contains(t, f.model.RequestFor("are you still there"), "The model has read: my name is Anna")
	assert.Equal(t, conversation, s.is("running").ConversationId)
}

func TestApprove_PressesTheKeysOfOtherDefinitions(t *testing.T) {
	for _, m := range []behaviour{droid, kilo, kimi} {
		t.Run(m.agent, func(t *testing.T) { approves(t, m) })
	}
}

// TestSetup_IsReadFromTheScreen starts agents that do not report what they ask at their first
// start.
func TestSetup_IsReadFromTheScreen(t *testing.T) {
	f := newFixture(t)
	f.bare = true
	f.write("work/pi/.pi/settings.json", "{}") // Pi asks only about a directory with settings
	for agent, dialog := range map[string]string{
		"cline": "Connect a model provider", "droid": "Trust this folder?", "kimi": "Trust this folder?",
		"pi": "Trust project folder?",
	} {
		s := f.run(agent, agent, "--prompt", "hello")
		s.shows(dialog)
		now := s.awaitAttention()
		assert.Equal(t, "setup", now.Attention)
		assert.Contains(t, now.AttentionMessage, dialog)
		s.shows(dialog) // the prompt was not typed as an answer
		f.corralctl("stop", agent)
	}
	prompts, _ := f.model.Prompts()
	assert.Empty(t, prompts)
}

func TestAccounts_Copilot(t *testing.T) { accounts(t, "copilot") }
func TestAccounts_Gemini(t *testing.T)  { accounts(t, "gemini") }
func TestAccounts_Qwen(t *testing.T)    { accounts(t, "qwen") }

// TestAccounts_Opencode also checks that the commands that opencode runs do not get the directory
// of the account as that of their data.
func TestAccounts_Opencode(t *testing.T) {
	s := accounts(t, "opencode")
	assert.Equal(t, "XDG_DATA_HOME="+s.dir+"/.local/share/opencode-work", s.variable("XDG_DATA_HOME"))
	s.send("RUN: printenv XDG_DATA_HOME >data")
	s.shows(opencode.asks)
	_ = s.approve(opencode)
	s.shows("The command was run.")
	assert.Equal(t, s.dir+"/.local/share\n", readFile(t, filepath.Join(s.workspace, "data")))
}

//go:build agents

package agents

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi/client"
)

func TestFork_Claude(t *testing.T)   { forks(t, claude, true) }
func TestFork_Codex(t *testing.T)    { forks(t, codex, true) }
func TestFork_Droid(t *testing.T)    { forks(t, droid, false) }
func TestFork_Kilo(t *testing.T)     { forks(t, kilo, false) }
func TestFork_Opencode(t *testing.T) { forks(t, opencode, false) }
func TestFork_Pi(t *testing.T)       { forks(t, pi, true) }
func TestFork_Qwen(t *testing.T)     { forks(t, qwen, false) }

// forks copies the conversation of a running session, in its workspace and, if the agent can do
// that elsewhere, in a new worktree. The copies know the prompts before, and the conversations
// then continue independently.
func forks(t *testing.T, m behaviour, elsewhere bool) {
	f := newFixture(t)
	s := f.run(m.agent, "shop", "--no-start", "--prompt", "my name is Anna")
	git(t, s.workspace, "init", "--quiet", "--initial-branch=main")
	git(t, s.workspace, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--allow-empty", "--message=a")
	f.corralctl("start", "shop")
	_, mark := s.becomes(0, "idle (turn-ended)")
	original := s.known()

	copies := []string{"here", "tree"}
	if !elsewhere {
		copies = copies[:1]
		out, err := f.tryCorralctl("run", "--fork", s.id, "--worktree")
		require.Error(t, err)
		assert.Contains(t, out, "copies a conversation only in its workspace")
	}
	for _, id := range copies {
		var c *subject
		if id == "tree" {
			c = f.fork(s, id, "--worktree")
		} else {
			c = f.fork(s, id)
		}
		f.corralctl("start", c.id)
		c.shows("my name is Anna")
		if c.id == "here" { // before it gets a prompt
			c.kill(syscall.SIGKILL)
			c.is("failed")
			f.corralctl("resume", c.id)
			c.await("running again", func(now client.Session) bool { return now.State == "running" && now.NRuns == 2 })
			c.shows("my name is Anna")
		}
		c.send("hello from " + c.id)
		f.asked("hello from "+c.id, 1)
		request := f.model.RequestFor("hello from " + c.id)
		assert.Contains(t, request, "The model has read: my name is Anna")
		assert.Contains(t, request, c.workspace, "it works in its own workspace")
		_, _ = c.becomes(0, "idle (turn-ended)")
		copied := c.known()
		assert.NotEqual(t, original, copied)

		c.kill(syscall.SIGKILL)
		c.is("failed")
		f.corralctl("resume", c.id)
		c.shows("hello from " + c.id)
		c.send("again in " + c.id)
		f.asked("again in "+c.id, 1)
		assert.Contains(t, f.model.RequestFor("again in "+c.id), "hello from "+c.id)
		assert.Equal(t, copied, c.is("running").ConversationId)
	}
	s.send("and the original")
	_, _ = s.becomes(mark, "idle (turn-ended)")
	f.asked("and the original", 1)
	assert.NotContains(t, f.model.RequestFor("and the original"), "hello from")
	assert.Equal(t, original, s.is("running").ConversationId)
}

// fork creates a session that begins with a copy of the conversation of s.
func (f *fixture) fork(s *subject, id string, more ...string) *subject {
	f.t.Helper()
	c := &subject{fixture: f, id: id, more: make(chan struct{})}
	f.t.Cleanup(c.logOutput)
	c.watch()
	f.corralctl(append([]string{"run", "--fork", s.id, "--id", id, "--no-start"}, more...)...)
	now, err := f.client.Session(f.t.Context(), id)
	require.NoError(f.t, err)
	assert.Equal(f.t, s.id, now.ForkedFrom)
	c.workspace = now.WorkingDirectory
	f.setup(now.Agent, c.workspace)
	return c
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

//go:build e2e || agents

package agents

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/internal/testbed"
)

// TestResume_NeedsSavedConversation checks that Claude Code is resumed only after it has saved a
// conversation: it saves nothing before the first prompt, and refuses to start a new conversation
// with a saved id.
func TestResume_NeedsSavedConversation(t *testing.T) {
	f := newFixture(t)
	s := f.run("claude", "shop")
	id := s.is("running").ConversationId
	s.kill(syscall.SIGKILL)
	s.is("failed")
	assert.Contains(t, f.corralctl("resume", "shop"), "no conversation was saved yet")
	now := s.is("running")
	assert.False(t, now.Resumed)
	assert.Equal(t, id, now.ConversationId)

	mark := s.mark()
	s.send("remember this")
	_, _ = s.becomes(mark, "idle (turn-ended)")
	s.saved()
	s.kill(syscall.SIGKILL)
	s.is("failed")
	assert.NotContains(t, f.corralctl("resume", "shop"), "no conversation")
	now = s.is("running")
	assert.True(t, now.Resumed)
	assert.Equal(t, id, now.ConversationId)
	s.shows("remember this")

	t.Run("another session is refused it", func(t *testing.T) {
		out, err := f.tryCorralctl("run", "--id", "second", "--dir", s.workspace, "--conversation", id, "claude")
		require.Error(t, err)
		assert.Contains(t, out, `in use by session "shop"`)
	})

	f.corralctl("restart", "shop")
	assert.NotEqual(t, id, s.is("running").ConversationId, "a fresh run is a conversation of its own")
}

// saved waits until Claude Code has saved its turn, a moment after it has reported the end of the
// turn.
func (s *subject) saved() {
	s.t.Helper()
	id := s.known()
	testbed.Poll(s.t, "Claude Code has saved its turn", func() bool {
		files, err := filepath.Glob(s.dir + "/.claude/projects/*/" + id + ".jsonl")
		require.NoError(s.t, err)
		return len(files) == 1 && strings.Contains(readFile(s.t, files[0]), `"type":"assistant"`)
	})
}

// saves waits until Kimi Code has saved a text, which it does a moment after it has shown it.
func (s *subject) saves(text string) {
	s.t.Helper()
	id := s.known()
	testbed.Poll(s.t, "Kimi Code has saved "+text, func() bool {
		files, err := filepath.Glob(s.dir + "/.kimi-code/sessions/*/" + id + "/agents/main/wire.jsonl")
		require.NoError(s.t, err)
		return len(files) == 1 && strings.Contains(readFile(s.t, files[0]), text)
	})
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

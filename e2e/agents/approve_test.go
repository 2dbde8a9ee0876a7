//go:build e2e || agents

package agents

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi"
)

// TestApprove_PressesTheKeysOfTheDefinition tests corralctl approve and deny with each agent whose
// keys are known: an approved command runs, a denied one does not.
func TestApprove_PressesTheKeysOfTheDefinition(t *testing.T) {
	for _, m := range []behaviour{claude, codex, copilot} {
		t.Run(m.agent, func(t *testing.T) { approves(t, m) })
	}
}

func approves(t *testing.T, m behaviour) {
	f := newFixture(t)
	s := f.run(m.agent, "shop", "--prompt", "hello")
	f.asked("hello", 1)
	_, mark := s.becomes(0, "idle (turn-ended)")
	s.send("RUN: touch y")
	s.becomes(mark, "waiting (permission)")
	s.shows(m.asks)
	s.answer("approve", func() error { return s.client.Approve(t.Context(), s.id) })
	_, mark = s.becomes(mark, "idle (turn-ended)")
	assert.FileExists(t, filepath.Join(s.workspace, "y"))

	s.send("RUN: touch z")
	s.becomes(mark, "waiting (permission)")
	s.shows(m.asks)
	s.answer("deny", func() error { return s.client.Deny(t.Context(), s.id) })
	for begin := time.Now(); ; {
		now, err := s.client.Session(t.Context(), s.id)
		require.NoError(t, err)
		if now.Activity == "idle" && !strings.Contains(s.screen(), m.asks) {
			break
		}
		require.Less(t, time.Since(begin), timeout, "the agent does not continue\n%s", s.look())
	}
	assert.NoFileExists(t, filepath.Join(s.workspace, "z"))
	assert.Equal(t, dbusapi.NotWaiting, dbusapi.ShortErrorName(s.client.Approve(t.Context(), s.id)))
	assert.NoFileExists(t, filepath.Join(s.workspace, "z"))
	t.Logf("%s\n%s", m.agent, s.screen())
}

// answer repeats an answer until the agent accepts it: agents ignore keys for a moment after they
// have asked a question.
func (s *subject) answer(what string, give func() error) {
	s.t.Helper()
	mark := s.mark()
	for begin, tries := time.Now(), 1; ; tries++ {
		err := give()
		if err != nil {
			require.Equal(s.t, dbusapi.NotWaiting, dbusapi.ShortErrorName(err), "%v", err)
		}
		if s.soon(mark, func(c change) bool { return c.activity != "waiting" }) {
			s.t.Logf("%s is published %v after the first key, in %d tries", what, time.Since(begin).Round(time.Millisecond),
				tries)
			return
		}
		require.Less(s.t, time.Since(begin), timeout, "session %s does not take it\n%s", s.id, s.look())
	}
}

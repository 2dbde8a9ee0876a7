package config

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestShippedTemplates: each account has a directory of its own, for which alone a conversation is
// resumed, and a file of variables; no variable that selects an account is inherited.
func TestShippedTemplates(t *testing.T) {
	agents, warnings := LoadAgents([]string{"../.."})
	require.Empty(t, lines(warnings))
	files, err := filepath.Glob("../../agents/*@.agent")
	require.NoError(t, err)
	accounts := map[string]struct{ variable, key string }{
		"claude":   {"CLAUDE_CONFIG_DIR=/home/u/.claude-work", "ANTHROPIC_API_KEY"},
		"codex":    {"CODEX_HOME=/home/u/.codex-work", "OPENAI_API_KEY"},
		"gemini":   {"GEMINI_CLI_HOME=/home/u/.gemini-work", "GEMINI_API_KEY"},
		"qwen":     {"QWEN_HOME=/home/u/.qwen-work", "OPENAI_API_KEY"},
		"opencode": {"XDG_DATA_HOME=/home/u/.local/share/opencode-work", "ANTHROPIC_API_KEY"},
		"copilot":  {"COPILOT_HOME=/home/u/.copilot-work", "GH_TOKEN"},
	}
	assert.Len(t, files, len(accounts))
	s := Specifiers{
		Conversation: "1b4e28ba-2fa1-4d2b-883f-0016d3cca427", Session: "shop", Instance: "work", Workspace: "/w",
		Runtime: "/run/u/1/corral/shop", Home: "/home/u", ConfigHome: "/home/u/.config", Share: "/usr/share/corral",
	}
	for name, want := range accounts {
		agent, ok := agents.Find(name + "@work")
		require.True(t, ok, name)
		assert.Equal(t, agents[name].Command, agent.Command, name)
		assert.Equal(t, agents[name].ResumeCommand, agent.ResumeCommand, name)
		environment, err := Expand(agent.Environment, s)
		require.NoError(t, err, name)
		assert.Contains(t, environment, want.variable, name)
		for _, entry := range agents[name].Environment {
			assert.Contains(t, agent.Environment, entry, name)
		}
		paths, err := Expand(agent.EnvironmentFiles, s)
		require.NoError(t, err, name)
		assert.Equal(t, []string{"-/home/u/.config/corral/accounts/work.env"}, paths, name)
		assert.Contains(t, agent.UnsetEnvironment, want.key, name)
		patterns, err := ExpandPatterns(agent.ResumeCondition, s, environment)
		require.NoError(t, err, name)
		_, dir, _ := strings.Cut(want.variable, "=")
		assert.Equal(t, len(agents[name].ResumeCondition) > 0, len(patterns) > 0, name)
		for _, pattern := range patterns {
			assert.True(t, strings.HasPrefix(pattern, dir+"/"), "%s: %s", name, pattern)
		}
	}
}

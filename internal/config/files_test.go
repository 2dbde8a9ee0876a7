package config

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAgentFiles(t *testing.T) {
	own := write(t, map[string]string{
		"agents/a.agent.d/20-mine.conf": "[Agent]\n", "agents/b.agent": "", "agents/command.agent.d/x.conf": "[Scope]\n",
	})
	installed := write(t, map[string]string{
		"agents/a.agent": "[Agent]\nCommand=a\n", "agents/a.agent.d/10-theirs.conf": "[Agent]\n",
		"agents/a.agent.d/20-mine.conf": "[Agent]\n",
		"agents/b.agent":                "[Agent]\nCommand=b\n",
	})
	for name, want := range map[string][]string{
		"a": {installed + "/agents/a.agent", installed + "/agents/a.agent.d/10-theirs.conf",
			own + "/agents/a.agent.d/20-mine.conf"},
		"b":       {own + "/agents/b.agent"},
		"command": {own + "/agents/command.agent.d/x.conf"},
		"c":       nil,
	} {
		got, err := AgentFiles([]string{own, installed}, name)
		require.NoError(t, err)
		assert.Equal(t, want, got, name)
	}
	assert.True(t, IsMasked(own+"/agents/b.agent"))
	assert.False(t, IsMasked(installed+"/agents/b.agent"))
	assert.False(t, IsMasked(own+"/agents/nonesuch"))
}

const unknownConversation = "Command= has %U, which is unknown before the agent runs " +
	"unless IdSource= is preset, history-file or create"

func TestAgentText_Check(t *testing.T) {
	check := func(text string, dropIn bool) []string {
		_, warnings := AgentText{Name: "a", Path: "/x/a.agent", DropIn: dropIn, Text: []byte(text)}.Check()
		texts := []string{}
		for _, w := range warnings {
			texts = append(texts, w.String())
		}
		return texts
	}
	assert.Empty(t, check("[Agent]\nCommand=a %U\nIdSource=preset\n[Scope]\nTasksMax=9\n", false))
	assert.Equal(t, []string{"/x/a.agent:3: " + unknownConversation}, check("[Agent]\n\nCommand=a %U\n", false))
	assert.Empty(t, check("[Agent]\nDescription=a\nCommand=a %U\n", true), "another file may have the rest")
	assert.Equal(t, []string{"/x/a.agent: agent has no Command="}, check("[Agent]\nDescription=a\n", false))
	assert.Equal(t, []string{"/x/a.agent:2: unknown key Comand= in section [Agent], ignored"},
		check("[Agent]\nComand=a\n", true))
}

// TestAgentText_ChecksDropInWithOtherFiles replaces an existing drop-in and checks it together with
// the agent's other files.
func TestAgentText_ChecksDropInWithOtherFiles(t *testing.T) {
	root := write(t, map[string]string{
		"agents/a.agent":                 "[Agent]\nCommand=a %U\nIdSource=preset\nColour=green\n",
		"agents/a.agent.d/10-other.conf": "[Agent]\nResumeCommand=a -r %U\n",
		"agents/a.agent.d/override.conf": "[Agent]\nIdSource=none\n",
	})
	path := filepath.Join(root, "agents/a.agent.d/override.conf")
	check := func(text string) []string {
		_, warnings := AgentText{Name: "a", Path: path, DropIn: true, Text: []byte(text), Dirs: []string{root}}.Check()
		texts := []string{}
		for _, w := range warnings {
			texts = append(texts, w.String())
		}
		return texts
	}
	assert.Empty(t, check("[Agent]\nResumeCondition=%h/%U\n"), "it is resumed by another file")
	assert.Equal(t, []string{path + ":3: IdSource=create requires IdCommand="}, check("[Agent]\n\nIdSource=create\n"))
	assert.Empty(t, check("[Agent]\nIdSource=create\nIdCommand=a make\n"))
	assert.Equal(t, []string{path + ":2: " + unknownConversation}, check("[Agent]\nCommand=b %U\nIdSource=report\n"))
}

func TestRemove(t *testing.T) {
	root := write(t, map[string]string{"a.agent.d/x.conf": "", "a.agent.d/y.conf": ""})
	dir := filepath.Join(root, "a.agent.d")
	require.NoError(t, Remove(filepath.Join(dir, "x.conf")))
	assert.FileExists(t, filepath.Join(dir, "y.conf"))
	require.NoError(t, Remove(filepath.Join(dir, "y.conf")))
	assert.NoDirExists(t, dir)
	require.NoError(t, Remove(filepath.Join(dir, "y.conf")))
}

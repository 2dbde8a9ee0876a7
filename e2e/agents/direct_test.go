//go:build agents

package agents

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDirect_Claude(t *testing.T) {
	direct(t, "claude", "--mcp-config", "$PREFIX/share/corral/hooks/mcp.json", "--strict-mcp-config",
		"--allowedTools", "mcp__corral")
}

func TestDirect_Codex(t *testing.T) {
	direct(t, "codex", "-c", `mcp_servers.corral={command="corralctl",args=["mcp"],default_tools_approval_mode="approve",`+
		`env_vars=["XDG_RUNTIME_DIR","DBUS_SESSION_BUS_ADDRESS"]}`)
}

func TestDirect_Qwen(t *testing.T) {
	direct(t, "qwen", "--mcp-config", "$PREFIX/share/corral/hooks/mcp.json", "--allowed-tools", "mcp__corral")
}

// direct has an agent start three sessions with corralctl mcp, wait for them, read what one has
// printed, and stop one. It cannot stop a session that somebody else has created.
func direct(t *testing.T, agent string, arguments ...string) {
	f := newFixture(t)
	f.corralctl("run", "-q", "--id", "other", "--", "sleep", "1000")
	for i := range arguments {
		arguments[i] = strings.ReplaceAll(arguments[i], "$PREFIX", filepath.Join(f.dir, "prefix"))
	}
	s := f.run(agent, "lead", append([]string{"--"}, arguments...)...)
	_, mark := s.becomes(0, "idle")
	turn := func(prompt string) {
		t.Helper()
		s.send(prompt)
		_, mark = s.becomes(mark, "idle (turn-ended)")
	}
	call := func(tool, arguments string) { turn("TOOL: mcp__corral__" + tool + " " + arguments) }
	for _, id := range []string{"a", "b", "c"} {
		call("run", `{"id":"`+id+`","command":["sh","-c","corralctl report waiting; read x; echo got $x; sleep 1000"]}`)
		now, err := f.client.Session(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, "lead", now.Parent)
	}
	call("wait", `{"ids":["a","b","c"],"until":["waiting"]}`)
	call("send", `{"id":"a","text":"the answer"}`)
	call("peek", `{"id":"a"}`)
	call("stop", `{"ids":["b"]}`)
	call("stop", `{"ids":["other"]}`)
	turn("summarize")
	results := f.model.RequestFor("summarize") // with the conversation so far
	assert.Contains(t, results, "got the answer")
	assert.Contains(t, results, "cannot be controlled from session")
	for id, state := range map[string]string{"a": "running", "b": "stopped", "c": "running", "other": "running"} {
		now, err := f.client.Session(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, state, now.State, id)
	}
	t.Log(f.corralctl("list", "--tree"))
}

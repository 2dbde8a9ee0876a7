package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/testbed"
)

// agentClient is a client of corralctl mcp, which an agent has started.
type agentClient struct {
	*mcp.ClientSession
	t *testing.T
}

// connectTools starts corralctl mcp in a session of this id, as an agent does.
func connectTools(t *testing.T, s *storyRun, id string) agentClient {
	shop := filepath.Join(s.home, "src/shop")
	in, out := filepath.Join(shop, id+".in"), filepath.Join(shop, id+".out")
	require.NoError(t, syscall.Mkfifo(in, 0o600))
	require.NoError(t, syscall.Mkfifo(out, 0o600))
	run := exec.Command("sh", "-c", `corralctl run -q --id `+id+` -- sh -c "exec corralctl mcp <`+in+` >`+out+`"`)
	run.Dir, run.Env = shop, s.environment
	text, err := run.CombinedOutput()
	require.NoError(t, err, "%s", text)
	to, err := os.OpenFile(in, os.O_WRONLY, 0)
	require.NoError(t, err)
	from, err := os.Open(out)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Timeout)
	t.Cleanup(cancel)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "agent"}, nil).
		Connect(ctx, &mcp.IOTransport{Reader: from, Writer: to}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return agentClient{session, t}
}

// call calls a tool. It returns the text of the result, and whether that is an error.
func (a agentClient) call(name string, arguments map[string]any) (text string, isError bool) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), testbed.Timeout)
	defer cancel()
	result, err := a.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: arguments})
	require.NoError(a.t, err)
	require.Len(a.t, result.Content, 1)
	return result.Content[0].(*mcp.TextContent).Text, result.IsError
}

// get calls a tool that succeeds, and decodes its result.
func (a agentClient) get(name string, arguments map[string]any, to any) {
	a.t.Helper()
	text, isError := a.call(name, arguments)
	require.False(a.t, isError, text)
	require.NoError(a.t, json.Unmarshal([]byte(text), to), text)
}

// TestMCP_DirectsOtherAgents plays an agent that starts others, waits for them, reads what they
// have printed, and stops one.
func TestMCP_DirectsOtherAgents(t *testing.T) {
	s := newStoryRun(t)
	s.runStep(t, "other", storyStep{command: "corralctl run -q --id other -- cat"})
	agent := connectTools(t, s, "lead")
	tools, err := agent.ListTools(t.Context(), nil)
	require.NoError(t, err)
	var names []string
	for _, tool := range tools.Tools {
		names = append(names, tool.Name)
	}
	assert.ElementsMatch(t, []string{"list", "run", "send", "wait", "peek", "stop"}, names)

	for _, id := range []string{"a", "b", "c"} {
		var created client.Session
		agent.get("run", map[string]any{"id": id, "command": []string{"sh", "-c",
			`echo ready; corralctl report waiting --message "$0?"; read -r x; echo "got <$x>"; sleep $((x))`, id}}, &created)
		assert.Equal(t, []string{id, "lead"}, []string{created.Id, created.Parent})
	}
	var waited []waitValue
	three := []string{"a", "b", "c"}
	agent.get("wait", map[string]any{"ids": three, "until": []string{"waiting"}}, &waited)
	require.Len(t, waited, 3)
	assert.Equal(t, "waiting", waited[2].Activity)
	var sessions []client.Session
	agent.get("list", map[string]any{"states": []string{"waiting"}}, &sessions)
	require.Len(t, sessions, 3)
	assert.Equal(t, "b?", sessions[1].AttentionMessage)

	agent.get("send", map[string]any{"id": "a", "text": "0"}, &sessions)
	assert.Equal(t, "a", sessions[0].Id)
	agent.get("wait", map[string]any{"ids": []string{"a"}}, &waited)
	assert.Equal(t, "completed", waited[0].State)
	agent.get("send", map[string]any{"id": "b", "text": "1000"}, &sessions)
	agent.get("wait", map[string]any{"ids": []string{"b"}, "timeout_seconds": 1}, &waited)
	assert.Equal(t, exitTimeout, waited[0].ExitCode)
	var screens []screenValue
	agent.get("peek", map[string]any{"id": "b"}, &screens)
	assert.Contains(t, screens[0].Screen, "got <1000>")
	agent.get("stop", map[string]any{"ids": []string{"b", "c"}}, &sessions)
	assert.Equal(t, "stopped", sessions[1].State)

	text, isError := agent.call("stop", map[string]any{"ids": []string{"other"}})
	assert.True(t, isError)
	assert.Contains(t, text, `cannot stop "other": it cannot be controlled from session "lead"`)
}

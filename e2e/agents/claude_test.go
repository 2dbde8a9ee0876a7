//go:build e2e || agents

package agents

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi/client"
)

// TestClaude_AsksToApproveItsPlan: the dialog of ExitPlanMode is a permission. Each session has a
// home directory of its own: a running Claude Code rewrites its configuration, and a second set-up
// beside it could lose the trust in its workspace.
func TestClaude_AsksToApproveItsPlan(t *testing.T) {
	for _, verb := range []string{"approve", "deny"} {
		t.Run(verb, func(t *testing.T) {
			s := newFixture(t).run("claude", verb, "--", "--permission-mode", "plan")
			_, mark := s.becomes(0, "idle")
			s.send(`TOOL: ExitPlanMode {"plan":"1. touch y"}`)
			s.becomes(mark, "waiting (permission)")
			s.shows("Exit plan mode?")
			assert.Equal(t, "approve plan", s.awaitAttention().AttentionMessage)
			give := s.client.Approve
			if verb == "deny" {
				give = s.client.Deny
			}
			s.answer(verb, func() error { return give(t.Context(), s.id) })
			s.await("it does not ask any more", func(n client.Session) bool { return n.Activity == "idle" })
		})
	}
}

// TestClaude_AsksForAnMCPServer: an elicitation is a question, not a permission, so corralctl
// approve does not answer it.
func TestClaude_AsksForAnMCPServer(t *testing.T) {
	f := newFixture(t)
	server := filepath.Join(f.dir, "ask.py")
	f.write("ask.py", askingServer)
	f.write("mcp.json", jsonText(object{
		"mcpServers": object{"ask": object{"command": "python3", "args": []string{server}}},
	}))
	s := f.run("claude", "shop", "--", "--mcp-config", filepath.Join(f.dir, "mcp.json"), "--strict-mcp-config",
		"--allowedTools", "mcp__ask__ask")
	_, mark := s.becomes(0, "idle")
	s.send("hello")
	_, mark = s.becomes(mark, "idle (turn-ended)")
	s.send("TOOL: mcp__ask__ask {}")
	s.becomes(mark, "waiting (question)")
	s.shows("Which port?")
	assert.Equal(t, "MCP input: ask", s.awaitAttention().AttentionMessage)
	require.Error(t, s.client.Approve(t.Context(), s.id))
	s.press("Escape")
	s.becomes(mark, "idle (turn-ended)")
}

// askingServer is an MCP server whose only tool asks the user for input.
const askingServer = `import json, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

for line in sys.stdin:
    m = json.loads(line)
    if m.get("method") == "initialize":
        version = m["params"]["protocolVersion"]
        send(id=m["id"], result={"protocolVersion": version, "capabilities": {"tools": {}},
                                 "serverInfo": {"name": "ask", "version": "1"}})
    elif m.get("method") == "tools/list":
        send(id=m["id"], result={"tools": [{"name": "ask", "description": "asks", "inputSchema": {"type": "object"}}]})
    elif m.get("method") == "tools/call":
        call = m["id"]
        schema = {"type": "object", "properties": {"port": {"type": "string"}}, "required": ["port"]}
        send(id="question", method="elicitation/create", params={"message": "Which port?", "requestedSchema": schema})
    elif m.get("id") == "question":
        send(id=call, result={"content": [{"type": "text", "text": json.dumps(m["result"])}]})
    elif "id" in m:
        send(id=m["id"], result={})
`

// TestClaude_WarnsOfBypassedPermissions: the warning is reported as a set-up dialog.
func TestClaude_WarnsOfBypassedPermissions(t *testing.T) {
	f := newFixture(t)
	s := f.run("claude", "shop", "--", "--permission-mode", "bypassPermissions")
	s.becomes(0, "waiting (setup)")
	assert.Contains(t, s.awaitAttention().AttentionMessage, "Bypass Permissions mode")
	s.press("Down")
	s.press("Enter")
	s.await("it is ready", func(n client.Session) bool { return n.Activity == "idle" && n.Attention == "" })
}

// TestClaudeRemote_ReportsItsQuestion: the question before the first start in a directory is a
// set-up dialog.
func TestClaudeRemote_ReportsItsQuestion(t *testing.T) {
	f := newFixture(t)
	const id = "00000000-0000-4000-8000-000000000000"
	f.write(".claude.json", jsonText(object{
		"hasCompletedOnboarding": true, "oauthAccount": object{"accountUuid": id, "organizationUuid": id},
		"cachedGrowthBookFeatures": object{"tengu_ccr_bridge": true},
	}))
	f.write(".claude/.credentials.json", jsonText(object{"claudeAiOauth": object{
		"accessToken": "none", "refreshToken": "none", "expiresAt": 4102444800000, "subscriptionType": "max",
		"scopes": []string{"user:inference", "user:profile", "user:sessions:claude_code"},
	}}))
	// On a CI machine it does not ask.
	s := f.run("claude-remote", "remote", "-E", "HTTPS_PROXY=http://127.0.0.1:1", "-E", "CI=", "-E", "GITHUB_ACTIONS=")
	now := s.await("it asks", func(n client.Session) bool { return n.Attention == "setup" })
	assert.Equal(t, "Trust "+s.workspace+"? [y/N]", strings.TrimSpace(now.AttentionMessage))
}

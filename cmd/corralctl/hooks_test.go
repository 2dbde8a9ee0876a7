package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
)

// TestReadHook_UnderstandsEachAgent uses payloads that were recorded from the agents and shortened.
func TestReadHook_UnderstandsEachAgent(t *testing.T) {
	const id = "1b4e28ba-2fa1-4d2b-883f-0016d3cca427"
	nothing := client.Report{}
	for _, c := range []struct {
		name, agent, event, payload string
		want                        client.Report
	}{
		{"Claude Code starts", "claude", "",
			`{"session_id":"` + id + `","hook_event_name":"SessionStart","source":"startup"}`,
			client.Report{Activity: "idle", ConversationID: id}},
		{"Claude Code has compacted its context", "claude", "",
			`{"hook_event_name":"SessionStart","source":"compact"}`, client.Report{Activity: "working"}},
		{"Claude Code gets a prompt", "claude", "", `{"hook_event_name":"UserPromptSubmit","prompt":"secret"}`,
			client.Report{Activity: "working"}},
		{"Claude Code wants to run something", "claude", "",
			`{"hook_event_name":"PermissionRequest","tool_name":"Bash","tool_input":{"command":"touch y","description":"Makes y"}}`,
			client.Report{Activity: "waiting", Reason: "permission", Message: "Bash: touch y"}},
		{"Claude Code wants to use a tool without a known argument", "claude", "",
			`{"hook_event_name":"PermissionRequest","tool_name":"ExitPlanMode","tool_input":{"plan":["a"]}}`,
			client.Report{Activity: "waiting", Reason: "permission", Message: "ExitPlanMode"}},
		{"Claude Code repeats a permission request later", "claude", "",
			`{"hook_event_name":"Notification","notification_type":"permission_prompt","message":"Claude needs your permission"}`, nothing},
		{"Claude Code asks for input", "claude", "",
			`{"hook_event_name":"Notification","notification_type":"elicitation_dialog","message":"Which?"}`,
			client.Report{Activity: "waiting", Reason: "question", Message: "Which?"}},
		{"Claude Code is done", "claude", "", `{"hook_event_name":"Stop","stop_hook_active":false}`,
			client.Report{Activity: "idle", Reason: "turn-ended"}},
		{
			"Qwen Code asks", "qwen", "",
			`{"hook_event_name":"PermissionRequest","tool_name":"ask_user_question","tool_input":{"questions":[{"question":"Which color?"},{"question":"And?"}]}}`,
			client.Report{Activity: "waiting", Reason: "question", Message: "Which color?"},
		},
		{"Claude Code asks with an unknown format", "claude", "",
			`{"hook_event_name":"PermissionRequest","tool_name":"AskUserQuestion","tool_input":{"questions":3}}`,
			client.Report{Activity: "waiting", Reason: "question"}},
		{"Qwen Code fails", "qwen", "",
			`{"hook_event_name":"StopFailure","error":"server_error","error_details":"529 no time"}`,
			client.Report{Activity: "idle", Reason: "error", Message: "529 no time"}},
		{"Claude Code fails", "claude", "", `{"hook_event_name":"StopFailure","error":"overloaded"}`,
			client.Report{Activity: "idle", Reason: "error", Message: "overloaded"}},
		{"Claude Code has reached a limit", "claude", "",
			`{"hook_event_name":"StopFailure","error":"rate_limit","last_assistant_message":"You've hit your 5-hour limit · resets 7:30am (UTC)"}`,
			client.Report{Activity: "idle", Reason: "limit", Message: "You've hit your 5-hour limit · resets 7:30am (UTC)"}},
		{"Claude Code needs a login", "claude", "",
			`{"hook_event_name":"StopFailure","error":"authentication_failed","last_assistant_message":"Not logged in · Please run /login"}`,
			client.Report{Activity: "idle", Reason: "auth", Message: "Not logged in · Please run /login"}},
		{"Claude Code was denied something", "claude", "", `{"hook_event_name":"PermissionDenied"}`,
			client.Report{Activity: "working"}},
		{"Claude Code ends", "claude", "", `{"hook_event_name":"SessionEnd","reason":"prompt_input_exit"}`,
			client.Report{Activity: "idle"}},
		{"Claude Code sends an unknown event", "claude", "", `{"hook_event_name":"MoonRise"}`, nothing},
		{"Qwen Code has used a tool", "qwen", "", `{"hook_event_name":"PostToolUse"}`, client.Report{Activity: "working"}},
		{"Codex ends a turn and names the conversation", "codex", "",
			`{"type":"agent-turn-complete","thread-id":"` + id + `"}`,
			client.Report{Activity: "idle", Reason: "turn-ended", ConversationID: id}},
		{"Codex asks", "codex", "",
			`{"hook_event_name":"PermissionRequest","tool_name":"shell","tool_input":{"command":"ls"}}`,
			client.Report{Activity: "waiting", Reason: "permission", Message: "shell: ls"}},
		{"Gemini CLI asks", "gemini", "",
			`{"session_id":"` + id +
				`","hook_event_name":"Notification","notification_type":"ToolPermission","message":"Tool Shell requires confirmation"}`,
			client.Report{Activity: "waiting", Reason: "permission", Message: "Tool Shell requires confirmation",
				ConversationID: id}},
		{"Gemini CLI works", "gemini", "", `{"hook_event_name":"BeforeAgent"}`, client.Report{Activity: "working"}},
		{"Gemini CLI is done", "gemini", "", `{"hook_event_name":"AfterAgent"}`,
			client.Report{Activity: "idle", Reason: "turn-ended"}},
		{"Gemini CLI ends, three times", "gemini", "", `{"hook_event_name":"SessionEnd"}`, client.Report{Activity: "idle"}},
		{"Copilot CLI has a question", "copilot", "notification",
			`{"notification_type":"elicitation_dialog","message":"Information requested"}`,
			client.Report{Activity: "waiting", Reason: "question", Message: "Information requested"}},
		{"Copilot CLI asks, and does not name its event", "copilot", "notification",
			`{"sessionId":"` + id + `","notification_type":"permission_prompt","message":"Run command: touch y"}`,
			client.Report{Activity: "waiting", Reason: "permission", Message: "Run command: touch y", ConversationID: id}},
		{"Copilot CLI may need no permission", "copilot", "permissionRequest", `{"toolName":"bash"}`, nothing},
		{"Copilot CLI fails, and may try again", "copilot", "errorOccurred",
			`{"recoverable":true,"error":{"message":"{\"message\":\"Rate limit reached\",\"code\":\"rate_limit\"}"}}`,
			client.Report{Activity: "working", Reason: "error", Message: "Rate limit reached"}},
		{"opencode tries again", "opencode", "",
			`{"type":"session.status","properties":{"status":{"type":"retry","attempt":2,"message":"Overloaded","next":1}}}`,
			client.Report{Activity: "working", Reason: "error", Message: "Overloaded"}},
		{"an error that contains JSON", "claude", "",
			`{"hook_event_name":"StopFailure","error_details":"API Error: 529 {\"type\":\"error\",\"error\":{\"message\":\"Overloaded\"}}"}`,
			client.Report{Activity: "idle", Reason: "error", Message: "API Error: 529 Overloaded"}},
		{"an error that contains a brace", "claude", "", `{"hook_event_name":"StopFailure","error_details":"syntax error: {"}`,
			client.Report{Activity: "idle", Reason: "error", Message: "syntax error: {"}},
		{"Copilot CLI has no payload", "copilot", "agentStop", "", client.Report{Activity: "idle", Reason: "turn-ended"}},
		{"opencode has a question", "opencode", "",
			`{"type":"question.asked","properties":{"sessionID":"ses_1","questions":[{"question":"Which color?"}]}}`,
			client.Report{Activity: "waiting", Reason: "question", Message: "Which color?", ConversationID: "ses_1"}},
		{"opencode begins", "opencode", "", `{"type":"session.created","properties":{"info":{"id":"ses_1"}}}`,
			client.Report{Activity: "idle", ConversationID: "ses_1"}},
		{"opencode works", "opencode", "",
			`{"type":"session.status","properties":{"sessionID":"ses_1","status":{"type":"busy"}}}`,
			client.Report{Activity: "working", ConversationID: "ses_1"}},
		{"opencode asks", "opencode", "",
			`{"type":"permission.asked","properties":{"sessionID":"ses_1","permission":"bash","metadata":{"command":"touch y"}}}`,
			client.Report{Activity: "waiting", Reason: "permission", Message: "bash: touch y", ConversationID: "ses_1"}},
		{"opencode was answered", "opencode", "", `{"type":"permission.replied","properties":{"sessionID":"ses_1"}}`,
			client.Report{Activity: "working", ConversationID: "ses_1"}},
		{"opencode is done", "opencode", "", `{"type":"session.idle","properties":{"sessionID":"ses_1"}}`,
			client.Report{Activity: "idle", Reason: "turn-ended", ConversationID: "ses_1"}},
		{"opencode was interrupted", "opencode", "",
			`{"type":"session.error","properties":{"sessionID":"ses_1","error":{"name":"MessageAbortedError"}}}`, nothing},
		{"opencode fails", "opencode", "",
			`{"type":"session.error","properties":{"error":{"name":"APIError","data":{"message":"no money"}}}}`,
			client.Report{Activity: "idle", Reason: "error", Message: "no money"}},
		{"fields of other types", "claude", "",
			`{"hook_event_name":"PermissionRequest","tool_name":7,"tool_input":"ls","session_id":["x"]}`,
			client.Report{Activity: "waiting", Reason: "permission"}},
		{"an id that could become an option", "claude", "", `{"hook_event_name":"Stop","session_id":"--help"}`,
			client.Report{Activity: "idle", Reason: "turn-ended"}},
		{"invalid JSON", "claude", "", "\x00{{", nothing},
		{"an empty payload", "claude", "", "", nothing},
		{"a message that is too long", "claude", "",
			`{"hook_event_name":"PermissionRequest","tool_name":"Bash","tool_input":{"command":"` + strings.Repeat("x", 1<<19) +
				`"}}`,
			client.Report{Activity: "waiting", Reason: "permission", Message: "Bash: " + strings.Repeat("x", maxMessage-6)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := readHook(c.agent, c.event, []byte(c.payload))
			assert.Equal(t, c.want != nothing, ok)
			assert.Equal(t, c.want, got)
		})
	}
}

// TestOpencodeHook_DistinguishesLimitsFromRetries: by when the request is sent again.
func TestOpencodeHook_DistinguishesLimitsFromRetries(t *testing.T) {
	for _, after := range []time.Duration{2 * time.Second, 2 * time.Hour} {
		next := time.Now().Add(after)
		r, ok := readHook("opencode", "", fmt.Appendf(nil, `{"type":"session.status","properties":{"sessionID":"ses_1",`+
			`"status":{"type":"retry","attempt":1,"message":"Rate limit reached","next":%d}}}`, next.UnixMilli()))
		require.True(t, ok)
		want := client.Report{Activity: word.Working, Reason: word.Error}
		if after > time.Hour {
			want = client.Report{Activity: word.Idle, Reason: word.Limit, Until: time.UnixMilli(next.UnixMilli())}
		}
		want.Message, want.ConversationID = "Rate limit reached", "ses_1"
		assert.Equal(t, want, r)
	}
}

package main

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/config"
)

// hookEvent is the JSON object that an agent passes to its hook. Each field is decoded separately,
// so that a field with another type in some version does not make the others unreadable.
type hookEvent struct {
	fields map[string]json.RawMessage
}

// parseHookEvent returns the event, without fields and false if data is not an object.
func parseHookEvent(data []byte) (e hookEvent, ok bool) {
	err := json.Unmarshal(data, &e.fields)
	return e, err == nil
}

// text returns the first of these fields that is a string and not empty.
func (e hookEvent) text(names ...string) string {
	for _, name := range names {
		var s string
		if json.Unmarshal(e.fields[name], &s) == nil && s != "" {
			return s
		}
	}
	return ""
}

// object returns a field that is an object.
func (e hookEvent) object(name string) (o hookEvent) {
	_ = json.Unmarshal(e.fields[name], &o.fields)
	return o
}

// agentHooks has a function for each agent whose hooks are supported. It returns the report for an
// event, and false if the event does not change the agent's status.
var agentHooks = map[string]func(event string, e hookEvent) (client.Report, bool){
	"claude": claudeHook, "codex": codexHook, "copilot": copilotHook, "gemini": geminiHook, "opencode": opencodeHook,
	"qwen": claudeHook,
}

// readHook returns the report for what an agent passes to its hook, and false if there is nothing
// to report or the payload cannot be decoded. Event is for agents whose payload does not contain
// it, as Copilot's.
func readHook(agent, event string, payload []byte) (r client.Report, ok bool) {
	e, ok := parseHookEvent(payload)
	if !ok && event == "" {
		return r, false
	}
	if event == "" {
		event = e.text("hook_event_name", "type")
	}
	if r, ok = agentHooks[agent](event, e); !ok {
		return client.Report{}, false
	}
	if r.ConversationID == "" {
		r.ConversationID = e.text("session_id", "sessionId", "thread-id")
	}
	if !config.ValidConversationID(r.ConversationID) {
		r.ConversationID = ""
	}
	r.Message = shorten(r.Message, maxMessage)
	return r, true
}

func workingReport() (client.Report, bool) { return client.Report{Activity: word.Working}, true }
func idleReport() (client.Report, bool)    { return client.Report{Activity: word.Idle}, true }
func turnEndedReport() (client.Report, bool) {
	return client.Report{Activity: word.Idle, Reason: word.TurnEnded}, true
}
func waitingReport(reason, message string) (client.Report, bool) {
	return client.Report{Activity: word.Waiting, Reason: reason, Message: message}, true
}
func errorReport(message string) (client.Report, bool) {
	return client.Report{Activity: word.Idle, Reason: word.Error, Message: plainError(message)}, true
}

// retryReport is for an error after which the agent tries again, or may do so.
func retryReport(message string) (client.Report, bool) {
	return client.Report{Activity: word.Working, Reason: word.Error, Message: plainError(message)}, true
}

// plainError returns an error for a person. Agents pass on the JSON in which a model's interface
// reports an error, possibly after a text of their own.
func plainError(text string) string {
	begin := strings.IndexByte(text, '{')
	if begin < 0 {
		return text
	}
	e, ok := parseHookEvent([]byte(text[begin:]))
	if message := cmp.Or(e.text("message"), e.object("error").text("message")); ok && message != "" {
		return text[:begin] + message
	}
	return text
}

// claudeHook is for Claude Code, and for Qwen Code, whose hooks are derived from it.
func claudeHook(event string, e hookEvent) (client.Report, bool) {
	switch event {
	case "SessionStart":
		if e.text("source") == "compact" { // in the middle of a turn
			return workingReport()
		}
		return idleReport()
	case "UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "PermissionDenied", "ElicitationResult":
		return workingReport()
	case "PermissionRequest":
		return claudePermissionRequest(e)
	case "Notification":
		return claudeNotification(e)
	case "Stop":
		return turnEndedReport()
	case "StopFailure":
		return claudeFailure(e)
	case "SessionEnd":
		return idleReport()
	}
	return client.Report{}, false
}

// claudeFailure is for a turn that has failed. The field error has the kind of failure.
func claudeFailure(e hookEvent) (client.Report, bool) {
	r, ok := errorReport(e.text("error_details", "last_assistant_message", "error", "message"))
	switch e.text("error") {
	case "rate_limit", "billing_error":
		r.Reason = word.Limit
	case "authentication_failed", "oauth_org_not_allowed", "account_on_hold", "verification_required",
		"cloud_credential_error":
		r.Reason = word.Auth
	}
	return r, ok
}

// claudePermissionRequest is for a tool that needs the user's permission, or that asks the user a
// question.
func claudePermissionRequest(e hookEvent) (client.Report, bool) {
	if tool := e.text("tool_name"); tool != "AskUserQuestion" && tool != "ask_user_question" {
		return waitingReport(word.Permission, e.toolRequest("tool_name", "tool_input"))
	}
	return waitingReport(word.Question, e.object("tool_input").question())
}

// question returns the first of the questions in a tool's input.
func (e hookEvent) question() string {
	var questions []struct{ Question string }
	if json.Unmarshal(e.fields["questions"], &questions) != nil || len(questions) == 0 {
		return ""
	}
	return questions[0].Question
}

// claudeNotification handles notifications, which are sent seconds after the request. Those about
// permissions are ignored, because PermissionRequest comes at once and has more detail.
func claudeNotification(e hookEvent) (client.Report, bool) {
	switch e.text("notification_type") {
	case "elicitation_dialog":
		return waitingReport(word.Question, e.text("message"))
	case "idle_prompt": // after an interruption too, which has no other hook
		return turnEndedReport()
	}
	return client.Report{}, false
}

// codexHook handles Codex, whose hooks have the events of Claude Code. `notify` may be about
// another conversation than the session's: Codex uses a separate one to generate a title.
// reportActivity compares the conversations.
func codexHook(event string, e hookEvent) (client.Report, bool) {
	if event == codexTurn {
		return turnEndedReport()
	}
	return claudeHook(event, e)
}

// codexTurn is the only event of Codex's `notify`.
const codexTurn = "agent-turn-complete"

func geminiHook(event string, e hookEvent) (client.Report, bool) {
	switch event {
	case "SessionStart", "SessionEnd": // SessionEnd is sent three times
		return idleReport()
	case "BeforeAgent", "AfterTool":
		return workingReport()
	case "Notification":
		if e.text("notification_type") == "ToolPermission" {
			return waitingReport(word.Permission, e.text("message"))
		}
	case "AfterAgent":
		return turnEndedReport()
	}
	return client.Report{}, false
}

func copilotHook(event string, e hookEvent) (client.Report, bool) {
	switch event {
	case "sessionStart", "sessionEnd":
		return idleReport()
	case "userPromptSubmitted", "postToolUse":
		return workingReport()
	case "notification": // permissionRequest is sent for what needs no permission, too
		switch e.text("notification_type") {
		case "permission_prompt":
			return waitingReport(word.Permission, e.text("message"))
		case "elicitation_dialog":
			return waitingReport(word.Question, e.text("message"))
		}
	case "agentStop":
		return turnEndedReport()
	case "errorOccurred": // for each attempt; its last one looks the same
		return retryReport(e.object("error").text("message"))
	}
	return client.Report{}, false
}

// opencodeHook handles the events of opencode's plugin: each has a type and properties.
func opencodeHook(event string, e hookEvent) (r client.Report, ok bool) {
	p := e.object("properties")
	switch event {
	case "session.created":
		r, ok = idleReport()
	case "session.status":
		switch status := p.object("status"); status.text("type") {
		case "idle": // session.idle is sent as well
			return r, false
		case "retry":
			r, ok = opencodeRetry(status)
		default:
			r, ok = workingReport()
		}
	case "permission.replied", "question.replied":
		r, ok = workingReport()
	case "permission.asked":
		r, ok = waitingReport(word.Permission,
			strings.TrimSuffix(p.text("permission")+": "+p.object("metadata").text("command", "filepath", "url"), ": "))
	case "question.asked":
		r, ok = waitingReport(word.Question, p.question())
	case "session.idle":
		r, ok = turnEndedReport()
	case "session.error":
		// MessageAbortedError means that the user interrupted it
		if failure := p.object("error"); failure.text("name") != "MessageAbortedError" {
			r, ok = errorReport(failure.object("data").text("message"))
		}
	}
	r.ConversationID = p.text("sessionID")
	if r.ConversationID == "" {
		r.ConversationID = p.object("info").text("id")
	}
	return r, ok
}

// opencodeRetry is for a request that opencode sends again later: much later if the provider has
// named a time, because a usage limit was reached.
func opencodeRetry(status hookEvent) (client.Report, bool) {
	var next int64 // in milliseconds since 1970
	_ = json.Unmarshal(status.fields["next"], &next)
	r, ok := retryReport(status.text("message"))
	if until := time.UnixMilli(next); time.Until(until) > longestRetry {
		r.Activity, r.Reason, r.Until = word.Idle, word.Limit, until
	}
	return r, ok
}

// longestRetry is the longest time between two attempts without a usage limit.
const longestRetry = 5 * time.Minute

// toolRequest describes what an agent wants to do: the tool and its main argument.
func (e hookEvent) toolRequest(tool, input string) string {
	with := e.object(input).text("command", "file_path", "path", "url", "pattern", "query", "description")
	return strings.Trim(e.text(tool)+": "+with, ": ")
}

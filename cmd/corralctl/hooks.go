package main

import (
	"encoding/json"
	"strings"

	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/config"
)

// hookEvent is what an agent hands its hook, by the names that the agents have for it. Each field
// is taken by itself: one that is of another type, with some version, does not spoil the others.
type hookEvent struct {
	fields map[string]json.RawMessage
}

// transcript returns the first of these fields that is a text and says something.
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

// agentHooks has, for each agent whose hooks are understood, what an event of its means. It is
// false if that is nothing.
var agentHooks = map[string]func(event string, e hookEvent) (client.Report, bool){
	"claude": claudeHook, "codex": codexHook, "copilot": copilotHook, "gemini": geminiHook, "opencode": opencodeHook, "qwen": claudeHook,
}

// readHook returns what an agent's hook has to report. The event is for those that do not name it
// in what they hand over, as Copilot. It is false if there is nothing to report, or nothing that
// could be read.
func readHook(agent, event string, payload []byte) (r client.Report, ok bool) {
	var e hookEvent
	if json.Unmarshal(payload, &e.fields) != nil && event == "" {
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

func workingReport() (client.Report, bool) { return client.Report{Activity: "working"}, true }
func idleReport() (client.Report, bool)    { return client.Report{Activity: "idle"}, true }
func turnEndedReport() (client.Report, bool) {
	return client.Report{Activity: "idle", Reason: "turn-ended"}, true
}
func waitingReport(reason, message string) (client.Report, bool) {
	return client.Report{Activity: "waiting", Reason: reason, Message: message}, true
}
func errorReport(message string) (client.Report, bool) {
	return client.Report{Activity: "idle", Reason: "error", Message: message}, true
}

// claudeHook is for Claude Code and Qwen Code, which has its hooks from there.
func claudeHook(event string, e hookEvent) (client.Report, bool) {
	switch event {
	case "SessionStart":
		if e.text("source") == "compact" { // in the middle of a turn
			return workingReport()
		}
		return idleReport()
	case "UserPromptSubmit", "PostToolUse":
		return workingReport()
	case "PermissionRequest":
		return claudePermissionRequest(e)
	case "Notification":
		return claudeNotification(e)
	case "Stop":
		return turnEndedReport()
	case "StopFailure":
		return errorReport(e.text("error_details", "error", "message")) // the error is a word for its kind
	case "SessionEnd":
		return idleReport()
	}
	return client.Report{}, false
}

// claudePermissionRequest is for a tool that a person has to allow, or that is a question to them itself.
func claudePermissionRequest(e hookEvent) (client.Report, bool) {
	if tool := e.text("tool_name"); tool != "AskUserQuestion" && tool != "ask_user_question" {
		return waitingReport("permission", e.toolRequest("tool_name", "tool_input"))
	}
	return waitingReport("question", e.object("tool_input").question())
}

// question returns the first of the questions that an agent has at once.
func (e hookEvent) question() string {
	var questions []struct{ Question string }
	if json.Unmarshal(e.fields["questions"], &questions) != nil || len(questions) == 0 {
		return ""
	}
	return questions[0].Question
}

// claudeNotification is told seconds after the question was: of permissions PermissionRequest tells
// at once, and more.
func claudeNotification(e hookEvent) (client.Report, bool) {
	switch e.text("notification_type") {
	case "elicitation_dialog":
		return waitingReport("question", e.text("message"))
	case "idle_prompt": // also after an interruption, of which no hook tells
		return turnEndedReport()
	}
	return client.Report{}, false
}

// codexHook: the events of Codex's hooks are those of Claude Code. What `notify` hands over is of a
// conversation that may not be the session's: Codex has another one make up a title. Whose it is,
// report looks up.
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
	case "SessionStart", "SessionEnd": // the end is told three times
		return idleReport()
	case "BeforeAgent", "AfterTool":
		return workingReport()
	case "Notification":
		if e.text("notification_type") == "ToolPermission" {
			return waitingReport("permission", e.text("message"))
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
	case "permissionRequest":
		return waitingReport("permission", e.toolRequest("toolName", "toolInput"))
	case "notification": // of a permission, too, of which permissionRequest tells more
		if e.text("notification_type") == "elicitation_dialog" {
			return waitingReport("question", e.text("message"))
		}
	case "agentStop":
		return turnEndedReport()
	case "errorOccurred":
		return errorReport(e.object("error").text("message"))
	}
	return client.Report{}, false
}

// opencodeHook is for what its plugin is told: an event with properties.
func opencodeHook(event string, e hookEvent) (r client.Report, ok bool) {
	p := e.object("properties")
	switch event {
	case "session.created":
		r, ok = idleReport()
	case "session.status":
		if p.object("status").text("type") == "idle" { // session.idle says so too
			return r, false
		}
		r, ok = workingReport()
	case "permission.replied", "question.replied":
		r, ok = workingReport()
	case "permission.asked":
		r, ok = waitingReport("permission", strings.TrimSuffix(p.text("permission")+": "+p.object("metadata").text("command", "filepath", "url"), ": "))
	case "question.asked":
		r, ok = waitingReport("question", p.question())
	case "session.idle":
		r, ok = turnEndedReport()
	case "session.error":
		if failure := p.object("error"); failure.text("name") != "MessageAbortedError" { // by the user
			r, ok = errorReport(failure.object("data").text("message"))
		}
	}
	r.ConversationID = p.text("sessionID")
	if r.ConversationID == "" {
		r.ConversationID = p.object("info").text("id")
	}
	return r, ok
}

// toolRequest is what an agent wants to do, in the words of a person: which tool, and with what.
func (e hookEvent) toolRequest(tool, input string) string {
	with := e.object(input).text("command", "file_path", "path", "url", "pattern", "query", "description")
	return strings.Trim(e.text(tool)+": "+with, ": ")
}

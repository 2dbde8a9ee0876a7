package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/config"
)

// An agent waits for its hooks, so nothing here may take long, whatever has become of bus and daemon.
const (
	reportTimeout  = 250 * time.Millisecond
	payloadTimeout = 100 * time.Millisecond
	maxPayload     = 1 << 20 // bytes; what is beyond is read and thrown away, so that who writes it meets no broken pipe
	maxMessage     = 4 << 10 // bytes
)

var (
	reportedActivities = []string{"working", "waiting", "idle"}
	reportedReasons    = []string{"permission", "question", "auth", "setup", "turn-ended", "error"}
)

var reportVerb = verb{
	name: "report", args: "working|waiting|idle [-]", summary: "Tell what the agent does, from a hook in it; outside of a session nothing happens", lenient: true,
	options: func(f *pflag.FlagSet) action {
		var r client.Report
		f.StringVar(&r.Reason, "reason", "", "why it waits: a `REASON` such as permission, question or turn-ended")
		f.StringVar(&r.Message, "message", "", "a `TEXT` for the user: what it asks")
		f.StringVar(&r.ConversationID, "resume-id", "", "the agent's own `ID` of its conversation, to be resumed by")
		payload := f.Bool("stdin", false, "take what is not given from the JSON that agents hand their hooks, on standard input; as -")
		return func(ctx context.Context, c *ctl, args []string) error {
			if len(args) == 2 && args[1] == "-" {
				*payload, args = true, args[:1]
			}
			if len(args) != 1 || !slices.Contains(reportedActivities, args[0]) {
				return usagef("report", "report takes one of %s", strings.Join(reportedActivities, ", "))
			}
			if r.Reason != "" && !slices.Contains(reportedReasons, r.Reason) {
				return usagef("report", "unknown reason %q; known are: %s", r.Reason, strings.Join(reportedReasons, " "))
			}
			r.Activity = args[0]
			var hook hookPayload
			if *payload {
				hook = readPayload(c.in)
			}
			group, err := os.ReadFile("/proc/self/cgroup")
			if err != nil || !inSession(string(group)) {
				return nil
			}
			hook.complete(&r)
			return c.reportActivity(ctx, r)
		}
	},
}

// inSession tells whether a process whose /proc/PID/cgroup this is belongs to a session, which spares everybody else the way to the bus.
func inSession(group string) bool {
	for part := range strings.FieldsFuncSeq(group, func(r rune) bool { return r == '/' || r == '\n' }) {
		if strings.HasPrefix(part, "app-corral-") && strings.HasSuffix(part, ".scope") {
			return true
		}
	}
	return false
}

// reportActivity tells the daemon. That there is none, or that it has no time, is nothing that an agent could do anything about.
func (c *ctl) reportActivity(ctx context.Context, r client.Report) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	bus, err := client.Connect(ctx)
	if err == nil {
		c.client = bus
		err = bus.ReportActivity(ctx, r)
	}
	if err != nil && !client.Unreachable(err) {
		return &failure{code: exitFailed, message: "cannot report: " + err.Error()}
	}
	return nil
}

// hookPayload is what agents tell their hooks, by the names that they have for it.
type hookPayload struct {
	Message          string `json:"message"`
	LastMessage      string `json:"last-assistant-message"` // Codex
	Reason           string `json:"reason"`
	NotificationType string `json:"notification_type"` // Claude Code, Gemini CLI
	SessionID        string `json:"session_id"`
	OpencodeID       string `json:"sessionID"`
	ThreadID         string `json:"thread-id"` // Codex
}

// readPayload reads what a hook is given. Whatever it is, it is no reason to fail: of what cannot be read, nothing is taken.
func readPayload(in io.Reader) hookPayload {
	read := make(chan hookPayload, 1)
	go func() {
		var p hookPayload
		data, err := io.ReadAll(io.LimitReader(in, maxPayload+1))
		if err == nil && len(data) <= maxPayload {
			var fields map[string]json.RawMessage
			if json.Unmarshal(data, &fields) == nil {
				p = payloadOf(fields)
			}
		}
		_, _ = io.Copy(io.Discard, in)
		read <- p
	}()
	select {
	case p := <-read:
		return p
	case <-time.After(payloadTimeout): // whoever began it does not end it
		return hookPayload{}
	}
}

// payloadOf takes each field by itself: one that is not text, with some agent, does not spoil the others.
func payloadOf(fields map[string]json.RawMessage) hookPayload {
	text := func(name string) (s string) {
		_ = json.Unmarshal(fields[name], &s)
		return s
	}
	return hookPayload{
		Message: text("message"), LastMessage: text("last-assistant-message"), Reason: text("reason"), NotificationType: text("notification_type"),
		SessionID: text("session_id"), OpencodeID: text("sessionID"), ThreadID: text("thread-id"),
	}
}

// complete fills what was not given as an option, and makes sendable what was.
func (p hookPayload) complete(r *client.Report) {
	if r.Activity == "waiting" && r.Reason == "" {
		r.Reason = p.reason()
	}
	for _, message := range []string{p.Message, p.LastMessage} {
		if r.Message == "" && r.Activity != "working" {
			r.Message = message
		}
	}
	r.Message = shorten(r.Message, maxMessage)
	for _, id := range []string{p.SessionID, p.ThreadID, p.OpencodeID} {
		if r.ConversationID == "" && config.ValidConversationID(id) {
			r.ConversationID = id
		}
	}
}

// reason is why the agent waits, in our words, "" if it does not say.
func (p hookPayload) reason() string {
	if slices.Contains(reportedReasons, p.Reason) {
		return p.Reason
	}
	switch p.NotificationType {
	case "permission_prompt", "ToolPermission":
		return "permission"
	case "elicitation_dialog":
		return "question"
	case "idle_prompt":
		return "turn-ended"
	}
	return ""
}

// shorten is text that the bus takes, at most so many bytes of it.
func shorten(text string, bytes int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
	if len(text) <= bytes {
		return text
	}
	cut := bytes
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}

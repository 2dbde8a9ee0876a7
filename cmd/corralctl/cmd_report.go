package main

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/proc"
)

// An agent waits for its hooks, so nothing here may take long, whatever has become of bus and
// daemon.
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
	name: "report", args: "working|waiting|idle [-] | report --from AGENT [EVENT]", summary: "Report what the agent does, from one of its hooks", lenient: true,
	options: func(f *pflag.FlagSet) action {
		var o reportOptions
		f.StringVar(&o.Reason, "reason", "", "the `REASON` for waiting: permission, question, turn-ended …")
		f.StringVar(&o.Message, "message", "", "the question to the user, a `TEXT`")
		f.StringVar(&o.ConversationID, "resume-id", "", "the `ID` by which the agent can resume its conversation")
		f.BoolVar(&o.payload, "stdin", false, "read the rest from the hook's JSON on standard input; as -")
		f.StringVar(&o.from, "from", "", "read what the hooks of this `AGENT` get on standard input")
		return o.run
	},
}

// reportOptions are what report is given.
type reportOptions struct {
	client.Report
	payload bool
	from    string
}

func (o *reportOptions) run(ctx context.Context, c *ctl, args []string) error {
	if o.from != "" {
		return o.runFrom(ctx, c, args)
	}
	if len(args) == 2 && args[1] == "-" {
		o.payload, args = true, args[:1]
	}
	if len(args) != 1 || !slices.Contains(reportedActivities, args[0]) {
		return usagef("report", "report: expected one of %s", strings.Join(reportedActivities, ", "))
	}
	if o.Reason != "" && !slices.Contains(reportedReasons, o.Reason) {
		return usagef("report", "unknown reason %q; known are: %s", o.Reason, strings.Join(reportedReasons, " "))
	}
	o.Activity = args[0]
	var hook hookPayload
	if o.payload {
		hook = parsePayload(readInput(c.in))
	}
	if !isFromSession() {
		return nil
	}
	hook.complete(&o.Report)
	return c.reportActivity(ctx, o.Report, "")
}

// runFrom reports what a hook of a known agent is handed: on standard input, or, as Codex hands it
// to `notify`, as the last argument.
func (o *reportOptions) runFrom(ctx context.Context, c *ctl, args []string) error {
	if agentHooks[o.from] == nil {
		return usagef("report", "unknown agent %q for --from; known are: %s", o.from, strings.Join(slices.Sorted(maps.Keys(agentHooks)), " "))
	}
	var event string
	var payload []byte
	switch {
	case len(args) > 1:
		return usagef("report", "report: expected one EVENT with --from, not %s", wording.Plural(len(args), "word"))
	case len(args) == 1 && strings.HasPrefix(args[0], "{"):
		payload = []byte(args[0])
	case len(args) == 1:
		event = args[0]
		fallthrough
	default:
		payload = readInput(c.in)
	}
	if !isFromSession() {
		return nil
	}
	r, ok := readHook(o.from, event, payload)
	if !ok {
		return nil
	}
	only := ""
	if len(args) == 1 && event == "" && o.from == "codex" {
		only, r.ConversationID = r.ConversationID, ""
	}
	return c.reportActivity(ctx, r, only)
}

// isFromSession tells whether there is anything to report of: a process of a session, or one that was
// started for one and has left it, which the daemon tells. Everybody else is spared the way to the
// bus.
func isFromSession() bool {
	group, err := proc.ReadFile("/proc/self/cgroup")
	return err == nil && isInSession(string(group)) || os.Getenv(sessionVariable) != ""
}

// sessionVariable is what a session's agent, and all that it starts, has in its environment: the
// session's id.
const sessionVariable = "CORRAL_SESSION"

// isInSession tells whether a process whose /proc/PID/cgroup this is belongs to a session, which
// spares everybody else the way to the bus.
func isInSession(group string) bool {
	for part := range strings.FieldsFuncSeq(group, func(r rune) bool { return r == '/' || r == '\n' }) {
		if strings.HasPrefix(part, "app-corral-") && strings.HasSuffix(part, ".scope") {
			return true
		}
	}
	return false
}

// reportActivity tells the daemon. That there is none, or that it has no time, is nothing that an
// agent could do anything about. With a conversation named, only what is told of that one counts:
// the session's has to be it.
func (c *ctl) reportActivity(ctx context.Context, r client.Report, conversation string) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	bus, err := client.Connect(ctx)
	if err != nil {
		return nil
	}
	c.client = bus
	if conversation != "" {
		session, err := bus.Session(ctx, os.Getenv(sessionVariable))
		if err != nil || session.ConversationId != conversation {
			return nil
		}
	}
	r.ExpectedSession = os.Getenv(sessionVariable)
	if err := bus.ReportActivity(ctx, r); err != nil && !client.IsUnreachable(err) {
		return &failure{code: exitFailed, message: "cannot report: " + err.Error()}
	}
	return nil
}

// hookPayload is what agents tell their hooks, by the names that they have for it.
type hookPayload struct {
	Message          string
	LastMessage      string // Codex
	Reason           string
	NotificationType string // Claude Code, Gemini CLI
	SessionID        string
	OpencodeID       string
	ThreadID         string // Codex
}

// readInput reads what a hook is given, nil if that is too much or does not end. Whatever it is, it
// is no reason to fail.
func readInput(in io.Reader) []byte {
	read := make(chan []byte, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(in, maxPayload+1))
		if err != nil || len(data) > maxPayload {
			data = nil
		}
		_, _ = io.Copy(io.Discard, in)
		read <- data
	}()
	select {
	case data := <-read:
		return data
	case <-time.After(payloadTimeout): // whoever began it does not end it
		return nil
	}
}

// parsePayload reads the fields by which any agent may tell its hooks something.
func parsePayload(data []byte) hookPayload {
	var e hookEvent
	if json.Unmarshal(data, &e.fields) != nil {
		return hookPayload{}
	}
	return hookPayload{
		Message: e.text("message"), LastMessage: e.text("last-assistant-message"), Reason: e.text("reason"), NotificationType: e.text("notification_type"),
		SessionID: e.text("session_id"), OpencodeID: e.text("sessionID"), ThreadID: e.text("thread-id"),
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

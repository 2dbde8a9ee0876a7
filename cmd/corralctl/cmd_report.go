package main

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/clock"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/hookreport"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/resettime"
	"github.com/corrald/corral/internal/shimwire"
	"github.com/corrald/corral/internal/unitname"
)

// Agents wait for their hooks, so these limits keep report short, even if the bus or corrald hangs.
const (
	reportTimeout  = 250 * time.Millisecond
	payloadTimeout = 100 * time.Millisecond
	maxPayload     = 1 << 20 // bytes; the rest is read and dropped, so that the writer does not get SIGPIPE
	maxMessage     = 4 << 10 // bytes
)

var reportVerb = verb{
	name: "report", args: "working|waiting|idle [-] | report --from AGENT [EVENT]",
	summary: "Report what the agent does, from one of its hooks", lenient: true,
	options: func(f *pflag.FlagSet) action {
		var o reportOptions
		f.StringVar(&o.Reason, "reason", "", "the `REASON` for waiting: permission, question, turn-ended …")
		f.StringVar(&o.Message, "message", "", "the question to the user, a `TEXT`")
		f.StringVar(&o.ConversationID, "resume-id", "", "the `ID` by which the agent can resume its conversation")
		f.StringVar(&o.until, "until", "", "when the usage limit resets: a `TIME` such as @1795678620, in seconds since 1970")
		f.BoolVar(&o.payload, "stdin", false, "read the rest from the hook's JSON on standard input; as -")
		f.StringVar(&o.from, "from", "", "read what the hooks of this `AGENT` get on standard input")
		return o.run
	},
}

// reportOptions are the options of report.
type reportOptions struct {
	client.Report
	payload bool
	from    string
	until   string
}

func (o *reportOptions) run(ctx context.Context, c *ctl, args []string) error {
	if o.from != "" {
		return o.runFrom(ctx, c, args)
	}
	if len(args) == 2 && args[1] == "-" {
		o.payload, args = true, args[:1]
	}
	if len(args) != 1 || !slices.Contains(word.Activities, args[0]) {
		return usagef("report", "report: expected one of %s", strings.Join(word.Activities, ", "))
	}
	if o.Reason != "" && !slices.Contains(word.Reasons, o.Reason) {
		return usagef("report", "unknown reason %q; known are: %s", o.Reason, strings.Join(word.Reasons, " "))
	}
	if o.until != "" {
		seconds, err := strconv.ParseInt(strings.TrimPrefix(o.until, "@"), 10, 64)
		if err != nil || !strings.HasPrefix(o.until, "@") || o.Reason != word.Limit {
			return usagef("report", "invalid --until=%s: expected @ and seconds since 1970, with --reason=limit", o.until)
		}
		o.Until = time.Unix(seconds, 0)
	}
	o.Activity = args[0]
	var hook hookEvent
	if o.payload {
		hook, _ = parseHookEvent(readInput(c.in))
	}
	if !isFromSession() {
		return nil
	}
	hook.complete(&o.Report)
	return c.reportActivity(ctx, o.Report, "")
}

// runFrom reports what a hook of a known agent receives: on standard input, or, as Codex passes it
// to `notify`, as the last argument.
func (o *reportOptions) runFrom(ctx context.Context, c *ctl, args []string) error {
	if agentHooks[o.from] == nil {
		return usagef("report", "unknown agent %q for --from; known are: %s", o.from,
			strings.Join(slices.Sorted(maps.Keys(agentHooks)), " "))
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

// isFromSession returns whether this process may belong to a session: it is in a session's scope,
// or was started by a session and has left its scope. In the second case corrald decides. No other
// process connects to the bus.
func isFromSession() bool {
	group, _ := proc.Cgroup(os.Getpid())
	return unitname.ScopeIn([]byte(group)) != nil || os.Getenv(sessionVariable) != ""
}

// sessionVariable is the environment variable with the session's id, in the agent and all that it
// starts.
const sessionVariable = "CORRAL_SESSION"

// reportActivity sends a report to corrald, or leaves it for later if corrald is not running or too
// slow. The agent could not do anything about that, so it is not an error. If conversation is not
// "", the report is sent only if that is the session's conversation.
func (c *ctl) reportActivity(ctx context.Context, r client.Report, conversation string) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if r.Reason == word.Limit && r.Until.IsZero() { // in the agent's time zone
		r.Until, _ = resettime.Parse(r.Message, time.Now(), time.Local)
	}
	if os.Getenv(sandboxVariable) != "" { // there is no bus
		return sendReport(r, conversation)
	}
	id := os.Getenv(sessionVariable)
	bus, err := client.Connect(ctx)
	if err != nil {
		leaveReport(id, r, conversation)
		return nil
	}
	c.client = bus
	if conversation != "" {
		session, err := bus.Session(ctx, id)
		if err != nil || session.ConversationId != conversation {
			return nil
		}
	}
	r.ExpectedSession = id
	switch err := bus.ReportActivity(ctx, r); {
	case client.IsUnreachable(err):
		leaveReport(id, r, "")
	case err != nil:
		return &failure{code: exitFailed, message: "cannot report: " + err.Error()}
	}
	return nil
}

// leaveReport leaves a report for the daemon to read later, which does not answer now. A report for
// one conversation only is dropped: which one is the session's is not known. So is one for another
// session than that to which this process belongs. Errors are ignored, as those of the bus.
func leaveReport(id string, r client.Report, conversation string) {
	group, _ := proc.Cgroup(os.Getpid())
	scope, _ := unitname.CutScope(filepath.Base(string(unitname.ScopeIn([]byte(group)))))
	runtime := os.Getenv("XDG_RUNTIME_DIR")
	if conversation != "" || !config.ValidName(id) || !strings.HasSuffix(scope, "-"+id) || !filepath.IsAbs(runtime) {
		return
	}
	_ = hookreport.Write(filepath.Join(runtime, "corral", id), reportNow(r))
}

func reportNow(r client.Report) hookreport.Report {
	return hookreport.Report{
		Activity: r.Activity, Reason: r.Reason, Message: r.Message, ConversationID: r.ConversationID, Until: r.Until,
		At: time.Now(), Monotonic: clock.Monotonic(),
	}
}

// sandboxVariable is set in a sandbox, to the name of its profile.
const sandboxVariable = "CORRAL_SANDBOX"

// sendReport sends a report through the notification socket of a session in a sandbox. The
// session's shim leaves it for corrald. A report for one conversation only is dropped, as by
// leaveReport.
func sendReport(r client.Report, conversation string) error {
	if conversation != "" {
		return nil
	}
	text, err := json.Marshal(reportNow(r))
	sent := false
	if err == nil {
		sent, err = daemon.SdNotify(false, shimwire.ReportVariable+"="+string(text))
	}
	if sent {
		err = waitForReceiver()
	}
	if err != nil {
		return &failure{code: exitFailed, message: "cannot report: " + err.Error()}
	}
	return nil
}

// waitForReceiver waits, like sd_notify_barrier(3), until what was sent to the notification socket
// has been received, or for reportTimeout: the shim looks up the sender's control group by its
// process ID, and ignores a sender that has exited.
func waitForReceiver() error {
	received, held, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _, _ = received.Close(), held.Close() }()
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	to := &unix.SockaddrUnix{Name: os.Getenv("NOTIFY_SOCKET")}
	if err := unix.Sendmsg(socket, []byte("BARRIER=1"), unix.UnixRights(int(held.Fd())), to, 0); err != nil {
		return err
	}
	_ = held.Close()
	_ = received.SetReadDeadline(time.Now().Add(reportTimeout))
	_, _ = received.Read(make([]byte, 1)) // the end of the file: the receiver has closed its copy
	return nil
}

// readInput reads what a hook receives. It returns nil if the input is too long or does not end in
// time, which are not errors.
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
	case <-time.After(payloadTimeout): // the writer keeps the pipe open
		return nil
	}
}

// complete sets the fields of r that no option has set from the payload of any agent's hook, each
// by its name in that agent, and makes all of them valid for the bus.
func (e hookEvent) complete(r *client.Report) {
	if r.Activity == word.Waiting && r.Reason == "" {
		r.Reason = e.reason()
	}
	if r.Message == "" && r.Activity != word.Working {
		r.Message = e.text("message", "last-assistant-message") // the second is Codex's
	}
	r.Message = shorten(r.Message, maxMessage)
	for _, name := range []string{"session_id", "thread-id", "sessionID"} { // the others are Codex's and opencode's
		if id := e.text(name); r.ConversationID == "" && config.ValidConversationID(id) {
			r.ConversationID = id
		}
	}
}

// reason returns why the agent waits, as one of word.Reasons; "" if the payload does not have
// it.
func (e hookEvent) reason() string {
	if reason := e.text("reason"); slices.Contains(word.Reasons, reason) {
		return reason
	}
	switch e.text("notification_type") { // of Claude Code and Gemini CLI
	case "permission_prompt", "ToolPermission":
		return word.Permission
	case "elicitation_dialog":
		return word.Question
	case "idle_prompt":
		return word.TurnEnded
	}
	return ""
}

// shorten returns text as a valid string for the bus, with at most the given number of bytes.
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

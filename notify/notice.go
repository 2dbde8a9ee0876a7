package notify

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/outcome"
	"github.com/corrald/corral/supervisor"
	"github.com/corrald/corral/supervisor/session"
)

// Urgency is the urgency hint of the Desktop Notifications Specification.
type Urgency byte

const (
	Low Urgency = iota
	Normal
	Critical
)

// The actions of notices, by the keys that a server reports.
const (
	Open      = "open"
	Resume    = "resume"
	Restart   = "restart"
	ShowLog   = "log"
	ResumeAll = "resume-all"
	ShowAll   = "show-all"
	Reply     = "inline-reply"

	// Approve and Deny answer what an agent asks permission for. The key of such an action continues
	// with "@" and the time of the question, so that a click on a notice that was replaced does not
	// answer the next question: see answerKey.
	Approve = "approve"
	Deny    = "deny"

	// clicked is the key of a click on the notice itself, which carries out its first action.
	clicked = "default"
)

// Action is what a person can select in a notice.
type Action struct {
	Key   string
	Label string // for people
}

// Notice is a desktop notification. Its texts are plain: no markup, no control characters but
// newlines in the body.
type Notice struct {
	Key      string // its subject; there is one notice at a time for each key
	Token    string // its content: a notice with another token replaces it
	Title    string
	Body     string
	Urgency  Urgency
	Actions  []Action
	Sessions []string // ids that the actions apply to
}

// maxAsked limits how much of a question a notice shows, in characters.
const maxAsked = 140

// kinds maps a reason for attention to its word of Notify=. All other reasons are "waiting".
var kinds = map[string]string{
	string(session.Failed): "failed", string(session.Completed): "completed", string(session.Stale): "stale", string(session.Orphaned): "orphaned",
}

// kindSuspended is the word of Notify= for sessions that a reboot has interrupted.
const kindSuspended = "suspended"

// kindOf returns the word of Notify= for a reason for attention.
func kindOf(attention string) string {
	if kind := kinds[attention]; kind != "" {
		return kind
	}
	return "waiting"
}

// asks describes what an agent waits for, by its reason.
var asks = map[string]string{
	session.Permission: "asks for permission", session.Question: "has a question", session.Auth: "needs a login", session.Setup: "needs setup",
	session.TurnEnded: "turn ended", session.ErrorShown: "shows an error", session.BellRang: "rang the bell",
}

// happened describes why the session needs attention: "failed, exit 3".
func happened(n *supervisor.Snapshot) string {
	switch n.Attention {
	case string(session.Failed):
		if how := outcome.Short(n.Result, int(n.ExecMainStatus)); how != "" {
			return "failed, " + how
		}
		return "failed"
	case string(session.Completed):
		return "completed"
	case string(session.Stale):
		return "lost its terminal"
	case string(session.Orphaned):
		return "workspace missing"
	}
	if text := asks[n.Attention]; text != "" {
		return text
	}
	if n.Attention == "" && n.Interrupted {
		return "suspended"
	}
	return "needs attention"
}

// noticeOf returns the notice of one session.
func noticeOf(n *supervisor.Snapshot, token string, s Settings) Notice {
	kind := kindOf(n.Attention)
	var lines []string
	for _, line := range []string{plain(outcome.Sentence(n.Reason, n.AgentAlive)), shortened(plain(n.AttentionMessage), maxAsked)} {
		if line != "" {
			lines = append(lines, line)
		}
	}
	place := plain(tilde(n.WorkingDirectory, s.Home))
	if n.Exited.After(n.Started) && !n.AgentAlive {
		place += ", after " + span(n.Exited.Sub(n.Started))
	}
	return Notice{
		Key: sessionKey(n.ID), Token: token, Title: n.ID + ": " + happened(n), Body: strings.Join(append(lines, place), "\n"),
		Urgency: s.urgency(n, kind), Actions: actionsOf(n, kind), Sessions: []string{n.ID},
	}
}

// actionsOf returns the actions for a session.
func actionsOf(n *supervisor.Snapshot, kind string) []Action {
	open, log := Action{Open, "Open"}, Action{ShowLog, "Log"}
	switch {
	case kind == "waiting":
		return []Action{open, log, {Reply, "Reply"}}
	case kind == "orphaned":
		return []Action{open, log}
	case kind == "stale" || n.Resumable:
		return []Action{open, {Resume, "Resume"}, log}
	}
	return []Action{open, {Restart, "Restart"}, log}
}

// withAnswers adds the actions that answer a permission, where the agent's definition has keys for
// them.
func withAnswers(actions []Action, n *supervisor.Snapshot, agent config.Agent) []Action {
	if n.Attention != session.Permission {
		return actions
	}
	at := 1 // after the first, which a click carries out
	if len(agent.ApproveKeys) > 0 {
		actions = slices.Insert(actions, at, Action{answerKey(Approve, n), "Approve"})
		at++
	}
	if len(agent.DenyKeys) > 0 {
		actions = slices.Insert(actions, at, Action{answerKey(Deny, n), "Deny"})
	}
	return actions
}

func answerKey(action string, n *supervisor.Snapshot) string {
	return action + "@" + strconv.FormatInt(n.AttentionSince.UnixMicro(), 10)
}

// answerOf parses the key of an action that answers a question.
func answerOf(key string) (answer supervisor.Answer, ok bool) {
	action, since, _ := strings.Cut(key, "@")
	usec, err := strconv.ParseInt(since, 10, 64)
	return supervisor.Answer{Deny: action == Deny, Since: time.UnixMicro(usec)}, err == nil && (action == Approve || action == Deny)
}

// maxNamed limits how many sessions a summary names.
const maxNamed = 8

// summaryOf returns one notice of several sessions, which are in the order of their requests. It is
// as urgent as the most urgent of them.
func summaryOf(all []*supervisor.Snapshot, token string, s Settings) Notice {
	notice := Notice{
		Key: summaryKey, Token: token, Title: counted(len(all), "session needs attention", "sessions need attention"), Actions: []Action{{ShowAll, "Show all"}},
	}
	for _, n := range all {
		kind := kindOf(n.Attention)
		if n.Attention == "" && n.Interrupted {
			kind = kindSuspended
		}
		notice.Urgency = max(notice.Urgency, s.urgency(n, kind))
		notice.Sessions = append(notice.Sessions, n.ID)
	}
	notice.Body = named(all, func(n *supervisor.Snapshot) string { return n.ID + ": " + happened(n) }, "\n")
	return notice
}

// interruptedNotice returns the notice of the sessions that a reboot has suspended.
func interruptedNotice(all []*supervisor.Snapshot, token string, s Settings) Notice {
	notice := Notice{
		Key: interruptedKey, Token: token, Actions: []Action{{ShowAll, "Show all"}, {ResumeAll, "Resume all"}},
		Title: counted(len(all), "session was suspended", "sessions were suspended"),
	}
	for _, n := range all {
		notice.Urgency = max(notice.Urgency, s.urgency(n, kindSuspended))
		notice.Sessions = append(notice.Sessions, n.ID)
	}
	notice.Body = plain(all[0].Reason) + "\n" + named(all, func(n *supervisor.Snapshot) string { return n.ID }, ", ")
	return notice
}

// named lists the first sessions, and how many more there are.
func named(all []*supervisor.Snapshot, text func(*supervisor.Snapshot) string, between string) string {
	var names []string
	for _, n := range all[:min(len(all), maxNamed)] {
		names = append(names, text(n))
	}
	if more := len(all) - maxNamed; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, between)
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// span formats a duration: "45s", "2m 5s", "3h 4m", "2d 3h".
func span(d time.Duration) string {
	if d < time.Second {
		return "less than 1s"
	}
	return config.FormatTimeSpan(d)
}

// tilde abbreviates the home directory of a path.
func tilde(path, home string) string {
	if rest, below := strings.CutPrefix(path, home); below && home != "" && (rest == "" || rest[0] == '/') {
		return "~" + rest
	}
	return path
}

// plain returns a text as one line, with spaces for control and format characters, which could
// control a terminal or reverse the text.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, text)
	return strings.Join(strings.Fields(text), " ")
}

// shortened returns the first characters of a text, with an ellipsis if there were more.
func shortened(text string, most int) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return strings.TrimRight(string(runes[:most]), " ") + "…"
}

// escaper escapes a text for a server that interprets markup.
var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;")

// quirk is what a notification server does that its capabilities do not say.
type quirk struct {
	listsDefault bool // shows the action "default" beside all others, as a button or in a menu
	joinsLines   bool // shows the lines of a body as one line
	dropsClients bool // removes the notifications of a client that has left the bus
}

// quirks are those of known servers, by the name that GetServerInformation returns.
var quirks = map[string]quirk{
	"gnome-shell":        {joinsLines: true, dropsClients: true},
	"dunst":              {listsDefault: true},
	"mako":               {listsDefault: true},
	"fnott":              {listsDefault: true},
	"Xfce Notify Daemon": {listsDefault: true}, // a click on the notification itself always dismisses it there
}

// bodyFor returns the body as the server of this name shows it best.
func bodyFor(body, server string, capabilities []string) string {
	if quirks[server].joinsLines {
		body = strings.ReplaceAll(body, "\n", " · ")
	}
	if slices.Contains(capabilities, "body-markup") {
		body = escaper.Replace(body)
	}
	return body
}

// actionsFor returns the actions that the server of this name can show, in pairs of key and label.
// A click on the notice does the first one, which has a button as well, unless the server makes one
// of "default".
func actionsFor(actions []Action, server string, capabilities []string) []string {
	pairs := []string{}
	if !slices.Contains(capabilities, "actions") {
		return pairs
	}
	for i, a := range actions {
		if i == 0 {
			pairs = append(pairs, clicked, a.Label)
		}
		if i == 0 && quirks[server].listsDefault || a.Key == Reply && !slices.Contains(capabilities, Reply) {
			continue
		}
		pairs = append(pairs, a.Key, a.Label)
	}
	return pairs
}

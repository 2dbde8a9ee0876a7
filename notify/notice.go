package notify

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/outcome"
	"github.com/corrald/corral/internal/plaintext"
	"github.com/corrald/corral/internal/resettime"
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
	Resume    = word.Resume
	Restart   = word.Restart
	ShowLog   = "log"
	ResumeAll = "resume-all"
	ShowAll   = "show-all"
	Reply     = "inline-reply"

	// Approve and Deny answer an agent that asks for a permission. The key of such an action continues
	// with "@" and the time of the question, so that a click on a notice that was replaced does not
	// answer the next question: see permissionKey.
	Approve = "approve"
	Deny    = "deny"

	// defaultKey is the key of a click on the notice itself, which carries out its first action.
	defaultKey = "default"
)

// Action is what a person can select in a notice.
type Action struct {
	Key   string
	Label string // for people
}

// Notice is a desktop notification. Its texts contain neither markup nor control characters, apart
// from newlines in the body.
type Notice struct {
	Key      string // identifies the subject; there is one notice at a time for each key
	Token    string // identifies the content: a notice with another token replaces this one
	Title    string
	Body     string
	Urgency  Urgency
	Actions  []Action
	Sessions []string // ids of the sessions that the actions apply to
}

// maxQuestion limits how much of a question a notice shows, in characters.
const maxQuestion = 140

// kindSuspended is the value of Notify= for sessions that a reboot has interrupted.
const kindSuspended = word.Suspended

// kindOf returns the value of Notify= for a reason for attention.
func kindOf(attention string) string {
	switch attention {
	case word.Failed, word.Completed, word.Stale, word.Orphaned:
		return attention
	}
	return word.Waiting
}

// attentionTexts describes reasons for attention.
var attentionTexts = map[string]string{
	word.Failed: word.Failed, word.Completed: word.Completed,
	word.Stale: "lost its terminal", word.Orphaned: "workspace missing",
	word.Permission: "asks for permission", word.Question: "has a question",
	word.Auth: "needs a login", word.Blocked: "cannot continue", word.Setup: "needs setup",
	word.Limit:     "has reached a usage limit",
	word.TurnEnded: "turn ended", word.Error: "shows an error", word.Bell: "rang the bell",
}

// describeAttention returns why the session needs attention, for example "failed, exit 3".
func describeAttention(n *Session) string {
	how := outcome.Short(n.Result, int(n.ExecMainStatus))
	switch {
	case n.Attention == word.Failed && how != "":
		return "failed, " + how
	case n.Attention == word.Limit && n.AttentionUntil.After(time.Now()):
		return "limit until " + resettime.Format(n.AttentionUntil, time.Now())
	case n.Attention == "" && n.Interrupted:
		return word.Suspended
	}
	return cmp.Or(attentionTexts[n.Attention], "needs attention")
}

// noticeOf returns the notice of one session.
func noticeOf(n *Session, token string, s Settings) Notice {
	kind := kindOf(n.Attention)
	var lines []string
	reason := plaintext.Line(outcome.Sentence(outcome.End{
		State: n.State, Result: n.Result, EndCause: n.EndCause, Reason: n.Reason, AgentAlive: n.AgentAlive,
	}))
	for _, line := range []string{reason, truncate(plaintext.Line(n.AttentionMessage), maxQuestion)} {
		if line != "" {
			lines = append(lines, line)
		}
	}
	if !n.ContinueAt.IsZero() {
		lines = append(lines, "continues at "+resettime.Format(n.ContinueAt, time.Now()))
	}
	def, _ := s.Agents.Find(n.Agent)
	place := plaintext.Line(plaintext.AbbreviateHome(n.WorkingDirectory, s.Home))
	if n.Exited.After(n.Started) && !n.AgentAlive {
		place += ", after " + formatSpan(n.Exited.Sub(n.Started))
	}
	return Notice{
		Key: sessionKey(n.ID), Token: token,
		Title: s.title(n.ID + ": " + describeAttention(n)), Body: strings.Join(append(lines, place), "\n"),
		Urgency: s.urgency(n, kind), Actions: actionsOf(n, kind, def), Sessions: []string{n.ID},
	}
}

// title returns a title that names the machine, if it is another one.
func (s Settings) title(text string) string {
	if s.Host == "" {
		return text
	}
	return s.Host + ": " + text
}

// actionsOf returns the actions for a session. A click carries out the first one. A permission can
// be granted or denied as far as the agent's definition has keys for that.
func actionsOf(n *Session, kind string, agent config.Agent) []Action {
	open, log := Action{Open, "Open"}, Action{ShowLog, "Log"}
	switch {
	case kind == word.Waiting:
		actions := []Action{open}
		if n.Attention == word.Permission && len(agent.ApproveKeys) > 0 {
			actions = append(actions, Action{permissionKey(Approve, n), "Approve"})
		}
		if n.Attention == word.Permission && len(agent.DenyKeys) > 0 {
			actions = append(actions, Action{permissionKey(Deny, n), "Deny"})
		}
		return append(actions, log, Action{Reply, "Reply"})
	case kind == word.Orphaned:
		return []Action{open, log}
	case kind == word.Stale || n.Resumable:
		return []Action{open, {Resume, "Resume"}, log}
	}
	return []Action{open, {Restart, "Restart"}, log}
}

// permissionKey returns the key of an action that grants or denies the permission that the session
// is asking for.
func permissionKey(action string, n *Session) string {
	return action + "@" + strconv.FormatInt(n.AttentionSince.UnixMicro(), 10)
}

// parsePermissionKey parses a key that permissionKey has returned.
func parsePermissionKey(key string) (deny bool, since time.Time, ok bool) {
	action, at, _ := strings.Cut(key, "@")
	usec, err := strconv.ParseInt(at, 10, 64)
	return action == Deny, time.UnixMicro(usec), err == nil && (action == Approve || action == Deny)
}

// maxListed limits how many sessions a summary names.
const maxListed = 8

// summaryOf returns one notice of several sessions, which the caller has sorted by the age of their
// requests. Its urgency is that of the most urgent one.
func summaryOf(all []*Session, token string, s Settings) Notice {
	notice := Notice{
		Key: summaryKey, Token: token, Actions: []Action{{ShowAll, "Show all"}},
		Title: s.title(pluralize(len(all), "session needs attention", "sessions need attention")),
	}
	for _, n := range all {
		kind := kindOf(n.Attention)
		if n.Attention == "" && n.Interrupted {
			kind = kindSuspended
		}
		notice.Urgency = max(notice.Urgency, s.urgency(n, kind))
		notice.Sessions = append(notice.Sessions, n.ID)
	}
	describe := func(n *Session) string { return n.ID + ": " + describeAttention(n) }
	notice.Body = listSessions(all, describe, "\n")
	return notice
}

// interruptedNotice returns the notice of the sessions that a reboot has suspended.
func interruptedNotice(all []*Session, token string, s Settings) Notice {
	notice := Notice{
		Key: interruptedKey, Token: token, Actions: []Action{{ShowAll, "Show all"}, {ResumeAll, "Resume all"}},
		Title: s.title(pluralize(len(all), "session was suspended", "sessions were suspended")),
	}
	for _, n := range all {
		notice.Urgency = max(notice.Urgency, s.urgency(n, kindSuspended))
		notice.Sessions = append(notice.Sessions, n.ID)
	}
	names := listSessions(all, func(n *Session) string { return n.ID }, ", ")
	notice.Body = plaintext.Line(all[0].Reason) + "\n" + names
	return notice
}

// listSessions returns the texts of the first maxListed sessions and the number of the others.
func listSessions(
	all []*Session, text func(*Session) string, separator string,
) string {
	var names []string
	for _, n := range all[:min(len(all), maxListed)] {
		names = append(names, text(n))
	}
	if more := len(all) - maxListed; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, separator)
}

func pluralize(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// formatSpan formats a duration: "45s", "2m 5s", "3h 4m", "2d 3h".
func formatSpan(d time.Duration) string {
	if d < time.Second {
		return "less than 1s"
	}
	return config.FormatTimeSpan(d)
}

// truncate returns the first limit characters of a text, with an ellipsis if there are more.
func truncate(text string, limit int) string {
	runes := []rune(text)
	if len(runes) <= limit {
		return text
	}
	return strings.TrimRight(string(runes[:limit]), " ") + "…"
}

// escaper escapes a text for a server that interprets markup.
var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;")

// quirk is the behaviour of a notification server that its capabilities do not announce.
type quirk struct {
	listsDefault bool // shows the action "default" beside the others, as a button or in a menu
	joinsLines   bool // shows the lines of a body as one line
	dropsClients bool // removes the notifications of a client that has left the bus
}

// quirks are the quirks of known servers, by the name that GetServerInformation returns.
var quirks = map[string]quirk{
	"gnome-shell":        {joinsLines: true, dropsClients: true},
	"dunst":              {listsDefault: true},
	"mako":               {listsDefault: true},
	"fnott":              {listsDefault: true},
	"Xfce Notify Daemon": {listsDefault: true}, // where a click on a notification always dismisses it
}

// bodyFor returns the body in the form that suits the server of this name.
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
// A click on the notice carries out the first action. That action gets a button as well, unless the
// server shows a button for "default".
func actionsFor(actions []Action, server string, capabilities []string) []string {
	pairs := []string{}
	if !slices.Contains(capabilities, "actions") {
		return pairs
	}
	for i, a := range actions {
		if i == 0 {
			pairs = append(pairs, defaultKey, a.Label)
		}
		if i == 0 && quirks[server].listsDefault || a.Key == Reply && !slices.Contains(capabilities, Reply) {
			continue
		}
		pairs = append(pairs, a.Key, a.Label)
	}
	return pairs
}

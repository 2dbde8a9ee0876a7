package wording

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/outcome"
)

// The colours of states and headings, as systemctl's. Each begins with a reset, so they do not add
// up.
const (
	Red       = "\x1b[0;1;31m"
	Green     = "\x1b[0;1;32m"
	Yellow    = "\x1b[0;1;33m"
	Cyan      = "\x1b[0;1;36m"
	Dim       = "\x1b[0;2m"
	Underline = "\x1b[0;4m"
	Bold      = "\x1b[0;1m"
	Normal    = "\x1b[0m"
)

// UnknownState and UnansweredState are what is shown of a session that was live when the daemon was
// last there, or last answered: it may be anything by now.
const (
	UnknownState    = "state unknown (corrald is not running)"
	UnansweredState = "state unknown (corrald does not answer)"
)

func isUnknown(state string) bool { return state == UnknownState || state == UnansweredState }

// IsEnded tells of a state in which no agent lives.
func IsEnded(state string) bool {
	switch state {
	case "created", "completed", "failed", "stopped", "suspended", "archived":
		return true
	}
	return false
}

// IsWaiting returns whether the session's agent waits for an answer.
func IsWaiting(s client.Session) bool {
	return s.Activity == "waiting" && !IsEnded(s.State) && !IsTurnEnded(s)
}

// IsTurnEnded returns whether the session's agent has finished its turn, so that the next one is the
// user's.
func IsTurnEnded(s client.Session) bool { return s.Attention == turnEnded && !IsEnded(s.State) }

// HasError returns whether the session's agent lives and reports an error.
func HasError(s client.Session) bool { return s.Attention == "error" && !IsEnded(s.State) }

// turnEnded is the reason in the Attention property.
const turnEnded = "turn-ended"

// AttentionText is a reason of the Attention property as a person reads it.
func AttentionText(reason string) string {
	if reason == turnEnded {
		return "turn ended"
	}
	return reason
}

// TurnsEnded writes how many turns have ended.
func TurnsEnded(n int) string {
	if n == 1 {
		return "1 turn ended"
	}
	return fmt.Sprintf("%d turns ended", n)
}

// Matches returns whether the session is in a state, or its agent in an activity, that the user
// names by this word; turn-ended is a word as well.
func Matches(s client.Session, word string) bool {
	return s.State == word || !IsEnded(s.State) && (s.Activity == word || word == turnEnded && IsTurnEnded(s))
}

// StateColour is the colour of a session's state, "" for none.
func StateColour(s client.Session) string {
	switch {
	case s.State == "failed" || HasError(s):
		return Red
	case s.State == "stale" || isUnknown(s.State) || s.State == "orphaned" || IsWaiting(s):
		return Yellow
	case IsTurnEnded(s):
		return Cyan
	case s.State == "running":
		return Green
	case s.State == "completed" || s.State == "stopped" || s.State == "archived":
		return Dim
	}
	return ""
}

// Mark is the sign that a session's line begins with, and its colour: full while the session is
// live or has failed, of its own shape after a finished turn, and dim once a person has seen what
// the agent asks.
func Mark(s client.Session) (sign, colour string) {
	sign, colour = "●", StateColour(s)
	switch {
	case IsEnded(s.State) && s.State != "failed" || isUnknown(s.State):
		return "○", colour
	case IsTurnEnded(s):
		sign = "◆"
	}
	if s.AttentionAcknowledged && s.State != "stale" && s.State != "orphaned" {
		colour = Dim
	}
	return sign, colour
}

// NeedsAttention returns whether a person has something to do about the session, also if one has
// acknowledged that already.
func NeedsAttention(s client.Session) bool {
	switch StateColour(s) {
	case Red, Yellow, Cyan:
		return true
	}
	return false
}

// StateText is a session's state with what a person wants to know with it: "running (idle 2m 15s)",
// "running (waiting: permission)", "completed (3 processes left)". It calls leftovers, which counts
// the processes that are left of a session, where their number belongs into it.
func StateText(s client.Session, leftovers func(client.Session) int, now time.Time) string {
	text, _ := Activity(s)
	switch {
	case s.State != "running" || s.Frozen:
	case IsWaiting(s) || IsTurnEnded(s) || HasError(s):
		return "running (" + text + ")"
	case s.IdleHint && s.IdleSinceHint != 0:
		return "running (idle " + Age(s.IdleSinceHint, now) + ")"
	}
	return State(s, leftovers)
}

// State is a session's state beside a column of its own for the activity: "running",
// "running (frozen)", "completed (3 processes left)".
func State(s client.Session, leftovers func(client.Session) int) string {
	switch {
	case s.State == "running" && s.Frozen:
		return "running (frozen)"
	case IsEnded(s.State) || s.State == "stale" && !s.AgentAlive:
		if n := leftovers(s); n == 1 {
			return s.State + " (1 process left)"
		} else if n > 1 {
			return s.State + " (" + Plural(n, "processe") + " left)"
		}
	}
	return s.State
}

// Activity is what the agent does, and for what it waits, with its colour: "working",
// "waiting: permission", "turn ended". It has nothing of what the agent said, so that it can be
// published.
func Activity(s client.Session) (text, colour string) {
	switch {
	case IsEnded(s.State):
		return "-", ""
	case IsTurnEnded(s):
		return "turn ended", Cyan
	case HasError(s):
		return "error", Red
	case s.Activity == "" || s.Activity == "unknown":
		return "-", ""
	case s.Activity == "waiting" && s.Attention != "" && s.Attention != s.State:
		return "waiting: " + s.Attention, Yellow
	case s.Activity == "waiting":
		return s.Activity, Yellow
	}
	return s.Activity, ""
}

// Detail is what a table says of a session beside its state, for its user: what the agent does,
// what it asks ("waiting: permission: Run rm -rf build?", "turn ended: finished task"), or how it
// ended ("exit 3").
func Detail(s client.Session) (text, colour string) {
	if text, colour = Outcome(s); text != "" {
		return text, colour
	}
	text, colour = Activity(s)
	if isAttentionShown(s) && s.AttentionMessage != "" {
		text += ": " + s.AttentionMessage
	}
	return text, colour
}

// isAttentionShown returns whether Activity shows the session's Attention.
func isAttentionShown(s client.Session) bool {
	return IsTurnEnded(s) || HasError(s) || IsWaiting(s) && s.Attention != "" && s.Attention != s.State
}

// EllipsizeDetail shortens a Detail to at most width columns. What says least goes first: that the
// agent waits, of what it waits for.
func EllipsizeDetail(text string, width int) string {
	if what, waits := strings.CutPrefix(text, "waiting: "); waits && Width(text) > width {
		text = what
	}
	return Ellipsize(text, width)
}

// Outcome is how a session ended, or what is wrong with it, in a few words: "exit 3", "SIGKILL",
// "oom", of a suspended one by what it was suspended; "" if there is nothing to say.
func Outcome(s client.Session) (text, colour string) {
	switch s.State {
	case "failed":
		if s.Result == outcome.SessionLost && s.Reason == outcome.ReasonMachine {
			return "machine went down", Red
		}
		return cmp.Or(outcome.Short(s.Result, int(s.ExecMainStatus)), s.Reason), Red
	case "stale":
		if s.AgentAlive {
			return "tmux died, agent running", Yellow
		}
		return "tmux died", Yellow
	case "orphaned":
		return "workspace gone", Yellow
	case "suspended":
		return suspendedBy(s), ""
	case "stopped":
		return strings.TrimPrefix(s.Reason, "its "), ""
	}
	return "", ""
}

func suspendedBy(s client.Session) string {
	switch {
	case s.Reason == "":
		return "by user"
	case strings.HasPrefix(s.Reason, outcome.ReasonIdle):
		return "idle"
	}
	return "shutdown"
}

// IsSuspendedByShutdown returns whether the end of the machine, of the login session or of corrald
// has suspended the session: the user has not asked for it.
func IsSuspendedByShutdown(s client.Session) bool {
	return s.State == "suspended" && suspendedBy(s) == "shutdown"
}

// Reason is the sentence about a session's state, "" if there is none.
func Reason(s client.Session) string { return outcome.Sentence(s.Reason, s.AgentAlive) }

// Since is the age of what a table shows of the session: see SinceUSec.
func Since(s client.Session, now time.Time) string { return Age(SinceUSec(s), now) }

// SinceUSec is since when a session is as Detail shows it, in microseconds since 1970: of one that
// waits, since it asked; of one whose turn has ended, since then; of an idle one, since it fell
// silent; of all others, since its state changed.
func SinceUSec(s client.Session) uint64 {
	changed := cmp.Or(s.StateChangeTimestamp, s.Timestamp)
	if text, _ := Outcome(s); text != "" || IsEnded(s.State) {
		return changed
	}
	switch {
	case isAttentionShown(s):
		return cmp.Or(s.AttentionTimestamp, s.IdleSinceHint, changed)
	case s.IdleHint || IsWaiting(s):
		return cmp.Or(s.IdleSinceHint, changed)
	}
	return changed
}

// AbbreviateHome is a directory with the home directory as ~.
func AbbreviateHome(path string) string {
	home := strings.TrimRight(os.Getenv("HOME"), "/")
	if rest, ok := strings.CutPrefix(path, home); ok && home != "" && (rest == "" || rest[0] == '/') {
		return "~" + rest
	}
	return path
}

// OnBranch is a workspace as people see it, with its branch where it is a worktree that was made
// for the session.
func OnBranch(workspace, branch string) string {
	if branch == "" {
		return workspace
	}
	return workspace + " (branch " + branch + ")"
}

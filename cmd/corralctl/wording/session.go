package wording

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/dbusapi/word"
	"github.com/corrald/corral/internal/outcome"
	"github.com/corrald/corral/internal/plaintext"
	"github.com/corrald/corral/internal/resettime"
)

// The colours of states and headings are those of systemctl. Each begins with a reset, so that they
// do not add up.
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

// UnknownState and UnansweredState stand for the state of a session that was live when corrald last
// ran, or last answered: its state may have changed since.
const (
	UnknownState    = "state unknown (corrald is not running)"
	UnansweredState = "state unknown (corrald does not answer)"
)

func isUnknown(state string) bool { return state == UnknownState || state == UnansweredState }

// IsEnded returns whether a state is one in which no agent runs.
func IsEnded(state string) bool {
	switch state {
	case word.Created, word.Completed, word.Failed, word.Stopped, word.Suspended, word.Archived:
		return true
	}
	return false
}

// QueuedWord is what people call a session whose run waits until MaxRunning= permits it.
const QueuedWord = "queued"

// Queued formats a session's position in the queue: "queued, 3rd"; "queued" if it is not known, ""
// if the session is not queued.
func Queued(s client.Session) string {
	switch {
	case s.QueuedTimestamp == 0:
		return ""
	case s.QueuePosition == 0:
		return QueuedWord
	}
	return QueuedWord + ", " + ordinal(s.QueuePosition)
}

// ordinal formats a position: 1st, 2nd, 3rd, 4th, 11th, 21st.
func ordinal(n uint32) string {
	suffix := "th"
	if n/10%10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n) + suffix
}

// IsWaiting returns whether the session's agent is waiting for an answer.
func IsWaiting(s client.Session) bool {
	return s.Activity == word.Waiting && !IsEnded(s.State) && !IsTurnEnded(s)
}

// IsTurnEnded returns whether the session's agent has finished its turn, so that the user is next.
func IsTurnEnded(s client.Session) bool { return s.Attention == word.TurnEnded && !IsEnded(s.State) }

// HasError returns whether the session's agent is running and reports an error.
func HasError(s client.Session) bool { return s.Attention == word.Error && !IsEnded(s.State) }

// IsLimited returns whether the session's agent has reached a usage limit.
func IsLimited(s client.Session) bool { return s.Attention == word.Limit && !IsEnded(s.State) }

// LimitText formats the usage limit that the session's agent has reached: "limit until 15:00".
func LimitText(s client.Session, now time.Time) string {
	if s.AttentionUntil == 0 {
		return word.Limit
	}
	until := BusTime(s.AttentionUntil)
	if until.Before(now) {
		return word.Limit + ", reset at " + resettime.Format(until, now)
	}
	return word.Limit + " until " + resettime.Format(until, now)
}

// AttentionText formats a value of the Attention property for people.
func AttentionText(reason string) string {
	if reason == word.TurnEnded {
		return "turn ended"
	}
	return reason
}

// TurnsEnded formats how many turns have ended.
func TurnsEnded(n int) string { return Plural(n, "turn") + " ended" }

// Limited formats how many sessions have reached a usage limit.
func Limited(n int) string { return fmt.Sprintf("%d at a limit", n) }

// Leftovers formats how many processes a session has left behind: "1 process left".
func Leftovers(n int) string {
	if n == 1 {
		return "1 process left"
	}
	return Plural(n, "processe") + " left"
}

// Matches returns whether name is the session's state or its agent's activity; word.TurnEnded and
// QueuedWord are activities here.
func Matches(s client.Session, name string) bool {
	return s.State == name || name == QueuedWord && s.QueuedTimestamp != 0 ||
		!IsEnded(s.State) && (s.Activity == name || name == word.TurnEnded && IsTurnEnded(s))
}

// StateColour returns the colour of a session's state, "" for none.
func StateColour(s client.Session) string {
	switch {
	case s.State == word.Failed || HasError(s):
		return Red
	case s.State == word.Stale || isUnknown(s.State) || s.State == word.Orphaned || IsWaiting(s) || IsLimited(s):
		return Yellow
	case IsTurnEnded(s):
		return Cyan
	case s.State == word.Running:
		return Green
	case s.State == word.Completed || s.State == word.Stopped || s.State == word.Archived:
		return Dim
	}
	return ""
}

// Mark returns the sign at the start of a session's line, and its colour. The sign is filled while
// the session is live or has failed, and a diamond after a finished turn. It is dim once the user
// has seen the agent's request.
func Mark(s client.Session) (sign, colour string) {
	sign, colour = "●", StateColour(s)
	switch {
	case IsEnded(s.State) && s.State != word.Failed || isUnknown(s.State):
		return "○", colour
	case IsTurnEnded(s):
		sign = "◆"
	}
	if s.AttentionAcknowledged && s.State != word.Stale && s.State != word.Orphaned {
		colour = Dim
	}
	return sign, colour
}

// NeedsAttention returns whether the user has something to do about the session, even if they have
// acknowledged it already.
func NeedsAttention(s client.Session) bool {
	switch StateColour(s) {
	case Red, Yellow, Cyan:
		return true
	}
	return false
}

// StateText formats a session's state with its most important detail: "running (idle 2m 15s)",
// "running (waiting: permission)", "completed (3 processes left)". It calls leftovers, which counts
// the session's leftover processes, only where their number is shown.
func StateText(s client.Session, leftovers func(client.Session) int, now time.Time) string {
	text, _ := Activity(s)
	switch {
	case s.QueuedTimestamp != 0:
		return s.State + " (" + Queued(s) + ")"
	case s.State != word.Running || s.Frozen:
	case IsWaiting(s) || IsTurnEnded(s) || HasError(s) || IsLimited(s):
		return "running (" + text + ")"
	case s.IdleHint && s.IdleSinceHint != 0:
		return "running (idle " + Age(s.IdleSinceHint, now) + ")"
	}
	return State(s, leftovers)
}

// State formats a session's state for a table that has a column of its own for the activity:
// "running", "running (frozen)", "completed (3 processes left)".
func State(s client.Session, leftovers func(client.Session) int) string {
	switch {
	case s.State == word.Running && s.Frozen:
		return "running (frozen)"
	case IsEnded(s.State) || s.State == word.Stale && !s.AgentAlive:
		if n := leftovers(s); n > 0 {
			return s.State + " (" + Leftovers(n) + ")"
		}
	}
	return s.State
}

// Activity formats what the agent does or waits for, with its colour: "working", "waiting:
// permission", "turn ended". It contains none of the agent's own text, so it can be shown in
// public, for example in a status bar.
func Activity(s client.Session) (text, colour string) {
	switch {
	case s.QueuedTimestamp != 0:
		return QueuedWord, ""
	case IsEnded(s.State):
		return "-", ""
	case IsTurnEnded(s):
		return "turn ended", Cyan
	case HasError(s):
		return word.Error, Red
	case IsLimited(s):
		return LimitText(s, time.Now()), Yellow
	case s.Activity == "" || s.Activity == word.Unknown:
		return "-", ""
	case s.Activity == word.Waiting && s.Attention != "" && s.Attention != s.State:
		return "waiting: " + s.Attention, Yellow
	case s.Activity == word.Waiting:
		return s.Activity, Yellow
	}
	return s.Activity, ""
}

// Detail formats what a table shows beside a session's state: the agent's activity, its request
// ("waiting: permission: Run rm -rf build?", "turn ended: finished task"), or how the session ended
// ("exit 3").
func Detail(s client.Session) (text, colour string) {
	if text := Queued(s); text != "" {
		return text, ""
	}
	if text, colour = Outcome(s); text != "" {
		if s.ContinueTimestamp != 0 {
			now := time.Now()
			text += ", continues at " + resettime.Format(BusTime(s.ContinueTimestamp), now)
		}
		return text, colour
	}
	text, colour = Activity(s)
	switch {
	case isAttentionShown(s) && s.AttentionMessage != "":
		text += ": " + s.AttentionMessage
	case text == word.Working && s.StatusText != "":
		text += ": " + s.StatusText
	}
	return text, colour
}

// isAttentionShown returns whether Activity shows the session's Attention.
func isAttentionShown(s client.Session) bool {
	return IsTurnEnded(s) || HasError(s) || IsLimited(s) || IsWaiting(s) && s.Attention != "" && s.Attention != s.State
}

// EllipsizeDetail shortens a Detail to at most width columns. It drops the prefix "waiting: "
// first, because the reason for waiting matters more.
func EllipsizeDetail(text string, width int) string {
	if what, waits := strings.CutPrefix(text, "waiting: "); waits && Width(text) > width {
		text = what
	}
	return Ellipsize(text, width)
}

// Outcome formats in a few words how a session ended or what is wrong with it: "exit 3", "SIGKILL",
// "oom"; for a suspended session, what suspended it. It returns "" if there is nothing to show.
func Outcome(s client.Session) (text, colour string) {
	switch s.State {
	case word.Failed:
		if s.Result == word.SessionLost && s.EndCause == word.Shutdown {
			return "machine went down", Red
		}
		return cmp.Or(outcome.Short(s.Result, int(s.ExecMainStatus)), s.Reason), Red
	case word.Stale:
		if s.AgentAlive {
			return "tmux died, agent running", Yellow
		}
		return "tmux died", Yellow
	case word.Orphaned:
		return "workspace gone", Yellow
	case word.Suspended:
		return suspendedBy(s), ""
	case word.Stopped:
		return stoppedTexts[s.EndCause], ""
	}
	return "", ""
}

// stoppedTexts describe what has stopped a session, if it was not a user's request.
var stoppedTexts = map[string]string{
	word.TerminalClosed: "terminal was closed", word.ScopeStopped: "scope was stopped",
}

func suspendedBy(s client.Session) string {
	switch {
	case s.Reason == "":
		return "by user"
	case s.EndCause != "":
		return s.EndCause
	}
	return s.Reason // corrald of a version without EndCause
}

// IsSuspendedByShutdown returns whether the session was suspended because the machine, the login
// session or corrald shut down, and not by the user's request.
func IsSuspendedByShutdown(s client.Session) bool {
	return s.State == word.Suspended && suspendedBy(s) == word.Shutdown
}

// Reason returns a sentence that explains a session's state, "" if there is none.
func Reason(s client.Session) string {
	return outcome.Sentence(outcome.End{
		State: s.State, Result: s.Result, EndCause: s.EndCause, Reason: s.Reason, AgentAlive: s.AgentAlive,
	})
}

// Since formats the age of SinceUSec.
func Since(s client.Session, now time.Time) string { return Age(SinceUSec(s), now) }

// SinceUSec returns since when the session has been as Detail shows it, in microseconds since 1970:
// since it was queued, since its request if the agent waits, since the end of the turn, since the
// last output of an idle agent, otherwise since the last change of its state.
func SinceUSec(s client.Session) uint64 {
	if s.QueuedTimestamp != 0 {
		return s.QueuedTimestamp
	}
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

// AbbreviateHome returns a path with the home directory replaced by ~.
func AbbreviateHome(path string) string { return plaintext.AbbreviateHome(path, os.Getenv("HOME")) }

// Labels formats labels as "key=value", in the order of their keys.
func Labels(labels map[string]string) []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, key+"="+labels[key])
	}
	return all
}

// OnBranch formats a workspace with its branch, if it is a worktree that Corral made for the
// session.
func OnBranch(workspace, branch string) string {
	if branch == "" {
		return workspace
	}
	return workspace + " (branch " + branch + ")"
}

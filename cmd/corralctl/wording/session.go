package wording

import (
	"os"
	"strings"
	"time"

	"github.com/corrald/corral/dbusapi/client"
)

// The colours of states and headings, as systemctl's. Each begins with a reset, so they do not add up.
const (
	Red       = "\x1b[0;1;31m"
	Green     = "\x1b[0;1;32m"
	Yellow    = "\x1b[0;1;33m"
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

// Ended tells of a state in which no agent lives.
func Ended(state string) bool {
	switch state {
	case "created", "completed", "failed", "stopped", "suspended", "archived":
		return true
	}
	return false
}

// Waits tells whether the session's agent waits for a person.
func Waits(s client.Session) bool { return s.Activity == "waiting" && !Ended(s.State) }

// StateColour is the colour of a session's state, "" for none.
func StateColour(s client.Session) string {
	switch {
	case s.State == "failed":
		return Red
	case s.State == "stale" || isUnknown(s.State) || s.State == "orphaned" || Waits(s):
		return Yellow
	case s.State == "running":
		return Green
	case s.State == "completed" || s.State == "stopped" || s.State == "archived":
		return Dim
	}
	return ""
}

// Dot is the sign that a session's line begins with, full while it is live or wants attention.
func Dot(s client.Session) string {
	if Ended(s.State) && s.State != "failed" || isUnknown(s.State) {
		return "○"
	}
	return "●"
}

// StateText is a session's state with what a person wants to know with it: "running (idle 2m 15s)", "running (waiting: permission)", "completed (3 processes left)". It calls leftovers,
// which counts the processes that are left of a session, where their number belongs into it.
func StateText(s client.Session, leftovers func(client.Session) int, now time.Time) string {
	switch {
	case s.State == "running" && s.Frozen:
		return "running (frozen)"
	case s.State == "running" && s.Activity == "waiting":
		text, _ := Activity(s)
		return "running (" + text + ")"
	case s.State == "running" && s.IdleHint && s.IdleSinceHint != 0:
		return "running (idle " + Age(s.IdleSinceHint, now) + ")"
	case Ended(s.State) || s.State == "stale" && !s.AgentAlive:
		if n := leftovers(s); n == 1 {
			return s.State + " (1 process left)"
		} else if n > 1 {
			return s.State + " (" + Plural(n, "processe") + " left)"
		}
	}
	return s.State
}

// Activity says what the agent does, and for what it waits, with its colour: "working", "waiting: permission".
func Activity(s client.Session) (text, colour string) {
	switch {
	case Ended(s.State) || s.Activity == "" || s.Activity == "unknown":
		return "-", ""
	case s.Activity == "waiting" && s.Attention != "":
		return "waiting: " + s.Attention, Yellow
	case s.Activity == "waiting":
		return s.Activity, Yellow
	}
	return s.Activity, ""
}

// Workspace is a directory with the home directory as ~.
func Workspace(path string) string {
	home := strings.TrimRight(os.Getenv("HOME"), "/")
	if rest, ok := strings.CutPrefix(path, home); ok && home != "" && (rest == "" || rest[0] == '/') {
		return "~" + rest
	}
	return path
}

// OnBranch is a workspace as people see it, with its branch where it is a worktree that was made for the session.
func OnBranch(workspace, branch string) string {
	if branch == "" {
		return workspace
	}
	return workspace + " (branch " + branch + ")"
}

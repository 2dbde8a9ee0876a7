package main

import (
	"os"
	"strings"
	"time"

	"github.com/corrald/corral/dbusapi/client"
)

// ended tells of a state in which no agent lives.
func ended(state string) bool {
	switch state {
	case "created", "completed", "failed", "stopped", "suspended", "archived":
		return true
	}
	return false
}

// stateColour is the colour of a session's state, "" for none.
func stateColour(s client.Session) string {
	switch {
	case s.State == "failed":
		return red
	case s.State == "stale" || s.State == unknownState || s.State == "orphaned" || s.Activity == "waiting" && !ended(s.State):
		return yellow
	case s.State == "running":
		return green
	case s.State == "completed" || s.State == "stopped" || s.State == "archived":
		return dim
	}
	return ""
}

// dot is the sign that a session's status begins with, full while it is live or wants attention.
func (c *ctl) dot(s client.Session) string {
	sign := "●"
	if ended(s.State) && s.State != "failed" || s.State == unknownState {
		sign = "○"
	}
	return c.paint(stateColour(s), sign)
}

// stateText is a session's state with what a person wants to know with it: "running (idle 2m 15s)", "completed (3 processes left)".
func stateText(s client.Session, now time.Time) string {
	switch {
	case s.State == "running" && s.Frozen:
		return "running (frozen)"
	case s.State == "running" && s.IdleHint && s.IdleSinceHint != 0:
		return "running (idle " + age(s.IdleSinceHint, now) + ")"
	case ended(s.State) || s.State == "stale" && !s.AgentAlive:
		if n := leftovers(s); n == 1 {
			return s.State + " (1 process left)"
		} else if n > 1 {
			return s.State + " (" + plural(n, "processe") + " left)"
		}
	}
	return s.State
}

// leftovers counts the processes in a session's control group beside its shim and tmux; on another machine they are not seen.
func leftovers(s client.Session) int {
	if s.ControlGroup == "" {
		return 0
	}
	n := 0
	for _, p := range groupProcesses(s.ControlGroup) {
		if !p.ours() {
			n++
		}
	}
	return n
}

// shortWorkspace is a workspace with the home directory as ~.
func shortWorkspace(path string) string {
	home := strings.TrimRight(os.Getenv("HOME"), "/")
	if rest, ok := strings.CutPrefix(path, home); ok && home != "" && (rest == "" || rest[0] == '/') {
		return "~" + rest
	}
	return path
}

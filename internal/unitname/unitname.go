// Package unitname has the names of Corral's units. They are documented, so that users can write
// drop-ins for them.
package unitname

import (
	"bytes"
	"strings"
)

const (
	// Daemon is the service of corrald.
	Daemon = "corrald.service"
	// Slice is the slice of the scopes of all sessions. The package installs it.
	Slice = "app-corral.slice"
	// Scopes is a pattern that matches the scope of every session.
	Scopes = ScopePrefix + "*" + ScopeSuffix
)

// WorktreeSteps is a pattern that matches the transient services of steps with the worktrees of
// sessions.
const WorktreeSteps = worktreePrefix + "*" + worktreeSuffix

const (
	worktreePrefix = "corral-worktree-"
	worktreeSuffix = ".service"
)

// IsWorktreeStep reports whether a control group is that of such a service, or below it.
func IsWorktreeStep(group string) bool {
	for name := range strings.SplitSeq(group, "/") {
		if strings.HasPrefix(name, worktreePrefix) && strings.HasSuffix(name, worktreeSuffix) {
			return true
		}
	}
	return false
}

// ScopePrefix and ScopeSuffix are the beginning and the end of the name of a session's scope.
const (
	ScopePrefix = "app-corral-"
	ScopeSuffix = ".scope"
)

// account separates the name of a template and that of its instance in the name of a scope. systemd
// accepts no "@" there, because scopes cannot be instances (systemd.unit(5)). The "-" makes
// drop-ins for the template apply to its instances; neither an agent's name nor an id contains ":".
const account = "-:"

// Scope returns the name of a session's scope. That of agent claude@work and session shop is
// app-corral-claude-:work-shop.scope.
func Scope(agent, id string) string {
	return ScopePrefix + strings.Replace(agent, "@", account, 1) + "-" + id + ScopeSuffix
}

// ContinueTimer returns the name, without its suffix, of the timer that continues a session after a
// usage limit, and of the timer's service.
func ContinueTimer(id string) string { return "corral-continue-" + id }

// CutScope returns the part of a scope's name that contains the agent and the id, separated by "-".
// It returns false if no session can have this scope.
func CutScope(unit string) (string, bool) {
	name, hasPrefix := strings.CutPrefix(unit, ScopePrefix)
	name, hasSuffix := strings.CutSuffix(name, ScopeSuffix)
	return name, hasPrefix && hasSuffix
}

// SplitScope returns all pairs of an agent and an id whose scope can have this name: both may
// contain "-". It does not check whether they are valid names.
func SplitScope(unit string) (agents, ids []string) {
	name, is := CutScope(unit)
	if !is || strings.Contains(name, "@") { // no scope has such a name
		return nil, nil
	}
	for i := range len(name) {
		if name[i] == '-' {
			agents = append(agents, strings.Replace(name[:i], account, "@", 1))
			ids = append(ids, name[i+1:])
		}
	}
	return agents, ids
}

// ScopeIn returns the prefix of a control group's path up to the innermost scope of a session,
// or nil if there is none. It does not allocate.
func ScopeIn(path []byte) []byte {
	for end := len(path); end > 0; end = bytes.LastIndexByte(path[:end], '/') {
		name := path[bytes.LastIndexByte(path[:end], '/')+1 : end]
		if bytes.HasPrefix(name, []byte(ScopePrefix)) && bytes.HasSuffix(name, []byte(ScopeSuffix)) {
			return path[:end]
		}
	}
	return nil
}

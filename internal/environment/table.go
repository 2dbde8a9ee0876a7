// Package environment determines which variables an agent gets: which sources may set a variable,
// in which order they apply, and which variables are never inherited because they belong to other
// programs. Client and daemon use the same rules.
package environment

import (
	"slices"
	"strings"
)

// excluded are variables that describe where a program runs, or belong to one terminal, login
// session, service or conversation; elsewhere their values would be wrong. No agent inherits them
// from any source, but they can be set explicitly. A name that ends in * is a prefix.
var excluded = []string{
	// Of a terminal and the programs in it. The agent gets its own terminal, and some agents choose by
	// these variables how they notify.
	"TERM", "TERMCAP", "COLORTERM", "COLUMNS", "LINES", "GPG_TTY", "TMUX*", "STY", "WINDOW", "WINDOWID", "ZELLIJ*",
	"HERDR_*", "TERM_PROGRAM*", "TERM_SESSION_ID", "TERM_FEATURES", "KITTY_*", "WEZTERM_*", "GHOSTTY_*", "ITERM_*",
	"VTE_VERSION", "WT_SESSION", "WT_PROFILE_ID", "ALACRITTY_*", "KONSOLE_*", "INSIDE_EMACS",
	// Of a shell.
	"PWD", "OLDPWD", "SHLVL", "_", "BASH_FUNC_*",
	// Of a login session, which ends before the agent does. For SSH_AUTH_SOCK agents get a stable
	// path, see package sshagent.
	"SSH_AUTH_SOCK", "SSH_AGENT_PID", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "XDG_SESSION_ID", "XDG_SEAT", "XDG_VTNR",
	"SUDO_*",
	// Of another agent, or of the session that the caller runs in.
	"CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION*", "CLAUDE_CODE_SSE_PORT", "CLAUDE_CODE_CHILD_SESSION",
	"CLAUDE_PROJECT_DIR", "CLAUDE_ENV_FILE", "CODEX_THREAD*", "CODEX_SANDBOX*", "CODEX_CI", "GEMINI_CLI", "QWEN_CODE",
	"OPENCODE", "OPENCODE_PID", "OPENCODE_SESSION*", "CURSOR_AGENT", "CURSOR_TRACE_ID", "AI_AGENT", "CORRAL_*",
	// Of a service, systemd.exec(5).
	"NOTIFY_SOCKET", "WATCHDOG_*", "LISTEN_*", "FDSTORE", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_*", "MANAGERPID",
	"MANAGERPIDFDID", "MAINPID", "MEMORY_PRESSURE_*", "CREDENTIALS_DIRECTORY", "STATE_DIRECTORY", "RUNTIME_DIRECTORY",
	"CACHE_DIRECTORY", "LOGS_DIRECTORY", "CONFIGURATION_DIRECTORY", "DBUS_STARTER_*", "SERVICE_RESULT", "EXIT_CODE",
	"EXIT_STATUS",
}

// managerOnly are variables that are taken from the user manager only: a shell may belong to
// another login, or to another user.
var managerOnly = []string{"XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "HOME", "USER", "LOGNAME", "SHELL"}

// IsExcluded reports whether agents never inherit the variable.
func IsExcluded(name string) bool {
	return slices.ContainsFunc(excluded, func(pattern string) bool {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		return name == pattern || isPrefix && strings.HasPrefix(name, prefix)
	})
}

// ExcludedPatterns returns the names that no agent inherits. It exists for the manual's test.
func ExcludedPatterns() []string { return slices.Clone(excluded) }

// ValidName reports whether a shell and systemd accept name as the name of a variable.
func ValidName(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// Lookup returns the value in the last entry of a variable in a list of NAME=VALUE.
func Lookup(entries []string, name string) (value string, found bool) {
	for _, entry := range entries {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value, found = v, true
		}
	}
	return value, found
}

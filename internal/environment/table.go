// Package environment decides which variables an agent gets: what each place that they come from
// may give, in which order, and what belongs to others and is always left out. The client and the
// daemon decide by the same table.
package environment

import (
	"slices"
	"strings"
)

// foreign are variables that tell a program where it runs, or belong to one terminal, login
// session, service or conversation: in another one they lie. No agent inherits them, wherever they
// come from; what is set for an agent on purpose it gets all the same. A name that ends in * stands
// for all that begin so.
var foreign = []string{
	// of a terminal and what is in it: the agent gets a terminal of its own, and some agents change
	// how they notify by these
	"TERM", "TERMCAP", "COLORTERM", "COLUMNS", "LINES", "GPG_TTY", "TMUX*", "STY", "WINDOW", "WINDOWID", "ZELLIJ*", "HERDR_*",
	"TERM_PROGRAM*", "TERM_SESSION_ID", "TERM_FEATURES", "KITTY_*", "WEZTERM_*", "GHOSTTY_*", "ITERM_*", "VTE_VERSION", "WT_SESSION", "WT_PROFILE_ID",
	"ALACRITTY_*", "KONSOLE_*", "INSIDE_EMACS",
	// of a shell
	"PWD", "OLDPWD", "SHLVL", "_", "BASH_FUNC_*",
	// of a login session, which ends before the agent does; for SSH_AUTH_SOCK an agent has a name that
	// stays, see package sshagent
	"SSH_AUTH_SOCK", "SSH_AGENT_PID", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "XDG_SESSION_ID", "XDG_SEAT", "XDG_VTNR", "SUDO_*",
	// of another agent, or of the session that it is in
	"CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION*", "CLAUDE_CODE_SSE_PORT", "CLAUDE_CODE_CHILD_SESSION", "CLAUDE_PROJECT_DIR",
	"CLAUDE_ENV_FILE", "CODEX_THREAD*", "CODEX_SANDBOX*", "CODEX_CI", "GEMINI_CLI", "QWEN_CODE", "OPENCODE", "OPENCODE_PID", "OPENCODE_SESSION*",
	"CURSOR_AGENT", "CURSOR_TRACE_ID", "AI_AGENT", "CORRAL_*",
	// of a service, systemd.exec(5)
	"NOTIFY_SOCKET", "WATCHDOG_*", "LISTEN_*", "FDSTORE", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_*", "MANAGERPID", "MANAGERPIDFDID", "MAINPID",
	"MEMORY_PRESSURE_*", "CREDENTIALS_DIRECTORY", "STATE_DIRECTORY", "RUNTIME_DIRECTORY", "CACHE_DIRECTORY", "LOGS_DIRECTORY", "CONFIGURATION_DIRECTORY",
	"DBUS_STARTER_*", "SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS",
}

// managers are variables that the user manager knows better than a shell does, which may be that of
// another login, or of another user.
var managers = []string{"XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "HOME", "USER", "LOGNAME", "SHELL"}

// IsExcluded tells whether no agent inherits a variable of this name.
func IsExcluded(name string) bool { return matches(foreign, name) }

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		return name == pattern || isPrefix && strings.HasPrefix(name, prefix)
	})
}

// ExcludedPatterns are the names that no agent inherits, for the manual's test.
func ExcludedPatterns() []string { return slices.Clone(foreign) }

// ValidName tells whether a shell would take this as the name of a variable.
func ValidName(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// Lookup returns the value of a variable in a list of NAME=VALUE, the last one if there are
// several.
func Lookup(entries []string, name string) (value string, is bool) {
	for _, entry := range entries {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value, is = v, true
		}
	}
	return value, is
}

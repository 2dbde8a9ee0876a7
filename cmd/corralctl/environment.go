package main

import (
	"slices"
	"strings"
)

// droppedVariables are those of the caller's environment that an agent does not get. Everything else goes along: PATH with what the user's shell put
// into it, the agents' keys and settings, proxies, SSH_AUTH_SOCK, DISPLAY, LANG; the user manager has none of them when it was started at boot.
var droppedVariables = []string{
	// of the caller's terminal and multiplexer: the agent gets a terminal of its own, and some agents change how they notify by these
	"TERM", "TERMCAP", "COLORTERM", "COLUMNS", "LINES", "GPG_TTY", "TMUX*", "STY", "WINDOW", "WINDOWID", "ZELLIJ*", "HERDR_*",
	"TERM_PROGRAM*", "TERM_SESSION_ID", "TERM_FEATURES", "KITTY_*", "WEZTERM_*", "GHOSTTY_*", "ITERM_*", "VTE_VERSION", "WT_SESSION", "WT_PROFILE_ID",
	"ALACRITTY_*", "KONSOLE_*", "INSIDE_EMACS",
	// of the caller's shell
	"PWD", "OLDPWD", "SHLVL", "_", "BASH_FUNC_*",
	// of the caller's login session, which ends before the agent does
	"SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "XDG_SESSION_ID", "XDG_SEAT", "XDG_VTNR", "SUDO_*",
	// of an agent that is itself the caller
	"CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_SSE_PORT", "CODEX_THREAD*", "CORRAL_*",
	// of a service that is the caller, systemd.exec(5)
	"NOTIFY_SOCKET", "WATCHDOG_*", "LISTEN_*", "FDSTORE", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_*", "MANAGERPID", "MANAGERPIDFDID", "MAINPID",
	"MEMORY_PRESSURE_*", "CREDENTIALS_DIRECTORY", "STATE_DIRECTORY", "RUNTIME_DIRECTORY", "CACHE_DIRECTORY", "LOGS_DIRECTORY", "CONFIGURATION_DIRECTORY",
	"DBUS_STARTER_*", "SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS",
	// what the user manager knows better
	"XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "HOME", "USER", "LOGNAME", "SHELL",
}

// passedEnvironment returns the entries of the caller's environment that an agent gets. Names that are no identifiers and values that are no text cannot
// be sent and stay behind.
func passedEnvironment(environment []string) []string {
	passed := []string{}
	for _, entry := range environment {
		name, _, ok := strings.Cut(entry, "=")
		if ok && variableName(name) && sendable(entry) && !dropped(name) {
			passed = append(passed, entry)
		}
	}
	return passed
}

func dropped(name string) bool {
	return slices.ContainsFunc(droppedVariables, func(pattern string) bool {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		return name == pattern || isPrefix && strings.HasPrefix(name, prefix)
	})
}

// variableName tells whether a shell would take this as the name of a variable.
func variableName(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

package main

import (
	"context"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/sandbox"
)

// checkSandbox sets up a sandbox as corrald does, with bubblewrap. If no agent runs in one unless
// that is requested, Corral works without.
func (e *examination) checkSandbox(ctx context.Context) []finding {
	report := note
	if e.usesBubblewrap() {
		report = fault
	}
	profiles := strings.Join(e.configured.Sandboxes.Names(), ", ")
	if profiles == "" {
		return []finding{report(installRemedy, "no usable sandbox profile: run --sandbox requires one")}
	}
	path, err := e.environment.LookPath(sandbox.Program)
	if err != nil {
		return []finding{report("install the package bubblewrap", "bubblewrap is not installed: run --sandbox requires it")}
	}
	text, err := exec.CommandContext(ctx, path, "--unshare-user", "--unshare-pid", "--as-pid-1", "--unshare-ipc",
		"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--", "true").CombinedOutput()
	if err != nil {
		problem, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
		if problem == "" {
			problem = err.Error()
		}
		return []finding{report(sandboxRemedy(func(path string) string {
			text, _ := proc.ReadFile(path)
			return strings.TrimSpace(string(text))
		}), "no sandbox can be set up: %s", problem)}
	}
	if !scopesAbstractSockets() {
		return []finding{note("use Linux 6.12 or newer, or Network=none",
			"%s; profiles: %s; agents reach abstract sockets, such as that of X11", path, profiles)}
	}
	return []finding{ok("%s; profiles: %s", path, profiles)}
}

// usesBubblewrap reports whether the definition of an agent has a sandbox of bubblewrap.
func (e *examination) usesBubblewrap() bool {
	for _, agent := range e.agents {
		name := agent.Sandbox
		if name != "" && name != config.NoSandbox && len(e.configured.Sandboxes[name].Wrapper) == 0 {
			return true
		}
	}
	return false
}

// sandboxRemedy returns what to do if users cannot create user namespaces, according to the
// settings of the kernel that read returns.
func sandboxRemedy(read func(path string) string) string {
	for _, setting := range []struct{ name, not, remedy string }{
		{"kernel/apparmor_restrict_unprivileged_userns", "0",
			"install an AppArmor profile that permits user namespaces to bwrap (Ubuntu: apparmor-profiles)"},
		{"kernel/unprivileged_userns_clone", "1", "sudo sysctl kernel.unprivileged_userns_clone=1"},
		{"user/max_user_namespaces", "", "sudo sysctl user.max_user_namespaces=10000"},
	} {
		value := read("/proc/sys/" + setting.name)
		if setting.not != "" && value != "" && value != setting.not || setting.not == "" && value == "0" {
			return setting.remedy
		}
	}
	return "find out why with: bwrap --unshare-user --ro-bind / / true"
}

// scopesAbstractSockets reports whether the kernel can keep a process from connecting to abstract
// sockets: version 6 of Landlock.
func scopesAbstractSockets() bool {
	version, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return e == 0 && version >= 6
}

// sandboxChoices returns the sandbox profiles, and none.
func sandboxChoices() []choice {
	profiles, _ := config.LoadSandboxes(configDirs())
	choices := []choice{{config.NoSandbox, "no sandbox"}}
	for _, name := range profiles.Names() {
		choices = append(choices, choice{name, profiles[name].Description})
	}
	slices.SortFunc(choices, func(a, b choice) int { return strings.Compare(a.word, b.word) })
	return choices
}

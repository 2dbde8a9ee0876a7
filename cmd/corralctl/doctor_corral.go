package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corrald/corral/cmd/corralctl/wording"
	"github.com/corrald/corral/dbusapi"
	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/environment"
	"github.com/corrald/corral/internal/proc"
	"github.com/corrald/corral/internal/sshagent"
	"github.com/corrald/corral/internal/unitname"
	"github.com/corrald/corral/internal/version"
)

const installRemedy = "install the Corral package, or run make install-user in its sources"

// checkDaemon checks whether corrald is running or would be started on demand, and whether it has
// the version of corralctl.
func (e *examination) checkDaemon(ctx context.Context) []finding {
	if e.bus == nil {
		return []finding{fault("", "cannot be reached: there is no user bus")}
	}
	const unit = unitname.Daemon
	var enabled string // remains "" if the unit is not installed
	_ = e.systemd(ctx, "GetUnitFileState", []any{unit}, &enabled)
	running := e.hasOwner(ctx, dbusapi.BusName)
	corral, err := client.Connect(ctx)
	if err == nil {
		defer func() { _ = corral.Close() }()
	}
	var findings []finding
	var excluded *client.ExcludedError
	switch {
	case errors.As(err, &excluded):
		return []finding{fault("systemctl --user edit corrald, with an empty ConditionUser= in [Unit]", "%v", excluded)}
	case running && err != nil:
		findings = append(findings, fault("", "%v", err))
	case running:
		findings = append(checkRunningDaemon(ctx, corral), e.checkDirectories(ctx)...)
	case e.unitProperty(ctx, unit, "ActiveState") == "failed":
		findings = append(findings, fault("journalctl --user -u corrald -n 20", "failed and is not running"))
	case e.isActivatable(ctx, dbusapi.BusName):
		findings = append(findings, ok("not running; the first request starts it"))
	case enabled != "":
		findings = append(findings, fault("systemctl --user enable --now corrald", "not running"))
	default:
		return append(findings, fault(installRemedy, "unit %s is not installed", unit))
	}
	switch enabled {
	case "enabled", "enabled-runtime", "static", "linked":
	case "masked", "masked-runtime":
		findings = append(findings, fault("systemctl --user unmask corrald", "its unit is masked"))
	case "":
		findings = append(findings,
			note(installRemedy, "running, but its unit is not installed: nothing will start it again"))
	default:
		findings = append(findings, note("systemctl --user enable corrald",
			"not started at login until the first session, or corralctl enable, enables it"))
	}
	return findings
}

// checkRunningDaemon checks the version of the running corrald and lists the problems that it
// publishes, except those of single sessions.
func checkRunningDaemon(ctx context.Context, bus *client.Client) []finding {
	m, err := bus.Manager(ctx)
	findings := []finding{ok("version %s is running", m.Version)}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return []finding{fault("systemctl --user restart corrald", "does not answer")}
	case err != nil:
		return []finding{fault("systemctl --user status corrald", "does not answer: %v", err)}
	case m.Version != version.Version:
		findings[0] = note("systemctl --user restart corrald (agents keep running)",
			"version %s is running, and corralctl is version %s", m.Version, version.Version)
	}
	for _, p := range m.Problems {
		if p.Session == "" {
			findings = append(findings, note("", "%s", p.Text))
		}
	}
	return findings
}

// checkDirectories finds directories that corrald and corralctl disagree about, because a shell's
// start-up file sets a variable that corrald does not have.
func (e *examination) checkDirectories(ctx context.Context) []finding {
	var pid uint32
	err := e.call(ctx, bus.Name, bus.Path, bus.Name+".GetConnectionUnixProcessID", []any{dbusapi.BusName}, &pid)
	if err != nil {
		return nil // corrald has just exited
	}
	home, is := proc.Variable(int(pid), "HOME")
	if !is {
		return nil // corrald's environment cannot be read
	}
	var findings []finding
	for _, place := range []struct{ variable, usual, what string }{
		{"XDG_CONFIG_HOME", ".config", "configuration is"},
		{"XDG_STATE_HOME", ".local/state", "records are"},
	} {
		its, _ := proc.Variable(int(pid), place.variable)
		there := baseDirectory(its, filepath.Join(home, place.usual))
		here := baseDirectory(os.Getenv(place.variable), filepath.Join(os.Getenv("HOME"), place.usual))
		if there == here {
			continue
		}
		remedy := "export " + place.variable + "=" + there
		if os.Getenv(place.variable) != "" {
			remedy = "systemctl --user import-environment " + place.variable +
				" && systemctl --user restart corrald; permanently: environment.d(5)"
		}
		findings = append(findings, note(remedy, "its %s below %s, but corralctl looks below %s", place.what, there, here))
	}
	return findings
}

// baseDirectory returns the directory for a variable of the XDG Base Directory Specification, which
// ignores relative paths.
func baseDirectory(value, usual string) string {
	if filepath.IsAbs(value) {
		return filepath.Clean(value)
	}
	return usual
}

func checkShim(context.Context) []finding {
	self, err := ownPath()
	if err != nil {
		return []finding{fault("", "cannot find the path of this program: %v", err)}
	}
	shim, err := config.FindShim(filepath.Dir(self))
	if err != nil {
		return []finding{fault(installRemedy, "%v", err)}
	}
	return []finding{ok("%s", shim)}
}

// checkConfiguration reads the files that corrald reads. A mistake only affects the setting of its
// own line.
func (e *examination) checkConfiguration(context.Context) []finding {
	dirs := configDirs()
	configured, warnings, err := config.Load(dirs)
	e.configured = configured
	var more []config.Warning
	e.agents, more = config.LoadAgents(dirs)
	var findings []finding
	if err != nil {
		findings = append(findings, fault("", "%v", err))
	}
	for _, w := range append(warnings, more...) {
		findings = append(findings, note("", "%s", w))
	}
	if len(findings) == 0 {
		defined := 0
		for name := range e.agents {
			if _, _, isInstance := config.CutInstance(name); !isInstance {
				defined++
			}
		}
		findings = append(findings, ok("valid; %s", wording.Plural(defined, "agent")))
	}
	return findings
}

// checkHooks lists the hooks, and files in their directories that are not valid hooks.
func checkHooks(context.Context) []finding {
	hooks, warnings := config.Hooks(configDirs())
	var findings []finding
	for _, w := range warnings {
		findings = append(findings, note("", "%s", w))
	}
	var names []string
	for _, h := range hooks {
		names = append(names, h.Name)
	}
	return withUsable(findings, names)
}

// checkState checks whether corrald can write its records. The limits are where the next log, or
// the next records, would no longer fit.
func checkState(context.Context) []finding {
	const little, tooLittle = 1 << 30, 64 << 20 // bytes
	dir := stateDirectory()
	there := dir
	for !isDirectory(there) && there != "/" {
		there = filepath.Dir(there)
	}
	if err := unix.Access(there, unix.W_OK|unix.X_OK); err != nil {
		return []finding{fault("change its owner or mode (chown, chmod)", "%s is not writable: %v", there, err)}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(there, &fs); err != nil {
		return []finding{fault("", "%s: %v", there, err)}
	}
	free := fs.Bavail * uint64(fs.Bsize)
	remedy := "free disk space, or set a smaller LogMaxSize= in corral.conf"
	switch {
	case fs.Files > 0 && fs.Ffree == 0:
		return []finding{fault(remedy, "%s: its file system has no inodes left", dir)}
	case free < tooLittle:
		return []finding{fault(remedy, "%s: only %s free", dir, wording.Size(free))}
	case free < little:
		return []finding{note(remedy, "%s: only %s free", dir, wording.Size(free))}
	}
	return []finding{ok("%s, %s free", dir, wording.Size(free))}
}

// checkSSHAgent checks the symbolic link through which agents reach the user's ssh-agent.
func checkSSHAgent(context.Context) []finding {
	dir := filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "corral")
	const remedy = "use corralctl attach or run in a login that has one (ssh -A, or eval $(ssh-agent))"
	target, err := sshagent.Target(dir)
	switch {
	case err != nil:
		return []finding{note("remove it: rm "+filepath.Join(dir, sshagent.LinkName), "%v", err)}
	case target == "":
		return []finding{ok("no ssh-agent seen yet; the first one found will be used")}
	case !sshagent.IsLive(filepath.Join(dir, sshagent.LinkName)):
		return []finding{note(remedy, "the ssh-agent of an earlier login is gone, and agents have none: %s", target)}
	}
	return []finding{ok("agents use %s", target)}
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// checkAccounts checks the environment files of accounts. A file that cannot be used prevents the
// start of the account's sessions only.
func (e *examination) checkAccounts(context.Context) []finding {
	var findings []finding
	var usable []string
	for _, file := range e.agents.AccountFiles(localSpecifiers()) {
		_, err := environment.ReadFiles([]environment.SourceFile{{Path: file.Path, Private: true}})
		switch {
		case !config.ValidName(file.Account):
			findings = append(findings, note("rename it", "%s: invalid name of an account %q, ignored", file.Path, file.Account))
		case err != nil:
			findings = append(findings, note("", "%v", err))
		default:
			usable = append(usable, file.Account)
		}
	}
	return withUsable(findings, usable)
}

// withUsable adds to the findings about things that have a name which of them can be used, or that
// there are none.
func withUsable(findings []finding, names []string) []finding {
	switch {
	case len(names) > 0:
		return append(findings, ok("%s", strings.Join(names, " ")))
	case len(findings) == 0:
		return append(findings, ok("none"))
	}
	return findings
}

// checkAgents looks for the agents' programs where run does: in the caller's PATH, which is passed
// to the session.
func (e *examination) checkAgents(context.Context) []finding {
	var found, missing []string
	for _, name := range slices.Sorted(maps.Keys(e.agents)) {
		command := e.agents[name].Command
		if _, _, isInstance := config.CutInstance(name); isInstance || len(command) == 0 || name == "shell" {
			continue
		}
		if _, err := exec.LookPath(command[0]); err == nil {
			found = append(found, name)
		} else {
			missing = append(missing, name)
		}
	}
	text := strings.Join(found, " ")
	switch {
	case len(found)+len(missing) == 0:
		return []finding{note("corralctl edit --full NAME, or run any command: corralctl run -- CMD", "no agent is defined")}
	case len(found) == 0:
		return []finding{note("install one, or run any command: corralctl run -- CMD", "none found in PATH; known agents: %s",
			strings.Join(missing, " "))}
	case len(missing) > 0:
		text += "; not installed: " + strings.Join(missing, " ")
	}
	return []finding{ok("%s", text)}
}

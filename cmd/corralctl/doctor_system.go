package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fsnotify/fsnotify"
	"github.com/godbus/dbus/v5"

	"github.com/corrald/corral/dbusapi/client"
	"github.com/corrald/corral/internal/bus"
	"github.com/corrald/corral/internal/config"
	"github.com/corrald/corral/internal/desktop"
	"github.com/corrald/corral/internal/logind"
	"github.com/corrald/corral/internal/proc"
)

// The oldest versions that Corral supports.
const (
	minSystemd = 247
	minTmux    = 3.3
)

// examination holds what the checks of doctor examine and share: the user's bus, the user manager's
// environment and the configuration.
type examination struct {
	bus         *dbus.Conn // nil if there is none
	busErr      error
	environment desktop.Environment // of the user manager
	configured  config.Config
	agents      config.Agents
}

func newExamination(ctx context.Context) *examination {
	e := &examination{}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	address, err := client.BusAddress()
	if err == nil {
		e.bus, err = bus.Dial(ctx, address)
	}
	e.busErr = err
	if err == nil {
		// checkSystemd reports problems of the user manager
		e.environment, _ = desktop.ManagerEnvironment(ctx, e.bus)
	}
	return e
}

func (e *examination) close() {
	if e.bus != nil {
		_ = e.bus.Close()
	}
}

func (e *examination) call(ctx context.Context, destination string, path dbus.ObjectPath, method string, args []any,
	results ...any) error {
	return e.bus.Object(destination, path).CallWithContext(ctx, method, dbus.FlagNoAutoStart, args...).Store(results...)
}

func (e *examination) systemd(ctx context.Context, method string, args []any, results ...any) error {
	return e.call(ctx, bus.SystemdName, bus.SystemdPath, bus.SystemdManager+"."+method, args, results...)
}

// unitProperty returns a property of a loaded unit as text, "" if there is none.
func (e *examination) unitProperty(ctx context.Context, unit, name string) string {
	var path dbus.ObjectPath
	var value dbus.Variant
	if e.systemd(ctx, "GetUnit", []any{unit}, &path) == nil {
		_ = e.call(ctx, bus.SystemdName, path, bus.Properties+".Get", []any{bus.SystemdUnit, name}, &value)
	}
	text, _ := value.Value().(string)
	return text
}

func (e *examination) managerProperty(ctx context.Context, name string) (string, error) {
	var value dbus.Variant
	err := e.call(ctx, bus.SystemdName, bus.SystemdPath, bus.Properties+".Get", []any{bus.SystemdManager, name}, &value)
	text, _ := value.Value().(string)
	return text, err
}

// hasOwner returns whether a name on the bus has an owner, isActivatable whether the bus can start
// one.
func (e *examination) hasOwner(ctx context.Context, name string) bool {
	var has bool
	err := e.call(ctx, bus.Name, bus.Path, bus.Name+".NameHasOwner", []any{name}, &has)
	return err == nil && has
}

func (e *examination) isActivatable(ctx context.Context, name string) bool {
	var names []string
	err := e.call(ctx, bus.Name, bus.Path, bus.Name+".ListActivatableNames", nil, &names)
	return err == nil && slices.Contains(names, name)
}

func (e *examination) checkBus(context.Context) []finding {
	if e.bus == nil {
		const remedy = "log in through a login manager or ssh, not su or sudo; " +
			"if there is no user bus at all, install dbus-user-session"
		return []finding{fault(remedy, "%v", e.busErr)}
	}
	return []finding{ok("answers")}
}

var leadingNumber = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)

func (e *examination) checkSystemd(ctx context.Context) []finding {
	if e.bus == nil {
		return []finding{fault("", "the user manager cannot be reached without a bus")}
	}
	text, err := e.managerProperty(ctx, "Version")
	if err != nil {
		return []finding{fault("loginctl enable-linger, and log in again", "no user manager answers on the bus: %v", err)}
	}
	if n, err := strconv.ParseFloat(leadingNumber.FindString(text), 64); err == nil && n < minSystemd {
		return []finding{fault("upgrade the system", "version %s; %d or newer is required", text, minSystemd)}
	}
	return []finding{ok("version %s, with a user manager", text)}
}

func checkCgroup(context.Context) []finding {
	root, err := proc.CgroupRoot()
	if err != nil {
		return []finding{fault("boot with systemd.unified_cgroup_hierarchy=1 on the kernel's command line",
			"the unified hierarchy is not mounted: %v", err)}
	}
	if root != "/sys/fs/cgroup" {
		return []finding{note("boot with systemd.unified_cgroup_hierarchy=1 on the kernel's command line",
			"hybrid hierarchies (%s): limits have no effect", root)}
	}
	return []finding{ok("%s", root)}
}

// checkControllers checks which resource limits the user's units can have.
func (e *examination) checkControllers(ctx context.Context) []finding {
	root, err := proc.CgroupRoot()
	if e.bus == nil || err != nil {
		return nil
	}
	group, err := e.managerProperty(ctx, "ControlGroup")
	if err != nil {
		return nil // checkSystemd has reported it
	}
	delegated, err := readWords(filepath.Join(root, group, "cgroup.controllers"))
	if err != nil {
		return []finding{note("", "%v", err)}
	}
	machine, _ := readWords(filepath.Join(root, "cgroup.controllers"))
	var absent, withheld []string
	for _, controller := range []string{"memory", "pids", "cpu"} {
		switch {
		case slices.Contains(delegated, controller):
		case slices.Contains(machine, controller):
			withheld = append(withheld, controller)
		default:
			absent = append(absent, controller)
		}
	}
	var findings []finding
	if len(withheld) > 0 {
		findings = append(findings,
			note("sudo systemctl edit user@.service: set Delegate=cpu cpuset io memory pids in [Service]; then log in again",
				"%s not delegated to users; those limits have no effect", controllersSubject(withheld)))
	}
	if len(absent) > 0 {
		findings = append(findings,
			note("boot with cgroup_enable=memory and without cgroup_disable=; in a container, ask its administrator",
				"%s unavailable; those limits have no effect", controllersSubject(absent)))
	}
	if len(findings) == 0 {
		findings = append(findings, ok("%s", strings.Join(delegated, " ")))
	}
	return findings
}

// controllersSubject formats the names of cgroup controllers as the subject of a sentence: "the
// memory, pids and cpu controllers are".
func controllersSubject(names []string) string {
	if last := len(names) - 1; last > 0 {
		return "the " + strings.Join(names[:last], ", ") + " and " + names[last] + " controllers are"
	}
	return "the " + names[0] + " controller is"
}

func readWords(path string) ([]string, error) {
	text, err := proc.ReadFile(path)
	return strings.Fields(string(text)), err
}

// checkTmux checks the version of the tmux that corrald runs: the one in the user manager's PATH.
func (e *examination) checkTmux(ctx context.Context) []finding {
	const remedy = "install tmux 3.3 or newer"
	path, err := e.environment.LookPath("tmux")
	if err != nil {
		if elsewhere, err := exec.LookPath("tmux"); err == nil {
			return []finding{fault("systemctl --user import-environment PATH", "%s is not in the user manager's PATH",
				elsewhere)}
		}
		return []finding{fault(remedy, "not installed")}
	}
	out, err := exec.CommandContext(ctx, path, "-V").Output()
	text := strings.TrimSpace(strings.TrimPrefix(string(out), "tmux "))
	if err != nil {
		return []finding{fault(remedy, "%s -V: %v", path, err)}
	}
	if n, err := strconv.ParseFloat(leadingNumber.FindString(text), 64); err == nil && n < minTmux {
		return []finding{fault(remedy, "version %s; 3.3 or newer is required", text)}
	}
	return []finding{ok("version %s", text)}
}

// checkGit looks for git, which makes worktrees, where corrald does: in the user manager's PATH.
func (e *examination) checkGit(context.Context) []finding {
	path, err := e.environment.LookPath("git")
	if err == nil {
		return []finding{ok("%s", path)}
	}
	if elsewhere, err := exec.LookPath("git"); err == nil {
		return []finding{note("systemctl --user import-environment PATH && systemctl --user restart corrald",
			"%s is not in the user manager's PATH: run --worktree has no git", elsewhere)}
	}
	return []finding{note("install git 2.31 or newer", "not installed: run --worktree requires it")}
}

// checkInotify allocates what corrald needs and checks that the limit allows many sessions.
func checkInotify(context.Context) []finding {
	const few = 8192 // each session needs three or four watches, other programs need some too
	const remedy = "echo fs.inotify.max_user_%s=%d | sudo tee /etc/sysctl.d/60-inotify.conf && sudo sysctl --system"
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return []finding{fault(fmt.Sprintf(remedy, "instances", 1024), "no inotify instance is left for this user: %v", err)}
	}
	defer func() { _ = w.Close() }()
	if err := w.Add("/"); err != nil {
		return []finding{fault(fmt.Sprintf(remedy, "watches", 524288), "no inotify watch is left for this user: %v", err)}
	}
	text, err := proc.ReadFile("/proc/sys/fs/inotify/max_user_watches")
	limit, parseErr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || parseErr != nil {
		return []finding{ok("watches are available")}
	}
	if limit < few {
		return []finding{note(fmt.Sprintf(remedy, "watches", 524288),
			"%d watches for all programs of this user; each session needs three or four", limit)}
	}
	return []finding{ok("%d watches for each user", limit)}
}

func checkLinger(context.Context) []finding {
	if !logind.IsLingering() {
		return []finding{note("corralctl linger on", "off: sessions end when you log out")}
	}
	return []finding{ok("on: sessions keep running when you log out")}
}

// checkLock takes a delay lock of the login manager and releases it.
func checkLock(ctx context.Context) []finding {
	const without = "at a shutdown, agents have only the time that systemd allows"
	manager, err := logind.Connect(ctx, logind.Address())
	if err != nil {
		return []finding{note("", "no login manager is running: %s", without)}
	}
	defer func() { _ = manager.Close() }()
	lock, err := manager.Inhibit(ctx, "corralctl doctor", "Check whether it is granted")
	if err != nil {
		return []finding{note("install polkit (polkitd)", "the login manager grants none: %s", without)}
	}
	lock.Release()
	return []finding{ok("granted: agents have time to save before a shutdown")}
}

// checkNotifications checks whether notifications would be shown. It never starts a server: one
// without a display would block its callers.
func (e *examination) checkNotifications(ctx context.Context) []finding {
	const name = "org.freedesktop.Notifications"
	switch {
	case e.bus == nil:
		return nil
	case e.hasOwner(ctx, name):
		return []finding{ok("a notification server is on the bus")}
	case !e.environment.HasDisplay():
		return []finding{ok("none, without a graphical session")}
	case e.isActivatable(ctx, name):
		return []finding{ok("the notification server is started on demand")}
	}
	return []finding{note("install one: the desktop's own, or dunst or mako", "no notification server is on the bus")}
}

// checkTerminal looks for the terminal emulator that corralctl open and notifications use.
func (e *examination) checkTerminal(context.Context) []finding {
	argv, err := e.environment.TerminalCommand(e.configured.Terminal, nil)
	var none *desktop.NoTerminalError
	switch {
	case errors.Is(err, desktop.ErrNoDisplay) && os.Getenv("DISPLAY")+os.Getenv("WAYLAND_DISPLAY") != "":
		return []finding{note("systemctl --user import-environment WAYLAND_DISPLAY DISPLAY XAUTHORITY",
			"the user manager lacks the environment of this graphical session")}
	case errors.Is(err, desktop.ErrNoDisplay):
		return []finding{ok("none, without a graphical session")}
	case errors.As(err, &none):
		return []finding{note("install one, or name it with Terminal= in corral.conf", "no terminal emulator was found")}
	case err != nil:
		return []finding{note("corral.conf(5), Terminal=", "%v", err)}
	}
	return []finding{ok("%s", argv[0])}
}

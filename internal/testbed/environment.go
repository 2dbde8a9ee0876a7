package testbed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func (p *plan) homeDir() string    { return filepath.Join(p.Dir, "home") }
func (p *plan) runtimeDir() string { return filepath.Join(p.Dir, "run") }
func (p *plan) unitDir() string    { return filepath.Join(p.Dir, "units") }
func (p *plan) programDir() string { return filepath.Join(p.Dir, "bin") }

// privateDirs returns the directories that belong to the unprivileged user.
func (p *plan) privateDirs() []string {
	return []string{
		p.homeDir(), p.runtimeDir(), filepath.Join(p.Dir, "tmp"), filepath.Join(p.Dir, "out"),
		filepath.Join(p.Dir, "out/gocoverdir"),
	}
}

func (p *plan) makeDirectories() error {
	for _, dir := range append(p.privateDirs(), p.unitDir(), p.programDir(),
		filepath.Join(p.unitDir(), "default.target.d")) {
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755)); err != nil { // whatever the umask
			return fmt.Errorf("cannot prepare the test bed: %w", err)
		}
	}
	for _, dir := range p.privateDirs() {
		if err := errors.Join(os.Chmod(dir, 0o700), os.Chown(dir, p.UID, -1)); err != nil {
			return fmt.Errorf("cannot prepare the test bed: %w", err)
		}
	}
	return p.writeUnits()
}

// writeUnits configures the manager to start the bus at once, by socket activation as on a desktop.
// Units are written only if the distribution has none (Debian: package dbus-user-session); names
// and behaviour are the same.
func (p *plan) writeUnits() error {
	units := map[string]string{
		"default.target.d/bus.conf": "[Unit]\nWants=dbus.socket dbus.service\nAfter=dbus.socket dbus.service\n",
	}
	if _, err := os.Stat("/usr/lib/systemd/user/dbus.socket"); err != nil {
		units["dbus.socket"] = "[Unit]\nDescription=D-Bus User Message Bus Socket\n[Socket]\nListenStream=%t/bus\n"
		units["dbus.service"] = "[Unit]\nDescription=D-Bus User Message Bus\nRequires=dbus.socket\n" +
			"[Service]\nType=notify\nNotifyAccess=main\n" +
			"ExecStart=dbus-daemon --session --address=systemd: --nofork --nopidfile --systemd-activation --syslog-only\n"
	}
	for name, text := range units {
		if err := os.WriteFile(filepath.Join(p.unitDir(), name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("cannot prepare the test bed: %w", err)
		}
	}
	return nil
}

// managerEnvironment returns the environment that logind and pam_systemd would give to a user
// manager, with all directories below the claimed one.
func (p *plan) managerEnvironment() []string {
	home, run := p.homeDir(), p.runtimeDir()
	return append(p.identity(),
		"PATH="+os.Getenv("PATH"), "LANG=C.UTF-8", "HOME="+home, "TMPDIR="+p.Dir+"/tmp", "TMUX_TMPDIR="+p.Dir+"/tmp",
		"XDG_RUNTIME_DIR="+run, "XDG_CONFIG_HOME="+home+"/.config", "XDG_STATE_HOME="+home+"/.local/state",
		"XDG_DATA_HOME="+home+"/.local/share", "XDG_CACHE_HOME="+home+"/.cache",
		"DBUS_SESSION_BUS_ADDRESS=unix:path="+run+"/bus",
		"GORACE=atexit_sleep_ms=0", // programs with the race detector that units run exit at once
		// No socket, until a test starts its own logind there.
		"DBUS_SYSTEM_BUS_ADDRESS=unix:path="+run+"/system_bus_socket",
		"SYSTEMD_UNIT_PATH="+strings.Join(p.unitPath(), ":"))
}

// identity returns the variables that name the user. For root, mountPrivately has added that user
// to /etc/passwd.
func (p *plan) identity() []string {
	name := os.Getenv("USER")
	if p.UID != os.Getuid() || name == "" {
		name = userName
	}
	return []string{"USER=" + name, "LOGNAME=" + name, "SHELL=" + userShell}
}

const (
	userName  = "tester"
	userShell = "/bin/bash"
)

// unitPath is the unit search path of systemd.unit(5) for a user manager, without /etc and /run,
// which would add units that the machine's administrator has enabled.
func (p *plan) unitPath() []string {
	config, run := p.homeDir()+"/.config/systemd/", p.runtimeDir()+"/systemd/"
	return []string{
		config + "user.control", run + "user.control", run + "transient", run + "generator.early", p.unitDir(),
		config + "user", run + "user", run + "generator", p.homeDir() + "/.local/share/systemd/user",
		"/usr/local/lib/systemd/user", "/usr/lib/systemd/user", run + "generator.late",
	}
}

// notInherited are name prefixes of variables that would connect the command with the outside, or
// that belong to the program that started the tests.
var notInherited = []string{
	"XDG_", "DBUS_", "SYSTEMD_", "NOTIFY_SOCKET=", "WATCHDOG_", "LISTEN_", "INVOCATION_ID=", "JOURNAL_STREAM=",
	"MANAGERPID=", "MEMORY_PRESSURE_", "STATE_DIRECTORY=", "RUNTIME_DIRECTORY=", "TMUX", "STY=", "DISPLAY=",
	"WAYLAND_DISPLAY=", "SSH_", "SUDO_", "GNOME_", "KDE_", "MAIL=", planVariable + "=",
}

// commandEnvironment returns the caller's environment, overridden by the manager's.
func (p *plan) commandEnvironment() []string {
	manager := p.managerEnvironment()
	environment := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return slices.ContainsFunc(notInherited, func(start string) bool { return strings.HasPrefix(entry, start) }) ||
			slices.ContainsFunc(manager, func(set string) bool {
				name, _, _ := strings.Cut(set, "=")
				return strings.HasPrefix(entry, name+"=")
			})
	})
	return append(environment, manager...)
}

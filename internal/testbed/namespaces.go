package testbed

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mountPrivately makes the keeper's mount namespace what a user manager expects: the processes of the new pid namespace in /proc, the claim's cgroup as
// the root of a cgroup2 hierarchy that belongs to the user, a /run/systemd that looks booted (sd_booted(3)) and reaches nothing outside.
func (p *plan) mountPrivately() error {
	for _, step := range []func() error{p.mountProgram, mountProc, p.mountCgroup, mountRun, p.mountPasswd} {
		if err := step(); err != nil {
			return fmt.Errorf("cannot prepare the namespaces: %w", err)
		}
	}
	return nil
}

// program is the path under which the unprivileged user can run this program: go test keeps it in a directory that only its owner may enter.
func (p *plan) program() string {
	self, err := os.Executable()
	if err != nil || p.UID == os.Geteuid() {
		return self
	}
	return filepath.Join(p.programDir(), filepath.Base(self))
}

func (p *plan) mountProgram() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	target := p.program()
	if err := os.WriteFile(target, nil, 0o755); err != nil {
		return err
	}
	return bindMount(self, target)
}

func mountProc() error {
	return mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// mountCgroup hands the cgroup to the user: the directory and the files that cgroup-v2's "Model of Delegation" names, no others.
func (p *plan) mountCgroup() error {
	const dir = "/sys/fs/cgroup"
	if err := mount("tmpfs", dir, "tmpfs", 0, ""); err != nil { // the kernel refuses to mount a file system twice, right upon itself
		return err
	}
	if err := mount("cgroup2", dir, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	for _, name := range []string{"", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"} {
		if err := os.Chown(filepath.Join(dir, name), p.UID, p.UID); err != nil {
			return err
		}
	}
	return nil
}

// mountRun hides what the machine's own systemd, journal and logind have in /run/systemd, except where names are resolved through it.
func mountRun() error {
	dir, resolve := "/run/systemd", -1
	if _, err := os.Stat(dir); err != nil {
		dir = "/run" // so that no directory is left behind on the machine
	} else if fd, err := unix.Open("/run/systemd/resolve", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		resolve = fd
	}
	if err := mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return err
	}
	if err := os.MkdirAll("/run/systemd/system", 0o755); err != nil || resolve < 0 {
		return err
	}
	defer func() { _ = unix.Close(resolve) }()
	if err := os.Mkdir("/run/systemd/resolve", 0o755); err != nil {
		return err
	}
	return bindMount(fmt.Sprintf("/proc/self/fd/%d", resolve), "/run/systemd/resolve")
}

// mountPasswd gives the user id a name and a home, for tmux, shells and whoever else looks there.
func (p *plan) mountPasswd() error {
	entries := map[string]string{
		"passwd": fmt.Sprintf("%s:x:%d:%d::%s:%s\n", userName, p.UID, p.UID, p.homeDir(), userShell),
		"group":  fmt.Sprintf("%s:x:%d:\n", userName, p.UID),
	}
	for name, entry := range entries {
		content, err := os.ReadFile(filepath.Join("/etc", name))
		if err != nil {
			return err
		}
		private := filepath.Join(p.Dir, name)
		if err := os.WriteFile(private, append([]byte(entry), content...), 0o644); err != nil {
			return err
		}
		if err := os.Chmod(private, 0o644); err != nil {
			return err
		}
		if err := bindMount(private, filepath.Join("/etc", name)); err != nil {
			return err
		}
	}
	return nil
}

func bindMount(source, target string) error {
	return mount(source, target, "", unix.MS_BIND, "")
}

func mount(source, target, kind string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
	return nil
}

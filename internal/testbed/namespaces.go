package testbed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mountPrivately prepares the keeper's mount namespace for a user manager: /proc shows the new pid
// namespace, the claim's cgroup is the root of a cgroup2 hierarchy owned by the user, and a private
// /run/systemd makes the system look booted (sd_booted(3)) without access to the machine's
// services.
func (p *plan) mountPrivately() error {
	for _, step := range []func() error{p.mountProgram, mountProc, p.mountCgroup, mountRun, p.mountPasswd, mountPassage} {
		if err := step(); err != nil {
			return fmt.Errorf("cannot prepare the namespaces: %w", err)
		}
	}
	return nil
}

// program returns a path of this program that the unprivileged user can execute: go test puts the
// binary into a directory that only its owner may enter.
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
	if info, err := os.Stat(self); err != nil || p.UID != os.Geteuid() && info.Mode().Perm()&0o005 != 0o005 {
		return errors.Join(err,
			fmt.Errorf("the user that tests run as may not execute %q: clone and build with umask 022", self))
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

// mountCgroup delegates the cgroup to the user: it changes the owner of the directory and of the
// files that cgroup-v2 lists under "Model of Delegation", and of no others.
func (p *plan) mountCgroup() error {
	const dir = "/sys/fs/cgroup"
	// The kernel refuses to mount a file system on itself.
	if err := mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
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

// mountRun hides the files of the machine's systemd, journald and logind in /run/systemd, except
// for those of name resolution.
func mountRun() error {
	dir, resolve := "/run/systemd", -1
	if _, err := os.Stat(dir); err != nil {
		dir = "/run" // so that no directory has to be created on the machine
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

// mountPasswd adds a name and a home directory for the user id, which tmux and shells look up.
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

// mountPassage makes the working directory accessible to the user if it is below directories that
// only root may enter, such as root's home. Directories above the source tree then show only the
// entry on the path; directories of the source tree keep all their entries.
func mountPassage() error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	at, inTree := "/", false
	for next := range strings.SplitSeq(strings.TrimPrefix(dir, "/")+"/", "/") {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil || next == "" {
			inTree = true
		}
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o001 == 0 {
			if err := mountOpen(at, func(name string) bool { return inTree || name == next }); err != nil {
				return fmt.Errorf("cannot let the tests' user into %q: %w", at, err)
			}
		}
		at = filepath.Join(at, next)
	}
	return os.Chdir(dir)
}

// mountOpen replaces a directory by one that everybody may enter, with the wanted entries.
func mountOpen(dir string, wanted func(name string) bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return err
	}
	for _, entry := range entries {
		if !wanted(entry.Name()) {
			continue
		}
		if err := showEntry(fmt.Sprintf("/proc/self/fd/%d/%s", fd, entry.Name()), filepath.Join(dir, entry.Name()),
			entry.Type()); err != nil {
			return err
		}
	}
	return nil
}

// showEntry makes the file at one path appear at another. Sockets, pipes and devices are left out.
func showEntry(source, target string, kind fs.FileMode) error {
	switch {
	case kind&fs.ModeSymlink != 0:
		to, err := os.Readlink(source)
		if err != nil {
			return err
		}
		return os.Symlink(to, target)
	case kind.IsDir():
		if err := os.Mkdir(target, 0o755); err != nil {
			return err
		}
	case kind.IsRegular():
		if err := os.WriteFile(target, nil, 0o644); err != nil {
			return err
		}
	default:
		return nil
	}
	return mount(source, target, "", unix.MS_BIND|unix.MS_REC, "")
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

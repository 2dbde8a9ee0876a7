package guest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/corrald/corral/internal/testbed/debian"
)

const (
	// suite is the Debian suite that runs in the guest.
	suite = "bookworm"
	// kernelSuite is the Debian suite of the guest's kernel. User-mode-linux before 6.13 panics at its
	// first process on processors with a large XSAVE state (those with AMX); bookworm has 6.1 and
	// trixie 6.12. Mirrors keep only the latest kernel of sid (tested with 7.2um1); it is verified
	// with Debian's archive key and stays in the cache.
	kernelSuite = "sid"
)

// unitFiles are the units of the guest: they start what a user's session needs, and then
// /run/guest/main, which is in the archive of each run on the second disk. The third disk takes the
// results.
var unitFiles = map[string]string{
	"guest.target": `[Unit]
Description=A guest of the test bed
Requires=sysinit.target
Wants=dbus.socket dbus.service systemd-logind.service systemd-user-sessions.service guest.service
`,
	"guest.service": `[Unit]
Description=What the guest is there for
After=sysinit.target dbus.service systemd-logind.service systemd-user-sessions.service
[Service]
Type=exec
Delegate=yes
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
ExecStart=/bin/sh -c 'tar -xf /dev/ubdb -C / && exec /run/guest/main'
`,
}

// customizeScript runs in the new system. It creates the lingering user, and marks the work of
// systemd's first boot as done, which saves seconds in a slow guest.
const customizeScript = `
useradd --create-home --shell /bin/bash --uid 1000 ` + user + `
mkdir -p /var/lib/systemd/linger
touch /var/lib/systemd/linger/` + user + ` /etc/.updated /var/.updated
systemd-machine-id-setup >/dev/null 2>&1
`

// diskName and kernelName return the names in the cache.
func diskName() string {
	key := sha256.Sum256(fmt.Append(nil, unitFiles, customizeScript))
	return fmt.Sprintf("guest-%s-%x.ext4", suite, key[:4])
}

func kernelName() string { return "guest-kernel-" + kernelSuite }

// IsBuilt reports whether the cache contains everything that Build creates.
func IsBuilt() bool { return debian.Has(diskName()) && debian.Has(kernelName()) }

// Build creates the kernel and the disk for guests, which takes a minute or more and needs root and
// network access. Run does this, too; call Build first to see its progress, which `go test` hides.
func Build() error {
	_, err := kernel()
	if err != nil {
		return err
	}
	_, err = disk()
	return err
}

// kernel returns the path of the guest's kernel, an ordinary program. Its C library and loader may
// be newer than this machine's, so they are copied with it. Their paths are patched into the
// program, because it executes itself again through /proc/self/exe, which would be the loader if
// the loader had started it.
func kernel() (string, error) {
	dir, err := debian.Cached(kernelName(), func(path string) error {
		if err := makeKernel(path, filepath.Join(debian.Cache(), kernelName())); err != nil {
			return fmt.Errorf("cannot make the guest's kernel: %w", err)
		}
		return nil
	})
	return filepath.Join(dir, "linux.uml"), err
}

// makeKernel creates the kernel's directory at path for use at the path final.
func makeKernel(path, final string) (err error) {
	if _, err := exec.LookPath("patchelf"); err != nil {
		return errors.New("patchelf is not installed: apt-get install patchelf")
	}
	root := path + ".root"
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	if err := errors.Join(os.RemoveAll(root), debian.Bootstrap(kernelSuite, root, []string{"user-mode-linux"}),
		os.Mkdir(path, 0o755)); err != nil {
		return err
	}
	const loader = "ld-linux-x86-64.so.2" // user-mode-linux exists for x86 only
	program := filepath.Join(path, "linux.uml")
	return errors.Join(
		run("cp", "--dereference", filepath.Join(root, "usr/bin/linux.uml"), filepath.Join(root, "usr/lib64", loader),
			filepath.Join(root, "usr/lib/x86_64-linux-gnu/libc.so.6"), path),
		run("patchelf", "--set-interpreter", filepath.Join(final, loader), program),
		run("patchelf", "--set-rpath", final, program),
	)
}

// disk returns the path of the guest's first disk, an ext4 file system with a Debian system. Root
// creates it once; nothing writes to it later.
func disk() (string, error) {
	return debian.Cached(diskName(), func(path string) error {
		tree, err := debian.Tree(suite)
		if err != nil {
			return err
		}
		if err := makeDisk(tree, path); err != nil {
			return fmt.Errorf("cannot make the guest's disk: %w", err)
		}
		return nil
	})
}

func makeDisk(tree, path string) (err error) {
	root := path + ".root"
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	if err := errors.Join(os.RemoveAll(root), run("cp", "--archive", "--reflink=auto", tree, root)); err != nil {
		return err
	}
	for name, text := range unitFiles {
		if err := os.WriteFile(filepath.Join(root, "etc/systemd/system", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := run("chroot", root, "sh", "-ec", customizeScript); err != nil {
		return err
	}
	debian.Progress("writing the disk")
	return run("mkfs.ext4", "-q", "-O", "^has_journal", "-d", root, path, "2G")
}

func run(name string, args ...string) error {
	output, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, strings.TrimSpace(string(output)))
	}
	return nil
}

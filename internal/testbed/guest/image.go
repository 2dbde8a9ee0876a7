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
	// suite is the Debian that runs in the guest.
	suite = "bookworm"
	// kernelSuite is the Debian that the guest's kernel is from. User-mode-linux before 6.13 panics at
	// its first process on processors whose XSAVE state is large, those with AMX; bookworm's is 6.1
	// and trixie's 6.12. Of sid, mirrors keep only the present version (7.2um1 was tried): it is
	// verified by Debian's archive key and stays in the cache.
	kernelSuite = "sid"
)

// unitFiles boot the guest into what a user's session needs, and then into /run/guest/main, which
// comes with the files of each run. The third disk takes the results.
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

// customize runs in the new system. Its user lingers; what systemd does once after an installation
// is taken as done, which saves a slow guest seconds.
const customize = `
useradd --create-home --shell /bin/bash --uid 1000 ` + user + `
mkdir -p /var/lib/systemd/linger
touch /var/lib/systemd/linger/` + user + ` /etc/.updated /var/.updated
systemd-machine-id-setup >/dev/null 2>&1
`

// diskName and kernelName are the names in the cache.
func diskName() string {
	key := sha256.Sum256(fmt.Append(nil, unitFiles, customize))
	return fmt.Sprintf("guest-%s-%x.ext4", suite, key[:4])
}

func kernelName() string { return "guest-kernel-" + kernelSuite }

// IsBuilt reports whether Make has nothing left to do.
func IsBuilt() bool { return debian.Has(diskName()) && debian.Has(kernelName()) }

// Build makes what a guest runs on, which takes a minute or more and the network. It needs root.
// Run does so itself; who wants to see progress, which `go test` holds back, calls Make first.
func Build() error {
	_, err := kernel()
	if err != nil {
		return err
	}
	_, err = disk()
	return err
}

// kernel returns the program that is the guest's kernel. Its C library and loader may be newer than
// this machine's and come with it. They are named in the program itself, because it executes itself
// again through /proc/self/exe, which, if the loader were started with it, would be the loader.
func kernel() (string, error) {
	dir, err := debian.Cached(kernelName(), func(path string) error {
		if err := makeKernel(path, filepath.Join(debian.Cache(), kernelName())); err != nil {
			return fmt.Errorf("cannot make the guest's kernel: %w", err)
		}
		return nil
	})
	return filepath.Join(dir, "linux.uml"), err
}

// makeKernel makes the directory of the kernel, for use at another path.
func makeKernel(path, final string) (err error) {
	if _, err := exec.LookPath("patchelf"); err != nil {
		return errors.New("patchelf is not installed: apt-get install patchelf")
	}
	root := path + ".root"
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	if err := errors.Join(os.RemoveAll(root), debian.Bootstrap(kernelSuite, root, []string{"user-mode-linux"}), os.Mkdir(path, 0o755)); err != nil {
		return err
	}
	const loader = "ld-linux-x86-64.so.2" // user-mode-linux is for x86 only
	program := filepath.Join(path, "linux.uml")
	return errors.Join(
		run("cp", "--dereference", filepath.Join(root, "usr/bin/linux.uml"), filepath.Join(root, "usr/lib64", loader), filepath.Join(root, "usr/lib/x86_64-linux-gnu/libc.so.6"), path),
		run("patchelf", "--set-interpreter", filepath.Join(final, loader), program),
		run("patchelf", "--set-rpath", final, program),
	)
}

// disk returns the guest's first disk, an ext4 file system with a Debian. It is made once, by root,
// and never written to.
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
	if err := run("chroot", root, "sh", "-ec", customize); err != nil {
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

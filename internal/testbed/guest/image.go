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

// suite is the Debian that runs in the guest.
const suite = "bookworm"

// unitFiles boot the guest into what a user's session needs, and then into /run/guest/main, which comes with the files of each run. The third disk takes
// the results.
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

// customize runs in the new system. Its user lingers; what systemd does once after an installation is taken as done, which saves a slow guest seconds.
const customize = `
useradd --create-home --shell /bin/bash --uid 1000 ` + user + `
mkdir -p /var/lib/systemd/linger
touch /var/lib/systemd/linger/` + user + ` /etc/.updated /var/.updated
systemd-machine-id-setup >/dev/null 2>&1
`

// image returns the guest's first disk, an ext4 file system with a Debian. It is made once, by root, and never written to.
func image() (string, error) {
	key := sha256.Sum256(fmt.Append(nil, unitFiles, customize))
	return debian.Cached(fmt.Sprintf("guest-%s-%x.ext4", suite, key[:4]), func(path string) error {
		tree, err := debian.Tree(suite)
		if err != nil {
			return err
		}
		if err := makeImage(tree, path); err != nil {
			return fmt.Errorf("cannot make the guest's disk: %w", err)
		}
		return nil
	})
}

func makeImage(tree, path string) (err error) {
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
	return run("mkfs.ext4", "-q", "-O", "^has_journal", "-d", root, path, "2G")
}

func run(name string, args ...string) error {
	output, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, strings.TrimSpace(string(output)))
	}
	return nil
}

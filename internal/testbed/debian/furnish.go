package debian

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// furnishScript copies the system $1 to $2 and has its apt install the remaining arguments. No
// service is started: policy-rc.d forbids it for as long as that takes.
const furnishScript = `
base=$1 new=$2
shift 2
cp --archive --reflink=auto "$base" "$new"
cp --dereference /etc/resolv.conf "$new/etc/resolv.conf"
printf '#!/bin/sh\nexit 101\n' >"$new/usr/sbin/policy-rc.d"
chmod 755 "$new/usr/sbin/policy-rc.d"
mount -t proc proc "$new/proc"
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
chroot "$new" apt-get update
chroot "$new" apt-get install --yes --no-install-recommends --option Dpkg::Options::=--force-unsafe-io "$@"
chroot "$new" apt-get clean
rm "$new/usr/sbin/policy-rc.d"
`

// WithAptPackages returns the root directory of a Debian system of the given suite on which apt has
// installed more packages, without what they only recommend. It serves where the packages have
// dependencies that debootstrap cannot resolve, such as alternatives and virtual packages. Like
// Tree it needs root, and the first call makes the directory, which takes minutes and the network.
func WithAptPackages(suite string, packages ...string) (string, error) {
	base, err := Tree(suite)
	if err != nil {
		return "", err
	}
	key := sha256.Sum256([]byte(strings.Join(packages, " ")))
	return Cached(fmt.Sprintf("%s-apt-%x", suite, key[:4]), func(dir string) error {
		cmd := exec.Command("sh", append([]string{"-ec", furnishScript, "sh", base, dir}, packages...)...)
		cmd.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
		cmd.Env = append(os.Environ(), proxy()...)
		log := &progressLog{what: "apt-get in " + suite, began: time.Now(), told: time.Now()}
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("cannot install %q on Debian %q: %w\n%s", packages, suite, err, lastLines(log.text.String(), 20))
		}
		return nil
	})
}

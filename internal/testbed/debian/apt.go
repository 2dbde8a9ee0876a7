package debian

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// aptScript copies the system $1 to $2 and installs the remaining arguments there with apt.
// policy-rc.d prevents that services are started.
const aptScript = `
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
// installed further packages, without those that they only recommend. Use it for packages with
// dependencies that debootstrap cannot resolve, such as alternatives and virtual packages. Like
// Tree it needs root, and the first call takes minutes and needs network access.
func WithAptPackages(suite string, packages ...string) (string, error) {
	base, err := Tree(suite)
	if err != nil {
		return "", err
	}
	key := sha256.Sum256([]byte(strings.Join(packages, " ")))
	return Cached(fmt.Sprintf("%s-apt-%x", suite, key[:4]), func(dir string) error {
		args := append([]string{"-ec", aptScript, "sh", base, dir}, packages...)
		if err := runForLong("apt-get in "+suite, "sh", args...); err != nil {
			return fmt.Errorf("cannot install %q on Debian %q: %w", packages, suite, err)
		}
		return nil
	})
}

//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/testbed/machine"
)

// host is a machine of newHosts.
type host struct {
	name string
	tree string // the installed Corral, "" for that of this checkout
}

// newHosts boots machines with Debian 13 in one network, each with Corral, sshd, and a lingering
// user ann. Ann's key on the first one, her laptop, opens her account on all of them. Each of them
// may be cut off (Disconnect), switched off and booted again.
func newHosts(t *testing.T, hosts ...host) []*desk {
	t.Helper()
	network := machine.NewNetwork(t)
	root := machine.Debian(t, "trixie", "openssh-server", "openssh-client")
	var desks []*desk
	for _, each := range hosts {
		if each.tree == "" {
			each.tree = installed(t)
		}
		desks = append(desks, newDeskOf(t, machine.Options{Root: root, Network: network, Name: each.name}, each.tree))
	}
	authorize(desks[0], desks...)
	return desks
}

// authorize lets a user on a machine use ssh to the accounts of the same or other users, without
// a password or a question, and starts sshd on their machines, also after each boot.
func authorize(from *desk, to ...*desk) {
	from.do("sh", "-ec", `mkdir -p -m 700 ~/.ssh && ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519
printf 'StrictHostKeyChecking accept-new\nBatchMode yes\nLogLevel ERROR\n' >~/.ssh/config`)
	key := from.do("cat", ".ssh/id_ed25519.pub")
	for _, d := range to {
		d.do("sh", "-ec", `mkdir -p -m 700 ~/.ssh; printf '%s\n' "$1" >>~/.ssh/authorized_keys; chmod 600 ~/.ssh/authorized_keys`,
			"sh", strings.TrimSpace(key))
		d.Run("sh", "-ec", "ssh-keygen -A >&2; systemctl add-wants machine.target ssh.service; systemctl restart ssh.service")
	}
}

// olderCommit is the commit of the older Corral in tests of several hosts; the Makefile has the
// same one for make upgrade-test.
const olderCommit = "bbaa65f"

// TestHosts_AnOlderCorral controls a host that has not been upgraded yet, which reboots and loses
// its network in between.
func TestHosts_AnOlderCorral(t *testing.T) {
	t.Parallel()
	hosts := newHosts(t, host{name: "laptop"}, host{name: "old", tree: installedFrom(t, olderCommit)})
	laptop, old := hosts[0], hosts[1]
	remote := func(args ...string) (string, int) {
		return laptop.try(append([]string{"timeout", "20", "corralctl", "-H", "old"}, args...)...)
	}
	assert.Equal(t, "corralctl 0.0.0+git"+olderCommit, laptop.do("ssh", "old", "corralctl", "--version"))
	out, code := remote("run", "--dir", "/tmp", "--id", "there", "--", "sleep", "1000")
	assert.Zero(t, code, out)
	old.Disconnect()
	_, code = laptop.try("timeout", "2", "corralctl", "-H", "old", "list")
	assert.Equal(t, 124, code, "no answer, and no error")
	old.Connect()
	out, code = remote("is-active", "there")
	assert.Equal(t, "running 0", fmt.Sprint(out, " ", code))
	old.Crash()
	old.Boot()
	old.User("ann")
	laptop.do("timeout", "30", "sh", "-c", "until ssh old true; do sleep 0.1; done")
	out, code = remote("is-active", "there")
	assert.Equal(t, "failed 3", fmt.Sprint(out, " ", code), "after a power loss")
}

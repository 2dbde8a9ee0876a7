//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/corrald/corral/internal/testbed/machine"
)

// TestRemoteNotifications_OnDesktop follows the sessions of ann's account from bob's desktop, over
// a real sshd: a notification appears, a click opens a terminal there, and what happens while sshd
// is down or ann's user manager is restarted is shown afterwards, once.
func TestRemoteNotifications_OnDesktop(t *testing.T) {
	d := newDesk(t, machine.Debian(t, "trixie", "openssh-server", "openssh-client", "dunst", "xvfb", "xterm", "xdotool",
		"imagemagick", "fonts-dejavu-core"))
	bob := &desk{d.Machine, t, d.User("bob")}
	bob.followAnn(d)
	bob.desktop()
	notified := bob.notified()
	bob.do("systemctl", "--user", "enable", "--now", "corral-remote@desk.service")
	status := func(text string) {
		t.Helper()
		bob.do("timeout", "90", "sh", "-c", "until systemctl --user status corral-remote@desk.service | grep -q '"+text+
			"'; do sleep 0.1; done")
	}
	status("Status: .waiting for corrald on desk") // it is not started by a follower

	d.run("shop", "--", "sh", "-c", "exit 3")
	notified("desk: shop: failed, exit 3")
	displayed := func(count string) {
		t.Helper()
		bob.do("timeout", "30", "sh", "-c", "until [ $(dunstctl count displayed) = "+count+" ]; do sleep 0.05; done")
	}
	displayed("1")
	bob.picture()
	bob.do("dunstctl", "action", "0")
	bob.do("timeout", "30", "sh", "-c",
		"until pgrep -f '^ssh -t -- desk corralctl attach .*shop$' >/dev/null; do sleep 0.05; done")
	displayed("0")

	d.Run("sh", "-c", "systemctl stop ssh ssh.socket; pkill -KILL -u ann sshd-session || pkill -KILL -u ann sshd")
	status("cannot reach desk")
	d.run("gap", "--", "sh", "-c", "exit 4")
	d.Run("systemctl", "start", "ssh")
	notified("desk: gap: failed, exit 4")
	displayed("1")

	d.run("works", "--", "sleep", "1000")
	d.Run("sh", "-c", "loginctl enable-linger ann; systemctl restart user@$(id -u ann)")
	notified("desk: 1 session was suspended")
	bob.picture()
	d.Run("journalctl", "--sync")
	journal := bob.do("journalctl", "--user", "--no-pager", "--output=cat", "-u", "corral-remote@desk.service")
	t.Log(journal)
	assert.Equal(t, 2, strings.Count(journal, "cannot reach"), "once for each time")
}

// followAnn gives this user a key for ann's account, which is on the machine desk.
func (d *desk) followAnn(ann *desk) {
	d.t.Helper()
	d.Run("sh", "-c", "mkdir -p /run/sshd && ssh-keygen -A && systemctl restart ssh")
	d.do("sh", "-c", "mkdir -m 700 ~/.ssh && ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519")
	d.do("sh", "-c", `printf 'Host desk\n HostName 127.0.0.1\n User ann\n StrictHostKeyChecking accept-new\n`+
		` LogLevel ERROR\n' >~/.ssh/config`)
	key := d.do("cat", "/home/"+d.user+"/.ssh/id_ed25519.pub")
	ann.do("sh", "-c", `mkdir -m 700 ~/.ssh && printf '%s\n' "$1" >~/.ssh/authorized_keys`, "sh", key)
}

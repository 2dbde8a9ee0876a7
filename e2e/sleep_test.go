//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// nap stands in for the kernel's part of a sleep, which no machine that shares its kernel can have:
// it lasts until somebody wakes it.
const nap = `[Service]
ExecStart=
ExecStart=/bin/sh -c 'touch /run/asleep; until [ -e /run/wake ]; do sleep 0.05; done; rm /run/asleep /run/wake'
`

// The login manager waits with a sleep until corrald has saved, and no longer; agents sleep and
// wake with the machine. Root needs no policy for the lock.
func TestSleep(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		// The login manager has a view of its own of what is mounted.
		d.Run("sh", "-ec", `mount -t tmpfs tmpfs /sys/power; echo mem >/sys/power/state
			mkdir -p /run/systemd/system/systemd-suspend.service.d; printf '%s' "$1" >/run/systemd/system/systemd-suspend.service.d/nap.conf
			systemctl daemon-reload; systemctl restart systemd-logind`, "sh", nap)
		d.run("refused", "--", "sleep", "1000") // an ordinary user's lock may be refused, which harms nobody
		root := func(args ...string) string {
			t.Helper()
			return strings.TrimSpace(d.Run(append([]string{"env", "XDG_RUNTIME_DIR=/run/user/0", "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/0/bus"}, args...)...))
		}
		locks := func() string { return d.Run("systemd-inhibit", "--list", "--no-pager", "--no-legend") }
		held := func() {
			t.Helper()
			d.Run("timeout", "30", "sh", "-c", "until systemd-inhibit --list | grep 'corrald *0 ' | grep -q shutdown:sleep; do sleep 0.05; done")
		}
		d.lingerRoot()
		d.Run("systemctl", "start", "user@0.service")
		root("corralctl", "run", "-q", "--id", "held", "--", "sleep", "1000")
		held()
		before := root("corralctl", "show", "-P", "MainPID,State,NRuns", "held")

		for range 2 {
			d.Run("busctl", "call", "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "Suspend", "b", "false")
			d.Run("timeout", "30", "sh", "-c", "until [ -e /run/asleep ]; do sleep 0.05; done")
			assert.NotContains(t, locks(), "corrald", "it would wait for the lock in vain")
			d.Run("touch", "/run/wake")
			held()
		}
		assert.Equal(t, before, root("corralctl", "show", "-P", "MainPID,State,NRuns", "held"))
		assert.Equal(t, `s "running"`, d.property("refused", "State"))
		said := d.Run("journalctl", "--no-pager", "--output=cat", "--unit=systemd-logind")
		assert.NotContains(t, said, "timeout is reached", "nobody had to wait until the login manager gave up")
	})
}

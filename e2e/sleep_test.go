//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// nap replaces the kernel's part of a sleep, which a machine that shares its kernel cannot do: it
// lasts until the test ends it.
const nap = `[Service]
ExecStart=
ExecStart=/bin/sh -c 'touch /run/asleep; until [ -e /run/wake ]; do sleep 0.05; done; rm /run/asleep /run/wake'
`

// TestSleep checks that the login manager delays a sleep until corrald has saved, and not longer,
// and that agents continue after it. Root may take the lock without a polkit rule.
func TestSleep(t *testing.T) {
	onEach(t, func(t *testing.T, d *desk) {
		// The login manager has its own mount namespace, so it is restarted.
		d.Run("sh", "-ec", `mount -t tmpfs tmpfs /sys/power; echo mem >/sys/power/state
			mkdir -p /run/systemd/system/systemd-suspend.service.d; printf '%s' "$1" >/run/systemd/system/systemd-suspend.service.d/nap.conf
			systemctl daemon-reload; systemctl restart systemd-logind`, "sh", nap)
		d.run("refused", "--", "sleep", "1000") // an ordinary user's lock may be refused, which is harmless
		root := func(args ...string) string {
			t.Helper()
			return strings.TrimSpace(d.Run(append([]string{"env", "XDG_RUNTIME_DIR=/run/user/0",
				"DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/0/bus"}, args...)...))
		}
		locks := func() string { return d.Run("systemd-inhibit", "--list", "--no-pager", "--no-legend") }
		held := func() {
			t.Helper()
			d.Run("timeout", "30", "sh", "-c",
				"until systemd-inhibit --list | grep 'corrald *0 ' | grep -q shutdown:sleep; do sleep 0.05; done")
		}
		d.lingerRoot()
		d.Run("systemctl", "start", "user@0.service")
		root("corralctl", "run", "-q", "--id", "held", "--", "sleep", "1000")
		held()
		before := root("corralctl", "show", "-P", "MainPID,State,NRuns", "held")

		for range 2 {
			d.Run("busctl", "call", "org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager",
				"Suspend", "b", "false")
			d.Run("timeout", "30", "sh", "-c", "until [ -e /run/asleep ]; do sleep 0.05; done")
			assert.NotContains(t, locks(), "corrald", "it would wait for the lock in vain")
			d.Run("touch", "/run/wake")
			held()
		}
		assert.Equal(t, before, root("corralctl", "show", "-P", "MainPID,State,NRuns", "held"))
		assert.Equal(t, `s "running"`, d.property("refused", "State"))
		output := d.Run("journalctl", "--no-pager", "--output=cat", "--unit=systemd-logind")
		assert.NotContains(t, output, "timeout is reached", "nobody had to wait until the login manager gave up")
	})
}
